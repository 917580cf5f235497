"""Optimisers, learning-rate schedules, and the running mean of the weights."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from twofold.training.config import TrainConfig


def make_optimiser(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """Decay for matrices, none for norms and biases."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    groups = [
        {"params": [one for one in parameters if one.ndim > 1], "weight_decay": config.weight_decay},
        {"params": [one for one in parameters if one.ndim < 2], "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    betas = (0.9, config.beta2)
    if config.optimiser == "adamax":
        return torch.optim.Adamax(groups, config.learning_rate, betas, foreach=True)
    return torch.optim.AdamW(groups, config.learning_rate, betas, eps=1e-9, fused=True)


def learning_rate(config: TrainConfig, step: int, progress: float, plateau: float) -> float:
    """The rate of step `step`, counted from 1, when `progress` of the training is done."""
    rate = config.learning_rate * min(1.0, step / max(config.warmup, 1))
    match config.schedule:
        case "inverse_sqrt":
            return rate * min(1.0, math.sqrt(max(config.warmup, 1) / step))
        case "cosine":
            return rate * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))
        case "plateau":
            return rate * plateau
        case "constant":
            return rate


def optimiser_tensors(optimiser: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The optimiser's memory as named tensors: `<parameter>/<what>`."""
    return {
        f"{name}/{key}": value.detach()
        for name, parameter in model.named_parameters()
        for key, value in optimiser.state.get(parameter, {}).items()
    }


def restore_optimiser(optimiser: torch.optim.Optimizer, model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Give the optimiser back what `optimiser_tensors` took."""
    parameters = dict(model.named_parameters())
    for name, tensor in tensors.items():
        parameter, key = name.rsplit("/", 1)
        optimiser.state[parameters[parameter]][key] = tensor


class RunningMean:
    """An exponential mean of the weights over the steps; early on it forgets faster, so as not to keep the start."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.parameters: list[Tensor] = [parameter.detach() for parameter in model.parameters()]
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


def add_up_gradients(parameters: Iterable[nn.Parameter]) -> None:
    """Sum the gradients of all processes, in one message for each kind of number."""
    gradients = []
    for parameter in parameters:
        if parameter.requires_grad:
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            gradients.append(parameter.grad)
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    torch.distributed.all_reduce(flat)
    start = 0
    for gradient in gradients:
        gradient.copy_(flat[start : start + gradient.numel()].view_as(gradient))
        start += gradient.numel()
