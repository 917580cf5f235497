"""One vector for a text: the first or last state, means, maxima, or attention with one trainable query."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from twofold.types import Hidden, HiddenSpec

PoolingKind = Literal["first", "last", "mean", "mean_sqrt", "weighted_mean", "max", "attention", "summary"]


class Pooling(nn.Module):
    """A text's states as one vector."""

    def __init__(self, kind: PoolingKind, spec: HiddenSpec) -> None:
        super().__init__()
        self.kind, self.causal = kind, spec.causal
        self.query = nn.Parameter(torch.zeros(spec.width("states"))) if kind == "attention" else None

    def forward(self, hidden: Hidden) -> Tensor:
        """(rows, width)"""
        if self.kind == "summary":
            return hidden.need("summary")
        states, mask = hidden.need("states"), hidden.mask
        match self.kind:
            case "first":
                last = mask.sum(1) - 1 if self.causal else mask.new_zeros(len(mask), dtype=torch.long)
                vector = state_at(states, last)
            case "last":
                vector = state_at(states, mask.long().cumsum(1).argmax(1))
            case "max":
                vector = states.masked_fill(~mask[..., None], -math.inf).amax(1)
            case "mean":
                vector = masked_mean(states, mask)
            case "mean_sqrt":
                vector = masked_mean(states, mask) * mask.sum(1, keepdim=True).sqrt()
            case "weighted_mean":
                weights = (mask.long().cumsum(1) * mask).to(states.dtype)  # 1, 2, 3, ... (rows, positions)
                vector = (weights / weights.sum(1, keepdim=True))[:, None].matmul(states)[:, 0]
            case _:
                assert self.query is not None
                vector = attention_pooled(self.query[None], states, mask)[:, 0]
        return finished(vector, hidden)


def masked_mean(states: Tensor, mask: Tensor) -> Tensor:
    """The mean of the states where `mask` is true: (rows, width)."""
    return states.masked_fill(~mask[..., None], 0.0).sum(1) / mask.sum(1, keepdim=True)


def state_at(states: Tensor, places: Tensor) -> Tensor:
    """The state of each row at its place: (rows, width)."""
    return states[torch.arange(len(states), device=states.device), places]


def means_of_both(hidden: Hidden) -> tuple[Tensor, Tensor]:
    """The mean state of each of two texts: (rows, width) each."""
    if hidden.segments is None:
        raise ValueError("this Hidden has no segments: what was read was one text")
    states, second = hidden.need("states"), hidden.segments.bool()
    first, other = (finished(masked_mean(states, hidden.mask & one), hidden) for one in (~second, second))
    return first, other


def finished(vectors: Tensor, hidden: Hidden) -> Tensor:
    """Means of states, passed through what the encoder still has for them."""
    return vectors if hidden.finish is None else hidden.finish(vectors)


def attention_pooled(queries: Tensor, states: Tensor, mask: Tensor, scale: float = 1.0) -> Tensor:
    """For each query, (queries, width), the mean of the states weighted by softmax(q·h): (rows, queries, width)."""
    scores = queries @ states.transpose(1, 2) * scale  # (rows, queries, positions)
    return scores.masked_fill(~mask[:, None], -math.inf).softmax(-1) @ states
