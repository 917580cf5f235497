"""A batcher reads together what waits together, splits what is too much, and answers each request for itself."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from twofold.errors import TwofoldError
from twofold.serve.batching import Batcher
from twofold.serve.errors import RefusalError
from twofold.serve.jobs import Job, Reading, Stream


class Model:
    """Model that doubles numbers, slowly, and keeps which it has read together."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.begun, self.may_read = threading.Event(), threading.Event()
        self.may_read.set()

    def read(self, numbers: list[int]) -> list[int]:
        self.begun.set()
        assert self.may_read.wait(10)
        self.batches.append(numbers)
        if 13 in numbers:
            raise TwofoldError("13 cannot be read")
        return [2 * number for number in numbers]

    def job(self, *numbers: int, kind: str = "a") -> Job:
        def join(parts: list[list[int]]) -> list[int]:
            return [number for part in parts for number in part]

        reading = Reading(kind, list(numbers), [1] * len(numbers), self.read, join)
        return Job(lambda results: results[0], (reading,))


class Counted:
    """Observer that keeps the numbers of requests."""

    def __init__(self) -> None:
        self.requests: list[int] = []

    def observe_batch(self, model: str, requests: int, tokens: int, seconds: float, waiting: int) -> None:
        self.requests.append(requests)


Run = Callable[[Callable[[Batcher, Model], Any]], Any]


@pytest.fixture
def run() -> Run:
    """Runs a test in an event loop with a batcher of four tokens and three requests."""
    counted = Counted()

    def run(test: Callable[[Batcher, Model], Any]) -> Any:
        async def whole() -> Any:
            batcher, model = Batcher("model", 4, 3, counted), Model()
            batcher.start(asyncio.get_running_loop())
            try:
                return await test(batcher, model)
            finally:
                model.may_read.set()
                await asyncio.to_thread(batcher.close)

        return asyncio.run(whole())

    return run


async def queued(batcher: Batcher, model: Model, *jobs: Job) -> list[asyncio.Task[Any]]:
    """Jobs that wait while the model reads another one."""
    model.may_read.clear()
    first = asyncio.ensure_future(batcher.run(model.job(0)))
    while not model.begun.is_set():
        await asyncio.sleep(0.001)
    tasks = [first, *(asyncio.ensure_future(batcher.run(job)) for job in jobs)]
    await asyncio.sleep(0.01)
    return tasks


def test_what_waits_together_is_read_together(run: Run) -> None:
    async def test(batcher: Batcher, model: Model) -> None:
        tasks = await queued(batcher, model, model.job(1), model.job(2, 3))
        model.may_read.set()
        assert await asyncio.gather(*tasks) == [[0], [2], [4, 6]]
        assert model.batches == [[0], [1, 2, 3]]

    run(test)


def test_readings_of_another_kind_are_not_mixed(run: Run) -> None:
    async def test(batcher: Batcher, model: Model) -> None:
        tasks = await queued(batcher, model, model.job(1), model.job(2, kind="b"))
        model.may_read.set()
        assert await asyncio.gather(*tasks) == [[0], [2], [4]]
        assert model.batches == [[0], [1], [2]]

    run(test)


def test_a_large_request_is_split_and_others_have_their_turn(run: Run) -> None:
    async def test(batcher: Batcher, model: Model) -> None:
        large = list(range(10, 13)) + list(range(20, 27))
        tasks = await queued(batcher, model, model.job(*large), model.job(1))
        model.may_read.set()
        assert await asyncio.gather(*tasks) == [[0], [2 * number for number in large], [2]]
        assert [len(batch) for batch in model.batches] == [1, 4, 1, 4, 2]
        assert model.batches[2] == [1]

    run(test)


def test_the_error_of_a_request_is_not_that_of_others(run: Run) -> None:
    async def test(batcher: Batcher, model: Model) -> None:
        tasks = await queued(batcher, model, model.job(13), model.job(2))
        model.may_read.set()
        first, wrong, right = await asyncio.gather(*tasks, return_exceptions=True)
        assert [first, right] == [[0], [4]]
        assert str(wrong) == "13 cannot be read"

    run(test)


def test_a_request_that_nobody_waits_for_leaves_the_queue(run: Run) -> None:
    async def test(batcher: Batcher, model: Model) -> None:
        tasks = await queued(batcher, model, model.job(1), model.job(2))
        tasks[1].cancel()
        await asyncio.sleep(0.01)
        model.may_read.set()
        assert await asyncio.gather(*tasks[::2]) == [[0], [4]]
        assert model.batches == [[0], [2]]

    run(test)


def test_a_full_queue_refuses_and_one_whose_requests_were_given_up_does_not(run: Run) -> None:
    async def test(batcher: Batcher, model: Model) -> None:
        tasks = await queued(batcher, model, model.job(1), model.job(2), model.job(3))
        with pytest.raises(RefusalError) as error:
            await batcher.run(model.job(4))
        assert error.value.reason == "overloaded"
        assert int(error.value.headers["Retry-After"]) >= 1
        tasks[1].cancel()
        await asyncio.sleep(0.01)
        further = asyncio.ensure_future(batcher.run(model.job(5)))
        await asyncio.sleep(0.01)
        model.may_read.set()
        assert await further == [10]

    run(test)


def test_what_was_accepted_is_finished_when_the_batcher_ends(run: Run) -> None:
    async def test(batcher: Batcher, model: Model) -> None:
        tasks = await queued(batcher, model, model.job(1), model.job(2))
        closing = asyncio.ensure_future(asyncio.to_thread(batcher.close))
        await asyncio.sleep(0.05)
        with pytest.raises(RefusalError):
            await batcher.run(model.job(3))
        model.may_read.set()
        await closing
        assert await asyncio.gather(*tasks) == [[0], [2], [4]]

    run(test)


def test_alike_jobs_are_finished_together(run: Run) -> None:
    finished: list[int] = []

    def finish_all(several: list[list[Any]]) -> list[Any]:
        finished.append(len(several))
        return [results[0] for results in several]

    async def test(batcher: Batcher, model: Model) -> None:
        jobs = [model.job(1), model.job(2), model.job(3)]
        for job in jobs[:2]:
            job.alike = "same"
            job.finish_all = finish_all
        tasks = await queued(batcher, model, *jobs)
        model.may_read.set()
        assert await asyncio.gather(*tasks) == [[0], [2], [4], [6]]
        assert finished == [2]

    run(test)


def test_other_requests_are_read_between_the_bits_of_a_stream(run: Run) -> None:
    order: list[Any] = []

    async def test(batcher: Batcher, model: Model) -> None:
        def bits(_: list[Any]) -> Iterator[int]:
            for bit in range(3):
                time.sleep(0.02)
                yield bit

        stream = asyncio.ensure_future(batcher.run(Stream(bits, give=order.append)))
        await asyncio.sleep(0.01)
        order.append(await batcher.run(model.job(4)))
        await stream
        assert [entry for entry in order if not isinstance(entry, list)] == [0, 1, 2]
        assert order.index([8]) < 3

    run(test)
