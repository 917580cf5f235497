"""Vectors of inputs, as numpy arrays or tensors: `encode`, `encode_query` and `similarity`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
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
"""Rows × longest of one batch."""


@torch.no_grad()
def encode(model: Model, inputs: Any, as_tensor: bool = False, report: Report | None = None) -> Any:
    """One vector of each input, (inputs, width): the encoder's summary, or the mean of its states; of a single input
    (width,)."""
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
    chosen = vectors if given is inputs else vectors[0]
    return chosen if as_tensor else chosen.cpu().numpy()


def encode_documents(ranker: Ranker, inputs: Any, as_tensor: bool = False, report: Report | None = None) -> Any:
    """The vectors of candidates, (candidates, width); of a single one (width,).

    A late interaction model gives a list with the token vectors of each, (vectors, width). A cross-encoder refuses.
    """
    _refuse_joined(ranker, "encode")
    alone = isinstance(inputs, str)
    kept = ranker.embed_candidates([inputs] if alone else inputs, report)
    return _plain(kept, alone, as_tensor)


def encode_query(ranker: Ranker, inputs: Any, as_tensor: bool = False, report: Report | None = None) -> Any:
    """The vectors of contexts, with the prompt and the encoder of that side: (contexts, width), of a poly-encoder
    (contexts, codes, width); of a single text without the first dimension."""
    _refuse_joined(ranker, "encode_query")
    alone = isinstance(inputs, str)
    kept = ranker.embed_contexts([inputs] if alone else inputs, report)
    return _plain(kept, alone, as_tensor)


def _refuse_joined(ranker: Ranker, what: str) -> None:
    if not ranker.reads_alone:
        raise TwofoldError(
            f"{what}: a cross-encoder reads both sides as one text and has no vectors; use rank or similarity"
        )


def _plain(kept: Vectors, alone: bool, as_tensor: bool) -> Any:
    """Vectors without a dimension of one; where rows have different numbers of them, a list."""
    vectors: list[Tensor] | Tensor
    if kept.mask is not None:
        vectors = [row[mask] for row, mask in zip(kept.vectors, kept.mask, strict=True)]
    else:
        vectors = kept.single if kept.vectors.shape[1] == 1 else kept.vectors
    if not as_tensor:
        array = [row.cpu().numpy() for row in vectors] if isinstance(vectors, list) else vectors.cpu().numpy()
        return array[0] if alone else array
    return vectors[0] if alone else vectors
