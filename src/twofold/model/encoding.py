"""Vectors of inputs, as numpy arrays or tensors: `encode`, `encode_query` and `similarity`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from twofold.decoders import Vectors
from twofold.errors import TwofoldError
from twofold.inputs import INPUT
from twofold.layers.pooling import masked_mean
from twofold.progress import Report
from twofold.types import Batch

if TYPE_CHECKING:
    from twofold.model.model import Model
    from twofold.model.ranker import Ranker

ENCODE_TOKENS = 4096
"""Batch size in tokens: rows × longest."""


@overload
def encode(
    model: Model, inputs: Any, as_tensor: Literal[False] = False, report: Report | None = None
) -> NDArray[np.float32]: ...


@overload
def encode(model: Model, inputs: Any, as_tensor: Literal[True], report: Report | None = None) -> Tensor: ...


@overload
def encode(
    model: Model, inputs: Any, as_tensor: bool, report: Report | None = None
) -> NDArray[np.float32] | Tensor: ...


@torch.no_grad()
def encode(model: Model, inputs: Any, as_tensor: bool = False, report: Report | None = None) -> Any:
    """Vectors of inputs, (inputs, width), or (width,) for a single input: the encoder's summary, or the mean of its
    states."""
    given = model.input.several(inputs)
    rows = [model.input.row(value, f"input {number}") for number, value in enumerate(given, start=1)]
    items = model.input.items(rows)
    vectors: Tensor | None = None
    with model.evaluating(), model.autocast():
        for numbers in model.input.groups(items, ENCODE_TOKENS):
            read = {INPUT: model.input.batch([items[number] for number in numbers])}
            hidden = model.encode_batch(Batch(read).to(model.device))
            if hidden.summary is None and hidden.states is None:
                raise TwofoldError("encode: the encoder of this model gives feature maps, and no vector of an input")
            pooled = masked_mean(hidden.need("states"), hidden.mask) if hidden.summary is None else hidden.summary
            if vectors is None:
                vectors = pooled.new_zeros(len(items), pooled.shape[1], dtype=torch.float32)
            vectors[numbers] = pooled.float()
            if report:
                report(len(numbers))
    if vectors is None:
        raise TwofoldError("encode: there is nothing to read; give at least one input")
    chosen = vectors[0] if model.input.is_single(inputs) else vectors
    return chosen if as_tensor else chosen.cpu().numpy()


def similarity(model: Model, queries: Any, texts: Any) -> NDArray[np.float32]:
    """Cosine similarity of the vectors of each query and each text, or whatever else the model reads: (queries,
    texts)."""
    asked, others = (_unit(encode(model, side)) for side in (queries, texts))
    scores: NDArray[np.float32] = asked @ others.T
    return scores


def _unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Vectors of length 1, (inputs, width)."""
    rows = np.atleast_2d(vectors)
    unit: NDArray[np.float32] = rows / np.maximum(
        np.linalg.norm(rows, axis=1, keepdims=True), np.finfo(np.float32).tiny
    )
    return unit


@overload
def encode_documents(
    ranker: Ranker, inputs: Any, as_tensor: Literal[False] = False, report: Report | None = None
) -> NDArray[np.float32]: ...


@overload
def encode_documents(ranker: Ranker, inputs: Any, as_tensor: Literal[True], report: Report | None = None) -> Tensor: ...


@overload
def encode_documents(
    ranker: Ranker, inputs: Any, as_tensor: bool, report: Report | None = None
) -> NDArray[np.float32] | Tensor: ...


def encode_documents(ranker: Ranker, inputs: Any, as_tensor: bool = False, report: Report | None = None) -> Any:
    """Vectors of candidates, (candidates, width), or (width,) for a single text.

    A late interaction model gives a list with the token vectors of each candidate, (vectors, width). A cross-encoder
    refuses.
    """
    _refuse_joined(ranker, "encode")
    alone = ranker.candidates.is_single(inputs)
    kept = ranker.embed_candidates([inputs] if alone else inputs, report)
    return _plain(kept, alone, as_tensor)


@overload
def encode_query(
    ranker: Ranker, inputs: Any, as_tensor: Literal[False] = False, report: Report | None = None
) -> NDArray[np.float32]: ...


@overload
def encode_query(ranker: Ranker, inputs: Any, as_tensor: Literal[True], report: Report | None = None) -> Tensor: ...


@overload
def encode_query(
    ranker: Ranker, inputs: Any, as_tensor: bool, report: Report | None = None
) -> NDArray[np.float32] | Tensor: ...


def encode_query(ranker: Ranker, inputs: Any, as_tensor: bool = False, report: Report | None = None) -> Any:
    """Vectors of contexts, with the prompt and the encoder of that side: (contexts, width), or for a poly-encoder
    (contexts, codes, width); for a single text without the first dimension.

    A late interaction model gives a list with the token vectors of each context. A cross-encoder refuses.
    """
    _refuse_joined(ranker, "encode_query")
    alone = ranker.contexts.is_single(inputs)
    kept = ranker.embed_contexts([inputs] if alone else inputs, report)
    return _plain(kept, alone, as_tensor)


def _refuse_joined(ranker: Ranker, what: str) -> None:
    if not ranker.reads_alone:
        raise TwofoldError(
            f"{what}: a cross-encoder reads both sides as one text and has no vectors; use rank or similarity"
        )


def _plain(kept: Vectors, alone: bool, as_tensor: bool) -> Any:
    """Vectors without a dimension of 1; a list where rows have different numbers of them."""
    vectors: list[Tensor] | Tensor
    if kept.mask is not None:
        vectors = [row[mask] for row, mask in zip(kept.vectors, kept.mask, strict=True)]
    else:
        vectors = kept.single if kept.vectors.shape[1] == 1 else kept.vectors
    if not as_tensor:
        array = [row.cpu().numpy() for row in vectors] if isinstance(vectors, list) else vectors.cpu().numpy()
        return array[0] if alone else array
    return vectors[0] if alone else vectors
