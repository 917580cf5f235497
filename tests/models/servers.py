"""Servers on this machine: a package index for pip, and a hub for the library of the hub."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class Served:
    """What a server serves, by path, and what it was asked for."""

    files: Mapping[str, bytes]
    asked: list[str] = field(default_factory=list)
    stalls: str | None = None
    """Path of the file of which half is sent."""
    half_sent: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)
    address: str = ""


@contextlib.contextmanager
def serving(files: Mapping[str, bytes], stalls: str | None = None) -> Iterator[Served]:
    """Serves files by HTTP until the block ends; the file `stalls` stops in its middle until it is released."""
    served = Served(files, stalls=stalls)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_HEAD(self) -> None:
            self.answer(with_content=False)

        def do_GET(self) -> None:
            self.answer(with_content=True)

        def answer(self, with_content: bool) -> None:
            served.asked.append(f"{self.command} {self.path}")
            content = served.files.get(self.path)
            self.send_response(200 if content is not None else 404)
            missing = content is None
            content = content or b""
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Content-Type", "text/html" if self.path.endswith("/") else "application/octet-stream")
            self.send_header("X-Repo-Commit", COMMIT)
            if missing:
                self.send_header("X-Error-Code", "EntryNotFound")
            self.send_header("ETag", f'"{hashlib.sha1(content, usedforsecurity=False).hexdigest()}"')
            self.end_headers()
            with contextlib.suppress(OSError):
                if with_content and self.path == served.stalls and not served.released.is_set():
                    self.wfile.write(content[: len(content) // 2])
                    self.wfile.flush()
                    served.half_sent.set()
                    served.released.wait(60)
                    self.close_connection = True
                elif with_content:
                    self.wfile.write(content)

        def log_message(self, format: str, *arguments: object) -> None:
            """Says nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        served.address = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield served
        finally:
            served.released.set()
            server.shutdown()
            thread.join()
