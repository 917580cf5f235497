"""Pooling of token states to one vector, and the vector layers of rankers: dense layers and normalization."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from twofold.errors import TwofoldError, did_you_mean
from twofold.types import Hidden, HiddenSpec

PoolingKind = Literal["first", "last", "mean", "mean_sqrt", "weighted_mean", "max", "attention", "summary"]
BLOCK = 1 << 22
"""Maximum number of dot products (contexts × codes × candidates) in memory at a time."""


class Pooling(nn.Module):
    """Pools token states to one vector: first, last, mean, maximum, or attention with one trainable query."""

    def __init__(self, kind: PoolingKind, spec: HiddenSpec) -> None:
        super().__init__()
        self.kind, self.causal = kind, spec.causal
        self.width = spec.width("summary" if kind == "summary" else "states")
        self.query = nn.Parameter(torch.zeros(self.width)) if kind == "attention" else None

    def forward(self, hidden: Hidden) -> Tensor:
        """Pooled vectors (rows, width)."""
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

    def elsewhere(self) -> str:
        """Returns the kind as it is without regard to the encoder; poolings of one model alone are refused."""
        if self.query is not None or self.kind == "summary":
            raise TwofoldError(f"decoder.pooling: sentence-transformers has no '{self.kind}'; export it --to onnx")
        return "last" if self.kind == "first" and self.causal else self.kind


def pooling_needs(kind: str) -> frozenset[str]:
    """Returns the fields of `Hidden` that a pooling needs."""
    return frozenset(["summary"] if kind == "summary" else ["states", "finish"])


def masked_mean(states: Tensor, mask: Tensor) -> Tensor:
    """Mean of the states where `mask` is true; (rows, width)."""
    return states.masked_fill(~mask[..., None], 0.0).sum(1) / mask.sum(1, keepdim=True)


def masked_max(states: Tensor, mask: Tensor) -> Tensor:
    """Maximum of the states where `mask` is true; (rows, width)."""
    return states.masked_fill(~mask[..., None], -math.inf).amax(1)


def state_at(states: Tensor, places: Tensor) -> Tensor:
    """State of each row at the given position; (rows, width)."""
    return states[torch.arange(len(states), device=states.device), places]


def means_of_both(hidden: Hidden) -> tuple[Tensor, Tensor]:
    """Mean state of each of two joined texts; (rows, width) each."""
    if hidden.segments is None:
        raise ValueError("these hidden states have no segments: the input was one text")
    states, second = hidden.need("states"), hidden.segments.bool()
    former, latter = (finished(masked_mean(states, hidden.mask & text), hidden) for text in (~second, second))
    return former, latter


def finished(vectors: Tensor, hidden: Hidden) -> Tensor:
    """Passes means of states through the encoder's final layer, if it has one."""
    return vectors if hidden.finish is None else hidden.finish(vectors)


def attention_pooled(queries: Tensor, states: Tensor, mask: Tensor, scale: float = 1.0) -> Tensor:
    """Attention pooling: for each query (queries, width) the mean of the states weighted by softmax(q·h); (rows,
    queries, width)."""
    return attention_weights(queries, states, mask, scale) @ states


def attention_weights(queries: Tensor, states: Tensor, mask: Tensor, scale: float = 1.0) -> Tensor:
    """Attention weights softmax(q·h) of each query (queries, width) over the states; (rows, queries, positions)."""
    scores = queries @ states.transpose(1, 2) * scale
    return scores.masked_fill(~mask[:, None], -math.inf).softmax(-1)


@dataclass(frozen=True)
class VectorSettings:
    """Settings of a text's embedding: pooling and normalization."""

    pooling: PoolingKind = "mean"
    """Pooling of token states to one vector: `first` (for causal encoders the last), `last`, `mean`, `mean_sqrt` (sum
    divided by the root of the length), `weighted_mean` (weighted by position), `max`, `attention` (one trainable
    query), or `summary`, the encoder's own."""
    normalize: Literal["none", "candidates", "both"] = "both"
    """Sides whose embeddings are L2-normalized (cosine similarity); normalized candidates are then multiplied by
    `scale`."""
    scale: float = 20.0
    """Initial factor of normalized candidate embeddings (inverse temperature of the softmax)."""
    learn_scale: bool = True
    """Learns the scale in training."""
    output_scale: float = 1.0
    """Factor of the scores in the loss only; it does not change the ranking scores."""

    def __post_init__(self) -> None:
        if self.scale <= 0 or self.output_scale <= 0:
            raise ValueError("scale and output_scale must be above 0")

    def needs(self) -> frozenset[str]:
        return pooling_needs(self.pooling)


class CandidateVector(nn.Module):
    """Computes a candidate's embedding as it is stored: pooled, reduced, and normalized to length `scale` if set."""

    def __init__(self, settings: VectorSettings, spec: HiddenSpec) -> None:
        super().__init__()
        self.pool = Pooling(settings.pooling, spec)
        self.normalize = settings.normalize != "none"
        learns = settings.learn_scale and self.normalize
        self.log_scale = nn.Parameter(torch.tensor(math.log(settings.scale))) if learns else None
        self.scale = settings.scale

    def forward(self, hidden: Hidden) -> Tensor:
        """Candidate embeddings (rows, width)."""
        return self.lengthen(self.pool(hidden))

    def lengthen(self, vectors: Tensor) -> Tensor:
        """Scales embeddings to the length that is stored."""
        if not self.normalize:
            return vectors
        scale = self.scale if self.log_scale is None else self.log_scale.exp()
        return F.normalize(vectors, dim=-1) * scale


ACTIVATIONS: dict[str, type[nn.Module]] = {"identity": nn.Identity, "tanh": nn.Tanh, "relu": nn.ReLU, "gelu": nn.GELU}
ACTIVATIONS |= {"silu": nn.SiLU, "sigmoid": nn.Sigmoid, "elu": nn.ELU, "selu": nn.SELU}
ACTIVATIONS |= {"leaky_relu": nn.LeakyReLU, "mish": nn.Mish, "softplus": nn.Softplus}
"""Activations available for dense layers."""


@dataclass(frozen=True)
class Dense:
    """Dense layer over a text's embedding."""

    width: int
    """Output width."""
    activation: str = "tanh"
    """Activation: identity, tanh, relu, gelu, silu, sigmoid, elu, selu, leaky_relu, mish or softplus."""
    bias: bool = True
    """Adds a trainable bias."""

    def __post_init__(self) -> None:
        if self.width < 1:
            raise ValueError(f"width must be at least 1, not {self.width}")
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"activation: {did_you_mean(self.activation, ACTIVATIONS)}")


@dataclass(frozen=True)
class SentenceModules:
    """Layers over the states of a text that sentence-transformers knows too."""

    pooling: str
    dense: tuple[tuple[nn.Linear, nn.Module], ...] = ()
    """Dense layers, each with its activation."""
    normalize: bool = False
    cosine: bool = False
    """True if scores are cosines, False if they are dot products."""
    scores: nn.Linear | None = None
    """Layer that turns the pooled vector of a joined text into its score."""


def dense_layers(layers: Sequence[Dense], width: int) -> nn.Sequential:
    """Stacks dense layers; without any, embeddings of `width` pass unchanged."""
    modules: list[nn.Module] = []
    for layer in layers:
        modules += [nn.Linear(width, layer.width, bias=layer.bias), ACTIVATIONS[layer.activation]()]
        width = layer.width
    return nn.Sequential(*modules)
