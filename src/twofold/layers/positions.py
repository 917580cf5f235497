"""Where a token stands: sinusoidal or learned vectors that are added, or rotations of queries and keys."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

PositionKind = Literal["sinusoidal", "learned", "rotary", "none"]


class Positions(nn.Module):
    """Adds to each embedded token a vector for its position; rotary and none add nothing."""

    table: Tensor

    def __init__(self, kind: PositionKind, width: int, limit: int) -> None:
        super().__init__()
        self.kind = kind
        if kind == "learned":
            self.table = nn.Parameter(torch.randn(limit, width) * width**-0.5)
        elif kind == "sinusoidal":
            self.register_buffer("table", sinusoids(limit, width), persistent=False)

    def forward(self, embedded: Tensor, start: int = 0) -> Tensor:
        """`embedded` is (rows, positions, width), the first position being number `start`."""
        if self.kind in ("rotary", "none"):
            return embedded
        return embedded + self.table[start : start + embedded.shape[1]]


class Rotary(nn.Module):
    """Turns pairs of a head's dimensions by an angle that grows with the position (Su et al., 2021)."""

    cos: Tensor
    sin: Tensor

    def __init__(self, head_width: int, limit: int) -> None:
        super().__init__()
        angles = _angles(limit, head_width)
        self.register_buffer("cos", angles.cos().repeat(1, 2), persistent=False)
        self.register_buffer("sin", angles.sin().repeat(1, 2), persistent=False)

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
