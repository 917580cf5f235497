"""Supervisor of several processes on one socket: one that dies is started again, and all end together."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from twofold.errors import TwofoldError
from twofold.serve.settings import Limits, Settings

POLL = 0.2
"""Seconds between two looks at the processes."""
YOUNG, LONGEST_PAUSE = 10.0, 30.0
"""Seconds within which the end of a process counts as a failure to start, and the longest pause before a new start."""
MOST_FAILURES = 3
"""Number of starts in a row that may fail before all gives up."""
SPARE = 10.0
"""Seconds beyond the time limit of requests that a process gets to end."""
METRICS = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable of the folder in which processes share their metrics."""


def settings_from(content: dict[str, Any]) -> Settings:
    """Settings from plain values."""
    lists = {name: tuple(value) for name, value in content.items() if isinstance(value, list)}
    return Settings(**{**content, **lists, "limits": Limits(**content["limits"])})


@dataclass
class Worker:
    """Process that serves."""

    started: float
    process: subprocess.Popen[bytes]
    told: int
    """Pipe on which it says that it is ready."""
    is_ready: bool = False


@dataclass
class Supervisor:
    """Keeps processes running."""

    settings: Settings
    opened: socket.socket
    say: Callable[[str], None]
    stopping: bool = False
    failures: int = 0
    workers: list[Worker] = field(default_factory=list)

    def run(self, address: str) -> None:
        """Serves until a signal comes; accepted requests are finished."""
        with self._metrics_folder(), self._signals():
            try:
                for _ in range(self.settings.workers):
                    self.workers.append(self._start())
                announced = False
                while not self.stopping:
                    self._look()
                    if not announced and all(worker.is_ready for worker in self.workers):
                        self.say(address)
                        announced = True
            finally:
                self._end()

    def _start(self) -> Worker:
        """Starts a process that shares the socket."""
        told, tells = os.pipe()
        descriptors = (self.opened.fileno(), tells)
        environment = {**os.environ}
        environment.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // self.settings.workers)))
        process = subprocess.Popen(
            [sys.executable, "-m", "twofold.serve.worker"],
            stdin=subprocess.PIPE,
            pass_fds=descriptors,
            env=environment,
            start_new_session=True,  # a Ctrl-C in the terminal is for the supervisor, which ends all in order
        )
        os.close(tells)
        assert process.stdin is not None
        order = {"settings": dataclasses.asdict(self.settings), "socket": descriptors[0], "told": tells}
        process.stdin.write(json.dumps(order).encode() + b"\n")
        process.stdin.flush()
        return Worker(time.monotonic(), process, told)

    def _look(self) -> None:
        """Waits for news of the processes; starts anew what has ended."""
        waiting = [worker.told for worker in self.workers if not worker.is_ready]
        readable = select.select(waiting, [], [], POLL)[0]
        for number, worker in enumerate(self.workers):
            if worker.told in readable and os.read(worker.told, 16):
                worker.is_ready, self.failures = True, 0
            if worker.process.poll() is not None and not self.stopping:
                self.workers[number] = self._restart(worker)

    def _restart(self, worker: Worker) -> Worker:
        """Starts a process in the place of one that has ended."""
        status, lived = worker.process.returncode, time.monotonic() - worker.started
        self._forget(worker)
        if not worker.is_ready:
            self.failures += 1
            if self.failures >= MOST_FAILURES:
                raise TwofoldError(
                    f"a worker ended {self.failures} times before it was ready (status {status}); see above"
                )
        self.say(f"worker {worker.process.pid} ended (status {status}); starting another")
        if lived < YOUNG:
            self._pause(min(LONGEST_PAUSE, 2.0**self.failures))
        return self._start()

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.stopping:
            time.sleep(POLL)

    def _forget(self, worker: Worker) -> None:
        """Closes what belongs to a process that has ended, and removes its gauges."""
        os.close(worker.told)
        if worker.process.stdin is not None:
            with contextlib.suppress(OSError):
                worker.process.stdin.close()
        from prometheus_client.multiprocess import mark_process_dead

        mark_process_dead(worker.process.pid)  # type: ignore[no-untyped-call]

    def _end(self) -> None:
        """Ends all processes: first they finish what they have accepted."""
        self.opened.close()
        for worker in self.workers:
            with contextlib.suppress(ProcessLookupError):
                worker.process.terminate()
        end = time.monotonic() + self.settings.limits.seconds + SPARE
        for worker in self.workers:
            try:
                worker.process.wait(max(0.1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                worker.process.kill()
                worker.process.wait()
            self._forget(worker)

    @contextlib.contextmanager
    def _metrics_folder(self) -> Iterator[None]:
        """Makes the folder in which processes share their metrics."""
        folder = tempfile.mkdtemp(prefix="twofold-metrics-")
        os.environ[METRICS] = folder
        try:
            yield
        finally:
            del os.environ[METRICS]
            shutil.rmtree(folder, ignore_errors=True)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        """Ends the loop at the first signal to end."""

        def stop(number: int, frame: FrameType | None) -> None:
            self.stopping = True

        before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
