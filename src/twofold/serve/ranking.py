"""Routes that rank: `/rank` candidates of the request, `/search` an index."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from pydantic import Field
from starlette.requests import Request

from twofold.data.candidates import Candidate, with_ids
from twofold.data.top_k import best, first_of_equal
from twofold.model import Ranker
from twofold.model.representation import CONTEXTS
from twofold.results import Hit, Hits
from twofold.serve.bodies import Many, StrictBody
from twofold.serve.errors import RefusalError, too_many
from twofold.serve.given import value_of
from twofold.serve.jobs import Job
from twofold.serve.readings import joined, reading, scoring
from twofold.serve.registry import ServedIndex, ServedModel
from twofold.serve.routes import Call, Route
from twofold.serve.service import Service
from twofold.serve.settings import Limits

LONGEST_FILTER, MOST_EXCLUDED, MOST_STAGES = 4_096, 10_000, 8
Id = str | int
Json = str | list[Any] | dict[str, Any]
"""Text, turns of a dialogue, or an object such as {"image": "<base64>"}."""


class RankBody(StrictBody):
    """Candidates to rank for a context."""

    model: str | None = None
    context: Json = Field(description='Text, a list of turns, oldest first, or {"image": "<base64>"}')
    candidates: list[Any] = Field(description='Texts, or objects with "text" and "id"')
    k: int = Field(10, ge=1)
    then: list[tuple[str, int]] = Field(
        [], max_length=MOST_STAGES, description="Later stages: rankers, each with its depth"
    )


class SearchBody(StrictBody):
    """Search of an index."""

    index: str | None = None
    context: Json
    k: int = Field(10, ge=1)
    filter: str | None = Field(None, max_length=LONGEST_FILTER, description="Such as lang = 'ko' and year >= 2020")
    exclude: Many[Id] = Field([], max_length=MOST_EXCLUDED, description="Ids to leave out")
    then: list[tuple[str, int]] = Field([], max_length=MOST_STAGES)
    mode: Literal["exact", "fast"] = "exact"
    certificate: bool = False


@dataclass(frozen=True)
class Cost:
    """Cost of an answer."""

    milliseconds: float
    bytes_cached: int
    """Bytes of the candidates' vectors, which can be computed once."""
    texts_read: int
    """Number of texts, or of joined pairs, that encoders read for this answer."""


@dataclass(frozen=True)
class Asked:
    """Context and candidates, as a ranker reads them."""

    context: Any
    candidates: Sequence[Candidate]


def check_depths(service: Service, k: int, then: Sequence[tuple[str, int]]) -> None:
    """Refuses a number of hits beyond the limit."""
    for number, depth in enumerate([k, *(depth for _, depth in then)]):
        place = "k" if not number else f"then[{number - 1}][1]"
        if depth > service.settings.limits.hits:
            raise too_many("hits", depth, service.settings.limits.hits, place)
        if depth < 1:
            raise RefusalError("invalid", f"{place}: {depth}; give at least 1", place)


def asked(service: Service, ranker: Ranker, context: Any, candidates: Sequence[Any]) -> Asked:
    """Checks a context and candidates."""
    limits = service.settings.limits
    if not candidates:
        raise RefusalError("invalid", "candidates: empty; give at least one", "candidates")
    if len(candidates) > limits.texts:
        raise too_many("candidates", len(candidates), limits.texts, "candidates")
    given = ranker.check_context(value_of(ranker.contexts, context, "context", limits))
    rows = [_row(ranker, candidate, f"candidates[{number}]", limits) for number, candidate in enumerate(candidates)]
    return Asked(given, with_ids(list(ranker.candidates.candidates(rows, blank=True))))


def _row(ranker: Ranker, given: Any, place: str, limits: Limits) -> Any:
    """Candidate as a text, a row with `text`, or a file."""
    if isinstance(given, str) or (isinstance(given, dict) and isinstance(given.get("text"), str)):
        return given
    if not isinstance(given, dict):
        raise RefusalError("invalid", f'{place}: neither a text nor an object with "text"', place)
    return value_of(ranker.candidates, given, place, limits)


async def ranked(service: Service, request: Request, served: ServedModel, given: Asked, k: int) -> tuple[Hits, Cost]:
    """Ranks candidates: the k best, best first; equal scores keep the order of the candidates."""
    start, ranker = time.perf_counter(), served.ranker
    texts = [candidate.text for candidate in given.candidates]
    contexts = await service.items(ranker.contexts, [given.context], "context")
    candidates = await service.items(ranker.candidates, [each.read for each in given.candidates], "candidates")
    job = scoring(ranker, contexts, candidates)
    for part in job.readings:
        service.check_tokens(part.lengths, "candidates")
    scores: np.ndarray[Any, Any] = (await service.run(request, served, job))[0]
    scores = scores[first_of_equal(texts)]
    hits = [Hit(texts[number], float(scores[number]), given.candidates[number].id) for number in best(scores, k)]
    milliseconds = (time.perf_counter() - start) * 1000
    read = (1 + len(texts) if ranker.reads_alone else 0) + (len(texts) if ranker.joined else 0)
    return Hits(hits, True, milliseconds), Cost(milliseconds, served.candidate_bytes * len(texts), read)


async def cascaded(
    service: Service, request: Request, context: Any, hits: Hits, then: Sequence[tuple[str, int]], k: int, among: int
) -> tuple[Hits, int]:
    """Re-ranks hits by the later stages of a cascade; returns the number of texts that these read as well."""
    start, read, stored = time.perf_counter(), 0, {hit.id: hit for hit in hits}
    depths = [*(depth for _, depth in then), k]
    exact = hits.exact and all(depth >= among for depth in depths[:-1]) and not any(hit.passage for hit in hits)
    for (name, _), depth in zip(then, depths[1:], strict=True):
        if not hits:
            break
        served = service.registry.model(name)
        rows = [{"text": hit.text, "id": hit.id} for hit in hits]
        hits, cost = await ranked(service, request, served, asked(service, served.ranker, context, rows), depth)
        read += cost.texts_read
    kept = [Hit(hit.text, hit.score, hit.id, stored[hit.id].fields, stored[hit.id].passage) for hit in hits]
    return Hits(kept, exact, (time.perf_counter() - start) * 1000), read


def as_hits(hits: Hits) -> list[dict[str, Any]]:
    """JSON of hits, with their ranks from 1."""
    shown = []
    for rank, hit in enumerate(hits, start=1):
        content: dict[str, Any] = {"id": hit.id, "text": hit.text, "score": hit.score, "rank": rank}
        content |= {"fields": dict(hit.fields)} if hit.fields else {}
        shown.append(content | ({"passage": vars(hit.passage)} if hit.passage else {}))
    return shown


async def rank(call: Call[RankBody]) -> dict[str, Any]:
    """Ranks candidates for a context."""
    service, body = call.service, call.body
    check_depths(service, body.k, body.then)
    served = service.registry.model(body.model, lambda model: isinstance(model, Ranker))
    given = asked(service, served.ranker, body.context, body.candidates)
    depth = body.then[0][1] if body.then else body.k
    hits, cost = await ranked(service, call.request, served, given, depth)
    milliseconds, read = hits.milliseconds, cost.texts_read
    if body.then:
        count = len(given.candidates)
        hits, more = await cascaded(service, call.request, body.context, hits, body.then, body.k, count)
        milliseconds, read = milliseconds + hits.milliseconds, read + more
    cost = Cost(milliseconds, cost.bytes_cached, read)
    return {"hits": as_hits(hits), "exact": hits.exact, "milliseconds": milliseconds, "cost": vars(cost)}


async def search(call: Call[SearchBody]) -> dict[str, Any]:
    """Searches an index: the k best of all candidates, proven."""
    service, body, start = call.service, call.body, time.perf_counter()
    check_depths(service, body.k, body.then)
    chosen = service.registry.index(body.index)
    ranker, index = chosen.served.ranker, chosen.index
    context = ranker.check_context(value_of(ranker.contexts, body.context, "context", service.settings.limits))
    depth, content = body.then[0][1] if body.then else body.k, {}
    if body.certificate:
        explain = partial(index.explain, context, depth, body.filter, body.exclude)
        hits, certificate = await service.waiting(call.request, chosen.served.batcher.call(explain))
        content["certificate"] = certificate.as_dict()
    else:
        items = await service.items(ranker.contexts, [context], "context")
        hits = await service.run(call.request, chosen.served, searching(chosen, items, depth, body))
    among, read = chosen.count(), 1
    if body.then:
        among = len(index)
        hits, more = await cascaded(service, call.request, body.context, hits, body.then, body.k, among)
        read += more
    milliseconds = (time.perf_counter() - start) * 1000
    cost = Cost(milliseconds, chosen.served.candidate_bytes * among, read)
    return {"hits": as_hits(hits), "exact": hits.exact, "milliseconds": milliseconds, "cost": vars(cost), **content}


def searching(chosen: ServedIndex, items: Sequence[Any], k: int, body: SearchBody) -> Job:
    """Searches for a context; contexts of other requests of the same settings read the index together with it."""
    index, ranker = chosen.index, chosen.served.ranker
    how = (k, body.filter, tuple(body.exclude), body.mode)

    def search(results: list[Any]) -> Hits:
        return index.search_embedded(results[0], *how)[0]

    def search_all(several: list[list[Any]]) -> list[Hits]:
        return index.search_embedded(joined([results[0] for results in several]), *how)

    return Job(search, (reading(ranker, CONTEXTS, items),), (chosen.name, *how), search_all)


ROUTES = (Route("/rank", rank, RankBody), Route("/search", search, SearchBody))
