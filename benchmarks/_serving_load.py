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

import _common  # noqa: F401 - finds what the tests share

from tests.serve.clients import Connection

SLOW = 4
"""Times longer that a slow server is measured, until every client has had two answers."""


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


async def load(job: Job) -> dict[str, Any]:
    """Milliseconds of the answers that came within the time, that time, and the number of all answers by status."""
    milliseconds: list[float] = []
    statuses: dict[str, int] = {}
    bodies = [body.encode() for body in job.bodies]
    start = time.perf_counter() + job.warm_up
    end, latest = start + job.seconds, start + SLOW * job.seconds
    last = start

    def is_going() -> bool:
        now, enough = time.perf_counter(), len(milliseconds) >= 2 * job.clients
        return len(milliseconds) < job.most and now < (end if enough else latest)

    async def client(number: int) -> None:
        nonlocal last
        connection = Connection(job.port)
        turn = number * 7919
        while is_going():
            turn += 1
            began = time.perf_counter()
            status, _ = await connection.ask("POST", job.path, bodies[turn % len(bodies)])
            statuses[str(status)] = statuses.get(str(status), 0) + 1
            now = time.perf_counter()
            if start <= now and is_going():
                milliseconds.append((now - began) * 1000)
                last = now
        connection.close()

    await asyncio.gather(*(client(number) for number in range(job.clients)))
    return {"milliseconds": milliseconds, "seconds": last - start, "statuses": statuses}


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
