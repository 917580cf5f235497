"""Records attention weights and the steps of beam search while a model is explained; nothing otherwise."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # tokenizers, results and the index work without torch
    from torch import Tensor

AttentionKind = Literal["self", "cross"]


@dataclass(frozen=True)
class Branch:
    """Hypothesis of a beam, extended by one token."""

    parent: int
    """Index of the hypothesis that it extends, among the open ones of the previous step."""
    token: int
    score: float
    """Log-probability of the hypothesis."""


AttentionRecord = list[tuple[AttentionKind, "Tensor"]]
"""Attention weights (rows, heads, queries, keys) of each layer, in the order of computation."""
BeamRecord = list[list[Branch]]
"""Hypotheses of each step of a beam search over one row: open ones first, then finished ones."""
_ATTENTION: ContextVar[AttentionRecord | None] = ContextVar("attention", default=None)
_BEAM: ContextVar[BeamRecord | None] = ContextVar("beam", default=None)


@contextmanager
def recorded_attention() -> Iterator[AttentionRecord]:
    """Records the weights of all attention layers that run inside the block, in this thread."""
    record: AttentionRecord = []
    token = _ATTENTION.set(record)
    try:
        yield record
    finally:
        _ATTENTION.reset(token)


@contextmanager
def recorded_beam() -> Iterator[BeamRecord]:
    """Records the beam search that runs inside the block, in this thread."""
    record: BeamRecord = []
    token = _BEAM.set(record)
    try:
        yield record
    finally:
        _BEAM.reset(token)


def records_attention() -> bool:
    """Returns True if attention layers must compute their weights."""
    return _ATTENTION.get() is not None


def record_attention(kind: AttentionKind, weights: Tensor | None) -> None:
    """Records the attention weights (rows, heads, queries, keys) of a layer."""
    record = _ATTENTION.get()
    if record is not None and weights is not None:
        record.append((kind, weights.detach()))


def record_beam(branches: Sequence[Branch]) -> None:
    """Records one step of a beam search."""
    record = _BEAM.get()
    if record is not None:
        record.append(list(branches))
