"""Servers in processes of their own: started on a free port, ready when they say so, and what they cost."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _common import ROOT

HERE = Path(__file__).parent
TICKS = os.sysconf("SC_CLK_TCK")
STARTING = 300.0
"""Seconds in which a server must be ready, on a busy machine."""


@dataclass(frozen=True)
class Server:
    """Server that runs."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def processes(self) -> list[int]:
        """Process of the server and its workers."""
        return [self.process.pid, *self.workers]

    @property
    def workers(self) -> list[int]:
        """Processes that the server has started, oldest first."""
        found = []
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                if int(_fields(path)[1]) == self.process.pid:
                    found.append(int(path.parent.name))
        return sorted(found)

    def cpu_seconds(self) -> float:
        """CPU time of all processes until now."""
        seconds = 0.0
        for number in self.processes:
            with contextlib.suppress(OSError):
                fields = _fields(Path(f"/proc/{number}/stat"))
                seconds += (int(fields[11]) + int(fields[12])) / TICKS
        return seconds

    def megabytes(self) -> float:
        """Memory of all processes that is their own."""
        size = 0
        for number in self.processes:
            with contextlib.suppress(OSError):
                lines = Path(f"/proc/{number}/smaps_rollup").read_text().splitlines()
                private = [line for line in lines if line.startswith(("Private_Clean", "Private_Dirty"))]
                size += sum(int(line.split()[1]) for line in private)
        return size / 1024

    def ask(self, method: str, path: str, body: Any = None, seconds: float = 60.0) -> tuple[int, Any]:
        """Status and content of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds)
        with contextlib.closing(connection):
            sent = None if body is None else json.dumps(body)
            connection.request(method, path, sent, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            content = answer.read()
        kind = answer.headers.get("content-type", "")
        return answer.status, json.loads(content) if kind.startswith("application/json") else content


def _fields(path: Path) -> list[str]:
    """Fields of a stat file behind the name of the program, which may hold blanks."""
    return path.read_text().rpartition(")")[2].split()


def free_port() -> int:
    with socket.socket() as opened:
        opened.bind(("127.0.0.1", 0))
        port: int = opened.getsockname()[1]
    return port


@contextlib.contextmanager
def running(
    program: Sequence[str], log: Path, environment: Mapping[str, str] | None = None, port: int | None = None
) -> Iterator[Server]:
    """Runs a server, `{port}` in whose arguments is its port, until the block ends."""
    port = port or free_port()
    arguments = [sys.executable, *(part.replace("{port}", str(port)) for part in program)]
    with log.open("wb") as written:
        process = subprocess.Popen(
            arguments, cwd=ROOT, env={**os.environ, **(environment or {})}, stdout=written, stderr=written
        )
    server = Server(process, port, log)
    try:
        _wait(server)
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(server: Server) -> None:
    end = time.monotonic() + STARTING
    while time.monotonic() < end and server.process.poll() is None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            if server.ask("GET", "/ready")[0] == 200:
                return
        time.sleep(0.2)
    raise SystemExit(f"the server did not start: {server.log.read_text(errors='replace')[-2000:]}")
