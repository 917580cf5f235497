"""Building blocks of many networks: embeddings with their positions, norms, and dropout that costs little on a CPU."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PositionKind = Literal["sinusoidal", "learned", "rotary", "none"]
NormKind = Literal["layer", "batch"]
LEVELS = 1 << 16
"""How finely a share of dropout is told apart on a CPU."""


def make_embedding(size: int, width: int) -> nn.Embedding:
    """A table of token vectors of expected length one."""
    embedding = nn.Embedding(size, width)
    nn.init.normal_(embedding.weight, std=width**-0.5)
    return embedding


class Embed(nn.Module):
    """Scales token vectors so that they and their positions count alike, and adds the positions."""

    def __init__(self, kind: PositionKind, width: int, limit: int, dropout: float) -> None:
        super().__init__()
        self.positions = Positions(kind, width, limit)
        self.scale, self.dropout = width**0.5, dropout

    def forward(self, vectors: Tensor, start: int = 0) -> Tensor:
        """(rows, positions, width), the first position being number `start`."""
        return dropout(self.positions(vectors * self.scale, start), self.dropout, self.training)


class Positions(nn.Module):
    """Adds to each embedded token a vector for its position; rotary and none add nothing."""

    table: Tensor

    def __init__(self, kind: PositionKind, width: int, limit: int) -> None:
        super().__init__()
        self.kind = kind
        if kind == "learned":
            self.table = nn.Parameter(torch.randn(limit, width) * width**-0.5)
        elif kind == "sinusoidal":
            self.table = nn.Buffer(sinusoids(limit, width), persistent=False)

    def forward(self, embedded: Tensor, start: int = 0) -> Tensor:
        """`embedded` is (rows, positions, width), the first position being number `start`."""
        if self.kind in ("rotary", "none"):
            return embedded
        return embedded + self.table[start : start + embedded.shape[1]]


class Rotary(nn.Module):
    """Turns pairs of a head's dimensions by an angle that grows with the position (Su et al., 2021)."""

    def __init__(self, head_width: int, limit: int) -> None:
        super().__init__()
        angles = _angles(limit, head_width)
        self.cos = nn.Buffer(angles.cos().repeat(1, 2), persistent=False)
        self.sin = nn.Buffer(angles.sin().repeat(1, 2), persistent=False)

    def forward(self, heads: Tensor, start: int = 0) -> Tensor:
        """`heads` is (rows, heads, positions, width of a head)."""
        stop = start + heads.shape[2]
        first, second = heads.chunk(2, -1)
        return heads * self.cos[start:stop] + torch.cat([-second, first], -1) * self.sin[start:stop]


def sinusoids(positions: int, width: int) -> Tensor:
    """(positions, width): sines of falling frequency, then the cosines (Vaswani et al., 2017)."""
    angles = _angles(positions, width)
    return torch.cat([angles.sin(), angles.cos()], -1)


def _angles(positions: int, width: int) -> Tensor:
    rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000.0) / width))
    return torch.arange(positions)[:, None] * rates


def make_norm(kind: NormKind, width: int) -> LayerNorm | BatchNorm:
    """A norm over the width: of each position by itself, or of each feature over all real positions."""
    return LayerNorm(width) if kind == "layer" else BatchNorm(width)


class LayerNorm(nn.LayerNorm):
    """Normalizes each position by itself; padding cannot matter."""

    def forward(self, states: Tensor, mask: Tensor | None = None) -> Tensor:
        return super().forward(states)


class BatchNorm(nn.Module):
    """Normalizes each feature over all real positions of the batch; running statistics serve when not training."""

    momentum, epsilon = 0.1, 1e-5

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.mean, self.variance = nn.Buffer(torch.zeros(width)), nn.Buffer(torch.ones(width))

    def forward(self, states: Tensor, mask: Tensor | None = None) -> Tensor:
        """`states` is (rows, positions, width), `mask` (rows, positions) true where real."""
        flat = states.flatten(0, -2)
        if not self.training:
            normed = F.batch_norm(flat, self.mean, self.variance, self.weight, self.bias, False, 0.0, self.epsilon)
            return normed.view_as(states)
        real = flat if mask is None else flat[mask.flatten()]
        variance, mean = torch.var_mean(real, 0, correction=0)
        with torch.no_grad():
            self.mean.lerp_(mean, self.momentum)
            self.variance.lerp_(variance * len(real) / max(len(real) - 1, 1), self.momentum)
        normed = (flat - mean) * torch.rsqrt(variance + self.epsilon) * self.weight + self.bias
        return normed.view_as(states)


def dropout(values: Tensor, share: float, training: bool) -> Tensor:
    """Set a random share of the values to zero and scale the others up, as `F.dropout` does."""
    if not training or not share:
        return values
    if values.device.type != "cpu" or values.numel() % 2 or round(share * LEVELS) == LEVELS:
        return F.dropout(values, share)
    return _CPUDropout.apply(values, share)  # type: ignore[no-any-return, no-untyped-call]


class _CPUDropout(torch.autograd.Function):
    """One 32-bit random number serves two values: about a third of the time of `F.dropout`."""

    @staticmethod
    def forward(ctx: Any, values: Tensor, share: float) -> Tensor:
        drawn = torch.empty(values.numel() // 2, dtype=torch.int32).random_(-(2**31), None)
        level = round(share * LEVELS)
        kept = (drawn.view(torch.int16).view(values.shape) >= level - LEVELS // 2).to(values.dtype)
        kept.mul_(LEVELS / (LEVELS - level))
        ctx.save_for_backward(kept)
        return values * kept

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        (kept,) = ctx.saved_tensors
        return gradients[0] * kept, None
