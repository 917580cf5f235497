"""Micro-batcher: one queue and one thread for each model; requests that wait together are read together."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Protocol

from twofold.serve.errors import RefusalError
from twofold.serve.jobs import Job, Piece, Stream

SLOWEST = 60
"""Largest number of seconds after which a client is asked to try again."""
SMOOTHING = 0.2
"""Share of the newest batch in the running mean of the speed."""
Outcome = tuple[Job, Any, BaseException | None]


class Observer(Protocol):
    """Listener to what a batcher does."""

    def observe_batch(self, model: str, requests: int, tokens: int, seconds: float, waiting: int) -> None: ...


class Batcher:
    """Queue and thread of a model."""

    def __init__(self, name: str, batch_tokens: int, most_waiting: int, observer: Observer) -> None:
        self.name, self.batch_tokens, self.most_waiting, self._observer = name, batch_tokens, most_waiting, observer
        self._jobs: deque[Job] = deque()
        self._ready = threading.Condition()
        self._closed = False
        self._speed = 0.0
        """Tokens read in a second, as a running mean."""
        self._thread = threading.Thread(target=self._work, name=f"twofold-{name}", daemon=True)

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Starts the thread; answers are delivered in the event loop."""
        self._loop = loop
        self._thread.start()

    def close(self) -> None:
        """Ends the thread after all that was accepted."""
        with self._ready:
            self._closed = True
            self._ready.notify()
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def waiting(self) -> int:
        """Number of requests in the queue."""
        return len(self._jobs)

    # --- in the event loop ---

    async def run(self, job: Job) -> Any:
        """Puts a job into the queue and waits for its answer; one that is cancelled leaves the queue."""
        job.future = self._loop.create_future()
        job.cut(self.batch_tokens)
        self._add(job)
        try:
            return await job.future
        finally:
            job.gone = True

    async def call(self, function: Callable[[], Any]) -> Any:
        """Calls a function in the thread of the model."""
        return await self.run(Job(lambda _: function()))

    def _add(self, job: Job) -> None:
        with self._ready:
            if len(self._jobs) >= self.most_waiting:
                self._jobs = deque(queued for queued in self._jobs if not queued.gone)
            if len(self._jobs) >= self.most_waiting or self._closed:
                seconds = self._seconds_left()
                said = f"{len(self._jobs):,} requests wait for the model {self.name}; try again in {seconds} s"
                raise RefusalError("overloaded", said, headers={"Retry-After": str(seconds)})
            self._jobs.append(job)
            self._ready.notify()

    def _seconds_left(self) -> int:
        """Seconds in which the queue is probably done."""
        tokens = sum(job.tokens for job in self._jobs)
        return max(1, min(SLOWEST, math.ceil(tokens / self._speed))) if self._speed else 1

    def _deliver(self, outcomes: Iterable[Outcome]) -> None:
        for job, answer, error in outcomes:
            if job.future.done():
                continue
            if error is None:
                job.future.set_result(answer)
            else:
                job.future.set_exception(error)

    # --- in the thread ---

    def _work(self) -> None:
        while (taken := self._take()) is not None:
            start = time.perf_counter()
            outcomes: list[Outcome] = []
            if isinstance(taken, Stream):
                outcomes += self._next_bit(taken)
            else:
                pieces = [] if isinstance(taken, Job) else taken
                read = self._read(pieces, outcomes) if pieces else [taken]
                self._finish([job for job in read if isinstance(job, Job)], outcomes)
            if outcomes:
                self._loop.call_soon_threadsafe(self._deliver, outcomes)
            if isinstance(taken, list):
                self._measure(taken, time.perf_counter() - start)

    def _measure(self, pieces: Sequence[Piece], seconds: float) -> None:
        tokens = sum(piece.tokens for piece in pieces)
        speed = tokens / max(seconds, 1e-6)
        self._speed += (SMOOTHING if self._speed else 1.0) * (speed - self._speed)
        requests = len({id(piece.job) for piece in pieces})
        self._observer.observe_batch(self.name, requests, tokens, seconds, len(self._jobs))

    def _take(self) -> list[Piece] | Job | None:
        """Takes the next pieces to read together, or a job that reads nothing; None at the end.

        Of a job that does not fit into one batch, the rest goes to the end of the queue.
        """
        with self._ready:
            while True:
                while self._jobs and self._jobs[0].gone:
                    self._jobs.popleft()
                if self._jobs:
                    break
                if self._closed:
                    return None
                self._ready.wait()
            if not self._jobs[0].pieces:
                return self._jobs.popleft()
            return self._take_pieces()

    def _take_pieces(self) -> list[Piece]:
        taken: list[Piece] = []
        tokens = 0
        for _ in range(len(self._jobs)):
            job = self._jobs.popleft()
            if job.gone:
                continue
            before = len(taken)
            while job.pieces and (not taken or tokens + job.pieces[0].tokens <= self.batch_tokens):
                taken.append(job.pieces.popleft())
                tokens += taken[-1].tokens
            if len(taken) == before:  # reads nothing, or does not fit: it is first next time
                self._jobs.appendleft(job)
                break
            if job.pieces:
                self._jobs.append(job)
                break
        return taken

    def _read(self, pieces: Sequence[Piece], outcomes: list[Outcome]) -> list[Job]:
        """Reads pieces of one kind together; returns the jobs that have read everything."""
        kinds: dict[Hashable, list[Piece]] = {}
        for piece in pieces:
            kinds.setdefault(piece.reading.kind, []).append(piece)
        failed: dict[int, Job] = {}
        for alike in kinds.values():
            try:
                self._read_alike(alike)
            except Exception:
                for piece in alike:  # the error of one request is not that of the others
                    self._read_alone(piece, failed, outcomes)
        jobs = {id(piece.job): piece.job for piece in pieces}
        return [job for number, job in jobs.items() if number not in failed and not job.pieces and not job.gone]

    def _read_alike(self, pieces: Sequence[Piece]) -> None:
        result = pieces[0].reading.read([item for piece in pieces for item in piece.items])
        start = 0
        for piece in pieces:
            stop = start + piece.stop - piece.start
            piece.job.parts[piece.number].append(result if len(pieces) == 1 else result[start:stop])
            start = stop

    def _read_alone(self, piece: Piece, failed: dict[int, Job], outcomes: list[Outcome]) -> None:
        try:
            if id(piece.job) not in failed:
                self._read_alike([piece])
        except Exception as error:
            failed[id(piece.job)] = piece.job
            piece.job.gone = True  # what is left of it is not read
            outcomes.append((piece.job, None, error))

    def _finish(self, jobs: Sequence[Job], outcomes: list[Outcome]) -> None:
        """Answers jobs whose readings are done, alike ones together."""
        groups: dict[Hashable, list[Job]] = {}
        for job in jobs:
            groups.setdefault(id(job) if job.alike is None else job.alike, []).append(job)
        for group in groups.values():
            finish_all = group[0].finish_all
            try:
                if len(group) > 1 and finish_all is not None:
                    answers = finish_all([job.results() for job in group])
                    outcomes += [(job, answer, None) for job, answer in zip(group, answers, strict=True)]
                    continue
            except Exception:  # noqa: S110 - each is tried alone, so that only the one in error fails
                pass
            for job in group:
                try:
                    outcomes.append((job, job.finish(job.results()), None))
                except Exception as error:
                    outcomes.append((job, None, error))

    def _next_bit(self, stream: Stream) -> list[Outcome]:
        """Takes the next bit of a stream, which then goes to the end of the queue."""
        try:
            stream.bits = stream.bits or stream.finish([])
            bit = next(stream.bits)
        except StopIteration:
            return [(stream, None, None)]
        except Exception as error:
            return [(stream, None, error)]
        self._loop.call_soon_threadsafe(stream.give, bit)
        with self._ready:
            self._jobs.append(stream)
        return []
