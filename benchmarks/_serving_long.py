"""Ten minutes of mixed load on two workers, one of which is killed again and again, while candidates come and go."""

from __future__ import annotations

import multiprocessing
import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import twofold
from tests.serve.mixed_load import Expected, Load, Outcome, Plan, expected_of
from tests.serve.processes import Server, megabytes_of, running

STAY, MOVING, DOCUMENTS = 2_000, 200, 100
TOLERANCE = 1e-3
"""In float32; vectors of an index are stored in 16 bits."""
SETTLED = 0.25
"""Share of the time after which memory counts."""
SAMPLE = 2.0
"""Seconds between two looks at the memory."""


def clients(plan: Plan, expected: Expected, done: Any) -> None:
    """Runs the load, in a process of its own."""
    import uvloop

    done.put(uvloop.run(Load(plan, expected).run()))


def endure(questions: list[str], sentences: list[str], seconds: float, count: int, kills: int) -> dict[str, Any]:
    """Runs the load, kills the younger worker several times, and compares what is left with what was acknowledged."""
    stay, moving = sentences[:STAY], sentences[STAY : STAY + MOVING]
    spawned = multiprocessing.get_context("spawn")
    done = spawned.Queue()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with twofold.build_index(folder / "index", "default", stay, precision="float32") as index:
            expected = expected_of(index.model, index, questions, stay[:DOCUMENTS], moving, TOLERANCE)
        how = ["--port", "{port}", "--workers", "2", "--precision", "float32", "--no-log"]
        with running(["serve", folder / "index", *how], folder) as server:
            plan = Plan(server.port, "index", count, seconds)
            process = spawned.Process(target=clients, args=(plan, expected, done))
            process.start()
            killed, memory = _watch(server, seconds, kills)
            outcome: Outcome = done.get(timeout=120)
            process.join()
            server.process.send_signal(signal.SIGTERM)
            status = server.process.wait(90)
            log = server.log.read_text(errors="replace")
        with twofold.open_index(folder / "index") as index:
            lost = _lost(index, outcome, moving, len(stay))
    p50, p95, p99 = (round(float(value), 1) for value in np.percentile(outcome.milliseconds, [50, 95, 99]))
    return {
        "clients": count,
        "seconds": seconds,
        "answers": dict(outcome.answers),
        "changes": outcome.changes,
        "wrong": len(outcome.wrong),
        "wrong_shown": outcome.wrong[:5],
        "lost": lost,
        "kills": len(killed),
        "statuses": {str(name): number for name, number in sorted(outcome.statuses.items())},
        "connections_of_killed_workers": len(outcome.broken) - outcome.unexplained(killed),
        "broken_without_a_kill": outcome.unexplained(killed),
        "server_errors": sum(number for name, number in outcome.statuses.items() if name >= 500),
        "tracebacks": log.count("Traceback"),
        "exit_status": status,
        "milliseconds": {"p50": p50, "p95": p95, "p99": p99},
        "memory": memory,
    }


def _watch(server: Server, seconds: float, kills: int) -> tuple[list[float], dict[str, Any]]:
    """Kills the younger worker in equal distances, and keeps the memory of the process that lives throughout."""
    oldest, killed, samples = server.workers[0], list[float](), list[tuple[float, float, float]]()
    start = time.monotonic()
    while (now := time.monotonic() - start) < seconds:
        if len(killed) < kills and now > seconds * (len(killed) + 1) / (kills + 1):
            others = [worker for worker in server.workers if worker != oldest]
            if others:
                killed.append(time.time())
                os.kill(others[-1], signal.SIGKILL)
        samples.append((now, megabytes_of(oldest), megabytes_of(server.process.pid)))
        time.sleep(SAMPLE)
    times, worker, supervisor = np.array(samples).T
    late = times > SETTLED * seconds
    return killed, {
        "worker_megabytes": [round(float(value), 1) for value in worker[:: max(1, len(worker) // 20)]],
        "worker_slope_megabytes_a_minute": round(float(np.polyfit(times[late] / 60, worker[late], 1)[0]), 2),
        "worker_growth_percent": _growth(worker[late]),
        "supervisor_growth_percent": _growth(supervisor[late]),
    }


def _growth(megabytes: Any) -> float:
    """Percent by which the last tenth is above the first."""
    part = max(1, len(megabytes) // 10)
    first, last = np.median(megabytes[:part]), np.median(megabytes[-part:])
    return round(float(100 * (last / first - 1)), 2)


def _lost(index: Any, outcome: Outcome, moving: list[str], stay: int) -> int:
    """Number of acknowledged changes that the index does not hold."""
    there = set(outcome.there)
    lost = abs(stay + len(there) - len(index))
    for number, text in enumerate(moving):
        hits = index.search(text, 3)
        lost += (f"moving {number}" in [hit.id for hit in hits]) != (number in there)
    return lost
