"""Clients of a server: a closed loop over connections that stay open, in a process of its own.

Reads a job as JSON from standard input and prints what it measured as JSON. The client writes HTTP by hand: a library
would take as much of the processor as the server does.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

LATE = 60.0
"""Seconds after which an answer no longer comes."""


@dataclass(frozen=True)
class Job:
    """What clients send."""

    port: int
    path: str
    bodies: list[str]
    """JSON bodies; clients take them in turn."""
    clients: int
    seconds: float
    most: int = 100_000
    """Requests at most."""
    warm_up: float = 0.5
    """Seconds before those that count."""


class Connection:
    """Connection of a client, opened anew whenever the server has closed it."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, body: bytes = b"", headers: str = "") -> tuple[int, bytes]:
        """Sends a request and reads its answer: status and body; status 0 if the connection broke."""
        head = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nContent-Type: application/json\r\n{headers}"
        try:
            async with asyncio.timeout(LATE):
                return await self._exchange(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        except (OSError, asyncio.IncompleteReadError, TimeoutError):
            self.close()
            return 0, b""

    async def _exchange(self, sent: bytes) -> tuple[int, bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 20)
        reader, writer = self._streams
        writer.write(sent)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
        content = await reader.readexactly(length)
        if b"connection: close" in head:
            self.close()
        return int(head.split(b" ", 2)[1]), content

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
        self._streams = None


async def load(job: Job) -> dict[str, Any]:
    """Milliseconds of all answers, the time that they took together, and the statuses that were not 200."""
    milliseconds: list[float] = []
    others: dict[str, int] = {}
    bodies = [body.encode() for body in job.bodies]
    start = time.perf_counter() + job.warm_up
    end, sent, last = start + job.seconds, 0, start

    async def client(number: int) -> None:
        nonlocal sent, last
        connection = Connection(job.port)
        turn = number * 7919
        while sent < job.most and time.perf_counter() < end:
            turn += 1
            began = time.perf_counter()
            status, _ = await connection.ask("POST", job.path, bodies[turn % len(bodies)])
            now = time.perf_counter()
            if status != 200:
                others[str(status)] = others.get(str(status), 0) + 1
            elif began >= start:
                milliseconds.append((now - began) * 1000)
                last = now
            sent += began >= start
        connection.close()

    await asyncio.gather(*(client(number) for number in range(job.clients)))
    return {"milliseconds": milliseconds, "seconds": last - start, "others": others}


def measure(job: Job) -> dict[str, Any]:
    """Runs a job in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__], input=json.dumps(asdict(job)), capture_output=True, text=True, check=True
    )
    measured: dict[str, Any] = json.loads(done.stdout)
    return measured


def main() -> None:
    import uvloop

    job = Job(**json.load(sys.stdin))
    print(json.dumps(uvloop.run(load(job))))


if __name__ == "__main__":
    main()
