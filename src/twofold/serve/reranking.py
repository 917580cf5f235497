"""Scores of texts for a query, for the routes of other conventions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.requests import Request

from twofold.serve.embedding import tokens_of
from twofold.serve.readings import scoring
from twofold.serve.registry import ServedModel
from twofold.serve.service import Service


@dataclass(frozen=True)
class Reranked:
    """Scores of texts."""

    scores: NDArray[np.float32]
    """(texts,), as the model gives them"""
    joined: bool
    """True if query and text were read as one, so that the score is a logit."""
    tokens: int


async def reranked(
    service: Service,
    request: Request,
    served: ServedModel,
    query: str,
    texts: Sequence[str],
    most_tokens: int | None = None,
    cut: bool = True,
    places: tuple[str, str] = ("query", "documents"),
) -> Reranked:
    """Scores texts for a query; texts are cut to `most_tokens`, or refused beyond the model's limit unless `cut`."""
    ranker = served.ranker
    queries = await service.items(ranker.contexts, [query], places[0], cut)
    items: list[Any] = await service.items(ranker.candidates, texts, places[1], cut)
    if most_tokens is not None:
        items = [item[:most_tokens] for item in items]
    job = scoring(ranker, queries, items)
    for reading in job.readings:
        service.check_tokens(reading.lengths, places[1])
    scores = (await service.run(request, served, job))[0]
    times = len(items) if ranker.joined else 1
    tokens = times * tokens_of(ranker.contexts, queries) + tokens_of(ranker.candidates, items)
    return Reranked(scores, ranker.joined, tokens)
