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

TICKS = os.sysconf("SC_CLK_TCK")
STARTING, ENDING = 300.0, 60.0
"""Seconds in which a server must be ready, and must end, on a busy machine."""


@dataclass(frozen=True)
class Server:
    """Server that runs."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path
    headers: Mapping[str, str]
    """Headers of every request, such as that of a key."""

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
        return sum(map(megabytes_of, self.processes))

    def ask(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, Any]:
        """Status and content of an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        with contextlib.closing(connection):
            sent = None if body is None else json.dumps(body)
            given = {"Content-Type": "application/json", **self.headers, **(headers or {})}
            connection.request(method, path, sent, given)
            answer = connection.getresponse()
            content = answer.read()
        kind = answer.headers.get("content-type", "")
        return answer.status, json.loads(content) if kind.startswith("application/json") else content


def megabytes_of(process: int) -> float:
    """Memory of a process that it shares with no other; 0 if it has ended."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    private = [line for line in lines if line.startswith(("Private_Clean", "Private_Dirty"))]
    return sum(int(line.split()[1]) for line in private) / 1024


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
    arguments: Sequence[str | Path],
    folder: Path,
    environment: Mapping[str, str] | None = None,
    headers: Mapping[str, str] | None = None,
    program: Sequence[str | Path] = (sys.executable, "-m", "twofold"),
    name: str = "server",
) -> Iterator[Server]:
    """Runs a server, `{port}` in whose arguments is its port, until the block ends; its log lies in the folder."""
    port, log = free_port(), folder / f"{name}.log"
    words = [*map(str, program), *(str(word).replace("{port}", str(port)) for word in arguments)]
    with log.open("wb") as written:
        process = subprocess.Popen(
            words, cwd=folder, env={**os.environ, **(environment or {})}, stdout=written, stderr=written
        )
    server = Server(process, port, log, headers or {})
    try:
        _wait(server)
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(ENDING)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(server: Server) -> None:
    end = time.monotonic() + STARTING
    while time.monotonic() < end and server.process.poll() is None:
        with contextlib.suppress(OSError, http.client.HTTPException):
            if server.ask("GET", "/ready")[0] == 200:
                return
        time.sleep(0.1)
    raise AssertionError(f"the server did not start: {server.log.read_text(errors='replace')[-2000:]}")
