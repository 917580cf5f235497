"""Vectors of texts for the routes of other conventions: one vector each, and the number of tokens that were read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from starlette.requests import Request

from twofold.inputs import Input
from twofold.model import Model, Ranker
from twofold.model.representation import CANDIDATES, CONTEXTS
from twofold.serve.errors import RefusalError, too_many
from twofold.serve.jobs import Job, Reading
from twofold.serve.readings import reading
from twofold.serve.registry import ServedModel
from twofold.serve.service import Service
from twofold.serve.settings import Limits

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Embedded:
    """Vectors of texts."""

    vectors: Floats
    """(texts, width)"""
    tokens: int
    """Number of tokens that were read, special tokens included."""


def embeds(model: Model) -> bool:
    """Returns True for a model that has one vector for a text."""
    if isinstance(model, Ranker):
        return model.reads_alone and not model.joined and not model.head.several and reads_text(model.candidates)
    return reads_text(model.input) and model.input.config.texts == 1 and not model.config.input.apart


def reads_text(side: Input[Any]) -> bool:
    """Returns True for an input of one text."""
    return side.tokenizer is not None and side.config.texts == 1 and not side.config.endings


def check_texts(texts: Sequence[str], place: str, limits: Limits, blank: bool = False) -> None:
    """Refuses too many texts, none at all, and unless `blank` empty ones."""
    if not texts:
        raise RefusalError("invalid", f"{place}: empty; send at least one text", place)
    if len(texts) > limits.texts:
        raise too_many("texts", len(texts), limits.texts, place)
    if not blank and "" in texts:
        number = texts.index("")
        where = place if len(texts) == 1 else f"{place}[{number}]"
        raise RefusalError("invalid", f"{where}: an empty text; leave it out", where)


async def embedded(
    service: Service,
    request: Request,
    served: ServedModel,
    texts: Sequence[str],
    query: bool = False,
    cut: bool = True,
    place: str = "input",
) -> Embedded:
    """Vectors of texts, as documents or as queries; unless `cut`, texts beyond the limit are refused."""
    model = served.model
    if not embeds(model):
        raise RefusalError(
            "failed", f"the model {served.name} does not give one vector for a text; name another", "model"
        )
    if not isinstance(model, Ranker):
        return await _embedded_by_model(service, request, served, texts, place)
    what = CONTEXTS if query else CANDIDATES
    side = model.side(what).input
    items = await service.items(side, texts, place, cut)
    read = reading(model, what, items)
    service.check_tokens(read.lengths, place)
    kept = (await service.run(request, served, Job(lambda results: results, (read,))))[0]
    if kept.vectors.shape[1] != 1:
        said = f"the model {served.name} has {kept.vectors.shape[1]} vectors for a query; send texts as documents"
        raise RefusalError("failed", said, "model")
    return Embedded(kept.single.float().cpu().numpy(), tokens_of(side, items))


async def _embedded_by_model(
    service: Service, request: Request, served: ServedModel, texts: Sequence[str], place: str
) -> Embedded:
    """Vectors by the encoder of a model that does not rank."""
    model = served.predictor
    items = await service.items(model.input, texts, place)
    lengths = [model.input.length(item) for item in items]
    service.check_tokens(lengths, place)
    read = Reading((id(model), "encode"), texts, lengths, model.encode, np.concatenate)
    vectors = (await service.run(request, served, Job(lambda results: results, (read,))))[0]
    return Embedded(vectors, tokens_of(model.input, items))


def tokens_of(side: Input[Any], items: Sequence[Any]) -> int:
    """Number of tokens of items, special tokens included."""
    around = len(getattr(side, "frame", ()))
    return sum(side.length(item) + around for item in items)


def shortened(vectors: Floats, dimensions: int | None, place: str) -> Floats:
    """First dimensions of vectors, which then have the length 1 again."""
    width = vectors.shape[1]
    if dimensions is None or dimensions == width:
        return vectors
    if not 1 <= dimensions <= width:
        raise RefusalError("invalid", f"{place}: {dimensions}, and the model has {width}; ask for 1 to {width}", place)
    return unit(vectors[:, :dimensions])


def unit(vectors: Floats) -> Floats:
    """Vectors of length 1."""
    lengths = np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.finfo(np.float32).tiny)
    scaled: Floats = np.ascontiguousarray(vectors / lengths, dtype=np.float32)
    return scaled


def sigmoid(scores: NDArray[Any]) -> NDArray[np.float64]:
    """Scores as numbers from 0 to 1."""
    shares: NDArray[np.float64] = 0.5 * (1 + np.tanh(0.5 * scores.astype(np.float64)))
    return shares
