"""What ranking decoders share: one vector for a text, lengths and scales, and scores from dot products alone."""

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

    def pooling_needs(self) -> frozenset[str]:
        """The fields of `Hidden` that the pooling reads."""
        return frozenset(["summary"] if self.pooling == "summary" else ["states", "finish"])


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
                vector = _at(states, last)
            case "last":
                vector = _at(states, mask.long().cumsum(1).argmax(1))
            case "max":
                vector = states.masked_fill(~mask[..., None], -math.inf).amax(1)
            case "mean":
                vector = mean_of(states, mask)
            case "mean_sqrt":
                vector = mean_of(states, mask) * mask.sum(1, keepdim=True).sqrt()
            case "weighted_mean":
                weights = (mask.long().cumsum(1) * mask).to(states.dtype)  # 1, 2, 3, ... (rows, positions)
                vector = (weights / weights.sum(1, keepdim=True))[:, None].matmul(states)[:, 0]
            case _:
                assert self.query is not None
                vector = read(self.query[None], states, mask)[:, 0]
        return finished(vector, hidden)


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


ACTIVATIONS: dict[str, type[nn.Module]] = {
    "identity": nn.Identity,
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "sigmoid": nn.Sigmoid,
    "elu": nn.ELU,
    "selu": nn.SELU,
    "leaky_relu": nn.LeakyReLU,
    "mish": nn.Mish,
    "softplus": nn.Softplus,
}
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


def mean_of(states: Tensor, mask: Tensor) -> Tensor:
    """The mean of the states where `mask` is true: (rows, width)."""
    return states.masked_fill(~mask[..., None], 0.0).sum(1) / mask.sum(1, keepdim=True)


def _at(states: Tensor, places: Tensor) -> Tensor:
    """The state of each row at its place: (rows, width)."""
    return states[torch.arange(len(states), device=states.device), places]


def side_by_side(first: Hidden, second: Hidden) -> Hidden:
    """Two texts that were read each by itself, as if they had been read as one; its summary is the mean of theirs."""
    states = summary = None
    if first.states is not None and second.states is not None:
        states = torch.cat([first.states, second.states], 1)
    if first.summary is not None and second.summary is not None:
        summary = (first.summary + second.summary) / 2
    segments = [torch.full_like(one.mask, number, dtype=torch.long) for number, one in enumerate((first, second))]
    mask = torch.cat([first.mask, second.mask], 1)
    return Hidden(mask, states, summary, first.finish, segments=torch.cat(segments, 1))


def means_of_both(hidden: Hidden) -> tuple[Tensor, Tensor]:
    """The mean state of each of two texts: (rows, width) each."""
    if hidden.segments is None:
        raise ValueError("this Hidden has no segments: what was read was one text")
    states, second = hidden.need("states"), hidden.segments.bool()
    first, other = (finished(mean_of(states, hidden.mask & one), hidden) for one in (~second, second))
    return first, other


def finished(vectors: Tensor, hidden: Hidden) -> Tensor:
    """Means of states, passed through what the encoder still has for them."""
    return vectors if hidden.finish is None else hidden.finish(vectors)


def read(queries: Tensor, states: Tensor, mask: Tensor, scale: float = 1.0) -> Tensor:
    """For each query, (queries, width), the mean of the states weighted by softmax(q·h): (rows, queries, width)."""
    scores = queries @ states.transpose(1, 2) * scale  # (rows, queries, positions)
    return scores.masked_fill(~mask[:, None], -math.inf).softmax(-1) @ states


def attended(products: Tensor, mask: Tensor | None = None, beta: float = 1.0) -> Tensor:
    """Σ_i softmax_i(β s_i)·s_i over the codes, the second dimension.

    `products` is (contexts, codes, candidates), `mask` (contexts, codes) true where a code is there.
    """
    logits = products if beta == 1.0 else products * beta
    if mask is not None:
        logits = logits.masked_fill(~mask[..., None], -math.inf)
    return (logits.softmax(1) * products).sum(1)
