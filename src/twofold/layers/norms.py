"""Normalization over the width: of each position by itself, or of each feature over all real positions."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

NormKind = Literal["layer", "batch"]


def make_norm(kind: NormKind, width: int) -> LayerNorm | BatchNorm:
    """The norm of that kind."""
    return LayerNorm(width) if kind == "layer" else BatchNorm(width)


class LayerNorm(nn.LayerNorm):
    """Normalizes each position by itself; padding cannot matter."""

    def forward(self, states: Tensor, mask: Tensor | None = None) -> Tensor:
        return super().forward(states)


class BatchNorm(nn.Module):
    """Normalizes each feature over all real positions of the batch; running statistics serve when not training."""

    mean: Tensor
    variance: Tensor

    def __init__(self, width: int, momentum: float = 0.1, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.momentum, self.epsilon = momentum, epsilon
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("variance", torch.ones(width))

    def forward(self, states: Tensor, mask: Tensor | None = None) -> Tensor:
        """`states` is (rows, positions, width), `mask` (rows, positions) true where real."""
        flat = states.flatten(0, -2)
        if not self.training:
            normed = F.batch_norm(flat, self.mean, self.variance, self.weight, self.bias, False, 0.0, self.epsilon)
            return normed.view_as(states)
        real = torch.arange(len(flat), device=flat.device) if mask is None else mask.flatten().nonzero()[:, 0]
        chosen = flat[real]
        variance, mean = torch.var_mean(chosen, 0, correction=0)
        with torch.no_grad():
            self.mean.lerp_(mean, self.momentum)
            self.variance.lerp_(variance * len(real) / max(len(real) - 1, 1), self.momentum)
        normed = (flat - mean) * torch.rsqrt(variance + self.epsilon) * self.weight + self.bias
        return normed.view_as(states)
