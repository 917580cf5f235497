"""Service: what is served, the settings, and how long a request may take."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from starlette.requests import Request

from twofold.errors import TwofoldError
from twofold.inputs import INPUT, Input
from twofold.serve.errors import RefusalError, too_many
from twofold.serve.jobs import Job
from twofold.serve.measuring import Measures
from twofold.serve.memory import Memory
from twofold.serve.registry import Registry, ServedModel
from twofold.serve.settings import Limits, Settings

T = TypeVar("T")
AT_ONCE = 20_000
"""Number of characters up to which texts are tokenized in the event loop: a thread would take longer."""

FILE_CHARACTERS = 2_500
"""Number of characters that an image or a sound counts as."""


class Service:
    """All that handlers share."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.routes: tuple[Any, ...] = ()
        """All routes, for their description."""
        self.measures = Measures()
        self.registry = Registry(settings, self.measures)
        self.ready = False
        self.failure: TwofoldError | None = None
        """Reason for which the service cannot start."""
        self.memory = Memory()
        self.bytes_held = 0
        """Bytes of the bodies that are held."""
        self._helpers = ThreadPoolExecutor(2, "twofold-helper")
        self.writers = ThreadPoolExecutor(2, "twofold-writer")

    def start(self) -> None:
        """Starts the threads of the models in the running event loop."""
        loop = asyncio.get_running_loop()
        for batcher in self.registry.batchers:
            batcher.start(loop)

    async def stop(self) -> None:
        """Ends the threads after all that was accepted."""
        self.ready = False
        for batcher in self.registry.batchers:
            await asyncio.to_thread(batcher.close)
        self._helpers.shutdown()
        self.writers.shutdown()
        for served in self.registry.indexes.values():
            served.index.close()

    async def items(self, side: Input[Any], values: Sequence[Any], place: str, cut: bool = True) -> list[Any]:
        """Turns texts, or whatever else a side reads, into items; unless `cut`, texts beyond its limit are refused."""
        check_count(values, place, self.settings.limits)
        size = sum(characters_of(value) for value in values)

        def items() -> list[Any]:
            if cut:
                return side.items_of(values)
            encoded = side.encode_values(INPUT, values)
            if encoded.cut:
                said = f"{place}: {encoded.cut} are longer than {side.limit} tokens; shorten them, or set truncate"
                raise RefusalError("too_large", said, place)
            return list(encoded.ids)

        if size <= AT_ONCE:
            return items()
        return await asyncio.get_running_loop().run_in_executor(self._helpers, items)

    def check_tokens(self, lengths: Sequence[int], place: str) -> None:
        """Refuses more tokens than a request may have."""
        if (count := sum(lengths)) > self.settings.limits.tokens:
            raise too_many("tokens", count, self.settings.limits.tokens, place)

    async def run(self, request: Request, served: ServedModel, job: Job) -> Any:
        """Runs a job while its client waits, within the time limit."""
        return await self.waiting(request, served.batcher.run(job))

    async def waiting(self, request: Request, work: Awaitable[T]) -> T:
        """Awaits work; it is cancelled when the client goes away, or when it takes too long."""
        task = asyncio.ensure_future(work)
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            limit = self.settings.limits.seconds
            await asyncio.wait((task, gone), timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            if gone.done():
                raise RefusalError("slow", "the client went away")
            said = f"the answer takes longer than {limit:g} s; send less at a time, or try again later"
            raise RefusalError("overloaded", said, headers={"Retry-After": "1"})
        finally:
            task.cancel()
            gone.cancel()


def check_count(values: Sequence[Any], place: str, limits: Limits) -> None:
    """Refuses too many texts, and texts that are too long."""
    if len(values) > limits.texts:
        raise too_many("texts", len(values), limits.texts, place)
    for number, value in enumerate(values):
        if (size := characters_of(value)) > limits.characters:
            where = place if len(values) == 1 else f"{place}[{number}]"
            raise too_many("characters", size, limits.characters, where)


def characters_of(value: Any) -> int:
    """Number of characters of a text or of the turns of a dialogue; a file counts as a short text."""
    if isinstance(value, str):
        return len(value)
    return sum(map(characters_of, value)) if isinstance(value, list | tuple) else FILE_CHARACTERS


class Held:
    """Bytes of a request's body, which count as long as it is answered."""

    def __init__(self, service: Service) -> None:
        self._service, self.size = service, 0

    def take(self, size: int) -> None:
        """Counts further bytes; refuses them if all requests together hold too many."""
        service, most = self._service, self._service.settings.limits.bodies
        if service.bytes_held + size > most and service.bytes_held > self.size:
            raise RefusalError("overloaded", "many large requests are open; try again", headers={"Retry-After": "1"})
        service.bytes_held += size
        self.size += size

    def release(self) -> None:
        """Ends the counting; memory of a large request is given back."""
        self._service.bytes_held -= self.size
        self._service.memory.after(self.size)


async def _disconnected(request: Request) -> None:
    """Returns once the client has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
