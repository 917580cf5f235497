"""Routes that change an index: candidates are added, replaced and removed, and count once they are answered for."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from pydantic import Field

from twofold.decoders import Vectors
from twofold.errors import TwofoldError
from twofold.index import Index
from twofold.model import Ranker
from twofold.model.representation import CANDIDATES
from twofold.serve.bodies import Many, StrictBody
from twofold.serve.embedding import check_texts, reads_text
from twofold.serve.errors import RefusalError, too_many
from twofold.serve.jobs import Job
from twofold.serve.ranking import Id
from twofold.serve.readings import reading
from twofold.serve.registry import ServedIndex
from twofold.serve.routes import Call, Route
from twofold.storage.locks import HeldError

T = TypeVar("T")


class PutBody(StrictBody):
    """Candidates to add, or to put in the place of those of the same id."""

    candidates: Many[dict[str, Any]] = Field(description='Objects with "id", "text" and further fields')


class DeleteBody(StrictBody):
    """Candidates to remove."""

    ids: Many[Id]


async def put(call: Call[PutBody]) -> dict[str, Any]:
    """Adds candidates and replaces those of the same id; answered once they are durable."""
    chosen, rows = _index(call), call.body.candidates
    ranker = chosen.served.ranker
    if not reads_text(ranker.candidates):
        noun = ranker.candidates.config.noun
        raise RefusalError("invalid", f"the index {chosen.name} holds {noun}s; change it with `twofold index`")
    for number, row in enumerate(rows):
        if not isinstance(row.get("id"), str | int) or isinstance(row.get("id"), bool):
            place = f"candidates[{number}].id"
            raise RefusalError("invalid", f"{place}: missing, or neither a text nor a whole number", place)
        if not isinstance(row.get("text"), str):
            place = f"candidates[{number}].text"
            raise RefusalError("invalid", f"{place}: missing, or not a text", place)
    check_texts([row["text"] for row in rows], "candidates", call.service.settings.limits)
    changed = await _write(call, chosen, lambda index: index.update(rows))
    return {"index": chosen.name, "changed": changed, "candidates": len(chosen.index)}


async def delete(call: Call[DeleteBody]) -> dict[str, Any]:
    """Removes candidates, all of them or none; answered once that is durable."""
    chosen, ids = _index(call), call.body.ids
    limits = call.service.settings.limits
    if len(ids) > limits.texts:
        raise too_many("ids", len(ids), limits.texts, "ids")
    removed = await _write(call, chosen, lambda index: index.remove(list(dict.fromkeys(ids))))
    return {"index": chosen.name, "removed": removed, "candidates": len(chosen.index)}


def _index(call: Call[Any]) -> ServedIndex:
    return call.service.registry.index(call.request.path_params["name"])


async def _write(call: Call[Any], chosen: ServedIndex, change: Callable[[Index], T]) -> T:
    """Changes an index in a thread of its own, while others search it."""
    loop, service = asyncio.get_running_loop(), call.service
    if chosen.changing >= service.settings.limits.queue:
        said = f"{chosen.changing:,} changes of the index {chosen.name} wait; try again"
        raise RefusalError("overloaded", said, headers={"Retry-After": "1"})

    def changed() -> T:
        with Index(chosen.index.folder, queued(chosen, loop)) as index:
            return change(index)

    chosen.changing += 1
    try:
        async with chosen.writing:
            return await asyncio.shield(loop.run_in_executor(service.writers, changed))
    except HeldError as error:
        said = call.service.registry.named(str(error))
        raise RefusalError("overloaded", said, headers={"Retry-After": "5"}) from None
    except TwofoldError as error:
        missing = "there is no candidate" in str(error)
        said = call.service.registry.named(str(error))
        raise RefusalError("not_found" if missing else "invalid", said, "ids" if missing else None) from None
    finally:
        chosen.changing -= 1


def queued(chosen: ServedIndex, loop: asyncio.AbstractEventLoop) -> Ranker:
    """Ranker of an index for its writer, which encodes candidates in turn with other requests."""
    ranker, batcher = chosen.served.ranker, chosen.served.batcher

    def embed(texts: Sequence[Any], report: Callable[[int], object] | None = None) -> Vectors:
        job = Job(lambda results: results[0], (reading(ranker, CANDIDATES, ranker.candidates.items_of(texts)),))
        vectors: Vectors = asyncio.run_coroutine_threadsafe(batcher.run(job), loop).result()
        if report:
            report(len(texts))
        return vectors

    writer = copy.copy(ranker)
    vars(writer)["embed_candidates"] = embed
    return writer


ROUTES = (
    Route("/indexes/{name}/candidates", put, PutBody, method="PUT"),
    Route("/indexes/{name}/candidates", delete, DeleteBody, method="DELETE"),
)
