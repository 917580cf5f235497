"""One vector for a text, and what rankers make of such vectors: lengths and dense layers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from twofold.errors import did_you_mean
from twofold.types import Hidden, HiddenSpec

PoolingKind = Literal["first", "last", "mean", "mean_sqrt", "weighted_mean", "max", "attention", "summary"]
BLOCK = 1 << 22
"""The most dot products, contexts × codes × candidates, that are held at a time."""


class Pooling(nn.Module):
    """A text's states as one vector: the first or last, means, maxima, or attention with one trainable query."""

    def __init__(self, kind: PoolingKind, spec: HiddenSpec) -> None:
        super().__init__()
        self.kind, self.causal = kind, spec.causal
        self.width = spec.width("summary" if kind == "summary" else "states")
        self.query = nn.Parameter(torch.zeros(self.width)) if kind == "attention" else None

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
                vector = masked_max(states, mask)
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


def pooling_needs(kind: str) -> frozenset[str]:
    """The fields of `Hidden` that a pooling reads."""
    return frozenset(["summary"] if kind == "summary" else ["states", "finish"])


def masked_mean(states: Tensor, mask: Tensor) -> Tensor:
    """The mean of the states where `mask` is true: (rows, width)."""
    return states.masked_fill(~mask[..., None], 0.0).sum(1) / mask.sum(1, keepdim=True)


def masked_max(states: Tensor, mask: Tensor) -> Tensor:
    """The largest values of the states where `mask` is true: (rows, width)."""
    return states.masked_fill(~mask[..., None], -math.inf).amax(1)


def state_at(states: Tensor, places: Tensor) -> Tensor:
    """The state of each row at its place: (rows, width)."""
    return states[torch.arange(len(states), device=states.device), places]


def means_of_both(hidden: Hidden) -> tuple[Tensor, Tensor]:
    """The mean state of each of two texts: (rows, width) each."""
    if hidden.segments is None:
        raise ValueError("this Hidden has no segments: what was read was one text")
    states, second = hidden.need("states"), hidden.segments.bool()
    first, other = (finished(masked_mean(states, hidden.mask & text), hidden) for text in (~second, second))
    return first, other


def finished(vectors: Tensor, hidden: Hidden) -> Tensor:
    """Means of states, passed through what the encoder still has for them."""
    return vectors if hidden.finish is None else hidden.finish(vectors)


def attention_pooled(queries: Tensor, states: Tensor, mask: Tensor, scale: float = 1.0) -> Tensor:
    """For each query, (queries, width), the mean of the states weighted by softmax(q·h): (rows, queries, width)."""
    scores = queries @ states.transpose(1, 2) * scale  # (rows, queries, positions)
    return scores.masked_fill(~mask[:, None], -math.inf).softmax(-1) @ states


@dataclass(frozen=True)
class VectorSettings:
    """How a text becomes one vector, and how long that vector is."""

    pooling: PoolingKind = "mean"
    """One vector out of the states: the first (the last of a causal encoder), the last, their mean, their sum over the
    root of their number, their mean weighted by position, their largest values, their mean weighted by one trainable
    query, or the encoder's own summary."""
    normalize: Literal["none", "candidates", "both"] = "both"
    """Which side's vectors are brought to length one; candidates are then multiplied by `scale`."""
    scale: float = 20.0
    """What normalized candidates are multiplied by, at the start of a training."""
    learn_scale: bool = True
    """Whether the scale learns."""
    output_scale: float = 1.0
    """What scores are multiplied by in the loss, and only there."""

    def __post_init__(self) -> None:
        if self.scale <= 0 or self.output_scale <= 0:
            raise ValueError("scale and output_scale must be above 0")

    def needs(self) -> frozenset[str]:
        return pooling_needs(self.pooling)


class CandidateVector(nn.Module):
    """A candidate's states as the vector that is stored: reduced, brought to length σ if so set."""

    def __init__(self, settings: VectorSettings, spec: HiddenSpec) -> None:
        super().__init__()
        self.pool = Pooling(settings.pooling, spec)
        self.normalize = settings.normalize != "none"
        learns = settings.learn_scale and self.normalize
        self.log_scale = nn.Parameter(torch.tensor(math.log(settings.scale))) if learns else None
        self.scale = settings.scale

    def forward(self, hidden: Hidden) -> Tensor:
        """(rows, width)"""
        return self.lengthen(self.pool(hidden))

    def lengthen(self, vectors: Tensor) -> Tensor:
        """Reduced vectors at the length that is stored."""
        if not self.normalize:
            return vectors
        scale = self.scale if self.log_scale is None else self.log_scale.exp()
        return F.normalize(vectors, dim=-1) * scale


ACTIVATIONS: dict[str, type[nn.Module]] = {"identity": nn.Identity, "tanh": nn.Tanh, "relu": nn.ReLU, "gelu": nn.GELU}
ACTIVATIONS |= {"silu": nn.SiLU, "sigmoid": nn.Sigmoid, "elu": nn.ELU, "selu": nn.SELU}
ACTIVATIONS |= {"leaky_relu": nn.LeakyReLU, "mish": nn.Mish, "softplus": nn.Softplus}
"""What may follow a dense layer, by name."""


@dataclass(frozen=True)
class Dense:
    """One dense layer over a text's vector."""

    width: int
    """The width of the vector that it makes."""
    activation: str = "tanh"
    """identity, tanh, relu, gelu, silu, sigmoid, elu, selu, leaky_relu, mish or softplus."""
    bias: bool = True
    """Whether it adds a trainable vector."""

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ValueError(f"width must be at least 1, not {self.width}")
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"activation: {did_you_mean(self.activation, ACTIVATIONS)}")


def dense_layers(layers: Sequence[Dense], width: int) -> nn.Sequential:
    """The layers one behind the other; without any, vectors of `width` pass as they are."""
    modules: list[nn.Module] = []
    for layer in layers:
        modules += [nn.Linear(width, layer.width, bias=layer.bias), ACTIVATIONS[layer.activation]()]
        width = layer.width
    return nn.Sequential(*modules)
