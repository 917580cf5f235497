"""Building blocks: embeddings with positional encodings, norms, and fast dropout on CPUs."""

from __future__ import annotations

import math
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from twofold.layers.mixed_precision import widened

PositionKind = Literal["sinusoidal", "learned", "rotary", "none"]
NormKind = Literal["layer", "batch"]
LEVELS = 1 << 16
"""Resolution of dropout probabilities on a CPU."""


def make_embedding(size: int, width: int) -> nn.Embedding:
    """Creates an embedding table whose vectors have expected length 1."""
    embedding = nn.Embedding(size, width)
    nn.init.normal_(embedding.weight, std=width**-0.5)
    return embedding


class Embed(nn.Module):
    """Scales token vectors to the magnitude of the positional encodings and adds these."""

    def __init__(self, kind: PositionKind, width: int, limit: int, dropout: float) -> None:
        super().__init__()
        self.positions = Positions(kind, width, limit)
        self.scale, self.dropout = width**0.5, dropout

    def forward(self, vectors: Tensor, start: int = 0) -> Tensor:
        """Embeds vectors (rows, positions, width); the first position is number `start`."""
        return dropout(self.positions(vectors * self.scale, start), self.dropout, self.training)


class Positions(nn.Module):
    """Adds positional encodings to embedded tokens; `rotary` and `none` add nothing."""

    table: Tensor

    def __init__(self, kind: PositionKind, width: int, limit: int) -> None:
        super().__init__()
        self.kind = kind
        if kind == "learned":
            self.table = nn.Parameter(torch.randn(limit, width) * width**-0.5)
        elif kind == "sinusoidal":
            self.table = nn.Buffer(sinusoids(limit, width), persistent=False)

    def forward(self, embedded: Tensor, start: int = 0) -> Tensor:
        """Adds encodings to `embedded` (rows, positions, width); the first position is number `start`."""
        if self.kind in ("rotary", "none"):
            return embedded
        return embedded + self.table[start : start + embedded.shape[1]]


class Rotary(nn.Module):
    """Rotary positional encoding (RoPE, Su et al. 2021): rotates pairs of a head's dimensions by position-dependent
    angles."""

    def __init__(self, head_width: int, limit: int) -> None:
        super().__init__()
        angles = _angles(limit, head_width)
        self.cos = nn.Buffer(angles.cos().repeat(1, 2), persistent=False)
        self.sin = nn.Buffer(angles.sin().repeat(1, 2), persistent=False)

    def forward(self, heads: Tensor, start: int = 0, stop: int | None = None) -> Tensor:
        """Rotates `heads` (rows, heads, positions, width of a head); with `stop` = `start` + 1, all as one position."""
        stop = start + heads.shape[2] if stop is None else stop
        first, second = heads.chunk(2, -1)
        return heads * self.cos[start:stop] + torch.cat([-second, first], -1) * self.sin[start:stop]


def sinusoids(positions: int, width: int) -> Tensor:
    """Sinusoidal positional encodings (positions, width): sines of falling frequency, then cosines (Vaswani et al.
    2017)."""
    angles = _angles(positions, width)
    return torch.cat([angles.sin(), angles.cos()], -1)


def _angles(positions: int, width: int) -> Tensor:
    rates = torch.exp(torch.arange(0, width, 2) * (-math.log(10_000.0) / width))
    return torch.arange(positions)[:, None] * rates


def make_norm(kind: NormKind, width: int) -> LayerNorm | BatchNorm:
    """Creates a norm: LayerNorm over each position, or BatchNorm over all real positions."""
    return LayerNorm(width) if kind == "layer" else BatchNorm(width)


class LayerNorm(nn.LayerNorm):
    """Layer normalization of each position; padding has no effect."""

    def forward(self, states: Tensor, mask: Tensor | None = None) -> Tensor:
        return super().forward(states)


class BatchNorm(nn.Module):
    """Batch normalization over all real positions; uses running statistics in evaluation."""

    momentum, epsilon = 0.1, 1e-5

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.mean, self.variance = nn.Buffer(torch.zeros(width)), nn.Buffer(torch.ones(width))

    def forward(self, states: Tensor, mask: Tensor | None = None) -> Tensor:
        """Normalizes `states` (rows, positions, width); `mask` (rows, positions) is true where real."""
        flat = widened(states).flatten(0, -2)
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
    """Sets a random share of the values to 0 and scales the others up, like `F.dropout`."""
    if not training or not share:
        return values
    if values.device.type != "cpu" or values.numel() % 2 or round(share * LEVELS) == LEVELS:
        return F.dropout(values, share)
    return _CPUDropout.apply(values, share)  # type: ignore[no-any-return, no-untyped-call]


class _CPUDropout(torch.autograd.Function):
    """Dropout with one 32-bit random number for two values: takes about a third of the time of `F.dropout`."""

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
