"""The exponential moving average (EMA) of the weights."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class ExponentialMovingAverage:
    """An exponential mean of the weights over the steps; early on it forgets faster, so as not to keep the start.

    What BatchNorm has seen belongs to the weights of each step, and is averaged with them.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        own = {id(one) for one in model.parameters()}
        seen = [one for one in model.state_dict(keep_vars=True).values() if id(one) not in own]
        learned = [one.detach() for one in model.parameters() if one.requires_grad]
        self.parameters: list[Tensor] = [*learned, *(one for one in seen if one.is_floating_point())]
        self.means = [parameter.clone() for parameter in self.parameters]

    def update(self, step: int) -> None:
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self.means, self.parameters, 1 - decay)

    def swap(self) -> None:
        """Exchange weights and means; twice is never."""
        for parameter, mean in zip(self.parameters, self.means, strict=True):
            kept = parameter.clone()
            parameter.copy_(mean)
            mean.copy_(kept)

    def tensors(self) -> dict[str, Tensor]:
        return {str(number): mean for number, mean in enumerate(self.means)}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        for number, mean in enumerate(self.means):
            mean.copy_(tensors[str(number)])
