"""Route `/explain`: what a score or an answer consists of, as `model.explain()` gives it."""

from __future__ import annotations

import time
from typing import Any

from pydantic import Field

from twofold.model import Ranker
from twofold.model.continuing import Continuation
from twofold.model.explaining import MOST_WORDS, explain_ranking
from twofold.results.explanation import RankingExplanation
from twofold.serve.bodies import StrictBody
from twofold.serve.errors import RefusalError, too_many
from twofold.serve.figures import plain_output, shown
from twofold.serve.given import value_of
from twofold.serve.options import options_of
from twofold.serve.ranking import Asked, Cost, Json, asked, check_depths
from twofold.serve.registry import ServedModel
from twofold.serve.routes import Call, Route
from twofold.serve.service import check_count
from twofold.serve.settings import Limits

INFLUENCE_SHARE = 4
"""Part of the tokens of a request that the influence of words may take."""


class ExplainBody(StrictBody):
    """Question for an explanation: a context with candidates, or an input."""

    model: str | None = None
    context: Json | None = None
    candidates: list[Any] | None = None
    index: str | None = Field(None, description="Index whose best candidates are explained")
    k: int | None = Field(
        None, ge=1, description="Number of best candidates to explain; all of `candidates` by default"
    )
    input: Any = None
    options: dict[str, Any] = Field({})
    decoder: str | None = None
    prefix: list[str | int] = Field([], description="Tokens of a forced beginning, which a model that writes continues")
    influence: bool = Field(False, description="Adds the influence of each word: one run of the model for each")


async def explain(call: Call[ExplainBody]) -> dict[str, Any]:
    """Explains a ranking, or the answer to an input."""
    body = call.body
    if (body.context is None) == (body.input is None):
        raise RefusalError("invalid", "give either context and candidates, of a ranker, or input", "context")
    return await (_ranking(call) if body.context is not None else _answer(call))


async def _ranking(call: Call[ExplainBody]) -> dict[str, Any]:
    service, body, limits = call.service, call.body, call.service.settings.limits
    if (body.candidates is None) == (body.index is None):
        raise RefusalError("invalid", "give either candidates or an index", "candidates")
    start = time.perf_counter()
    served, candidates, given_ids = await _candidates(call)
    k = body.k or len(candidates)
    if k > limits.explained:
        raise too_many("explained candidates", k, limits.explained, "k")
    given = asked(service, served.ranker, body.context, candidates)
    if body.influence:
        lengths = sorted((_words(candidate.text) for candidate in given.candidates), reverse=True)[:k]
        asked_words = _words(given.context)
        check_influence(asked_words + sum(lengths), k * asked_words + sum(lengths), limits)
    explanation = await service.waiting(
        call.request, served.batcher.call(lambda: _explained(served.ranker, given, k, body.influence))
    )
    content = explanation.as_dict()
    for each in content["candidates"]:
        each["id"] = given_ids[each["id"]] if given_ids else given.candidates[each["id"]].id
    ranker, count = served.ranker, len(given.candidates)
    read = (1 + count if ranker.reads_alone else 0) + (count if ranker.joined else 0)
    cost = Cost((time.perf_counter() - start) * 1000, served.candidate_bytes * count, read)
    return {"explanation": content, "cost": vars(cost)}


async def _candidates(call: Call[ExplainBody]) -> tuple[ServedModel, list[Any], list[Any]]:
    """Model, candidates of the request or the best of an index, and the ids of these."""
    service, body = call.service, call.body
    if body.index is None:
        return service.registry.model(body.model, lambda model: isinstance(model, Ranker)), body.candidates or [], []
    chosen, k = service.registry.index(body.index), body.k or 10
    check_depths(service, k, ())
    served = chosen.served if body.model is None else service.registry.model(body.model)
    ranker = chosen.served.ranker
    context = ranker.check_context(value_of(ranker.contexts, body.context, "context", service.settings.limits))
    search = chosen.served.batcher.call(lambda: chosen.index.search(context, k))
    hits = await service.waiting(call.request, search)
    if not hits:
        raise RefusalError("invalid", f"the index {chosen.name} holds no candidates", "index")
    return served, [hit.text for hit in hits], [hit.id for hit in hits]


def _explained(ranker: Ranker, given: Asked, k: int, influence: bool) -> RankingExplanation:
    return explain_ranking(ranker, given.context, [each.read for each in given.candidates], k, influence)


def check_influence(words: int, tokens: int, limits: Limits) -> None:
    """Refuses more words than their influence can be computed for: each is left out of so many tokens."""
    if words > MOST_WORDS:
        raise too_many("words, each left out once", words, MOST_WORDS, "influence")
    if words * tokens > limits.tokens // INFLUENCE_SHARE:
        said = f"{words:,} words, each left out of {tokens:,} tokens, take too long; shorten the texts, or leave it out"
        raise RefusalError("too_large", f"influence: {said}", "influence")


def _words(value: Any) -> int:
    """Number of words of a text, of turns, or of two texts."""
    if isinstance(value, str):
        return len(value.split())
    return sum(map(_words, value)) if isinstance(value, list | tuple) else 0


async def _answer(call: Call[ExplainBody]) -> dict[str, Any]:
    service, body = call.service, call.body
    served = service.registry.model(body.model, lambda model: not isinstance(model, Ranker))
    model = served.predictor
    decoder = model.decoder_name(body.decoder)
    options = options_of(service, model, body.options)
    value = value_of(model.input, body.input, "input", service.settings.limits)
    check_count([value], "input", service.settings.limits)
    if body.influence:
        check_influence(_words(value), _words(value), service.settings.limits)
    start = time.perf_counter()

    def explained() -> dict[str, Any]:
        written = Continuation(model, value, body.prefix, decoder).write(options).ids if body.prefix else None
        explanation = model.explain(value, options, decoder, written=written, influence=body.influence)
        content, figure = explanation.as_dict(), shown(model, decoder, value, explanation)
        # Pixels are sent as images: as numbers in JSON they would be ten times as long.
        content.pop("confidence", None)
        return {"explanation": {**content, "output": plain_output(model, decoder, explanation)}, "shown": figure}

    content: dict[str, Any] = await service.waiting(call.request, served.batcher.call(explained))
    return content | {"cost": vars(Cost((time.perf_counter() - start) * 1000, 0, 1))}


ROUTES = (Route("/explain", explain, ExplainBody),)
