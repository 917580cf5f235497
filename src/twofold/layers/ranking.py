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
from twofold.layers.pooling import Pooling, PoolingKind
from twofold.types import Hidden, HiddenSpec

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


def attended(products: Tensor, mask: Tensor | None = None, beta: float = 1.0) -> Tensor:
    """Σ_i softmax_i(β s_i)·s_i over the codes, the second dimension.

    `products` is (contexts, codes, candidates), `mask` (contexts, codes) true where a code is there.
    """
    logits = products if beta == 1.0 else products * beta
    if mask is not None:
        logits = logits.masked_fill(~mask[..., None], -math.inf)
    return (logits.softmax(1) * products).sum(1)
