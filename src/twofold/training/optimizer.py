"""Optimizers, learning-rate schedules, and the exponential moving average (EMA) of the weights."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from twofold.errors import TwofoldError
from twofold.model import Model
from twofold.training.config import TrainConfig
from twofold.training.freezing import levels_from_the_top


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """Builds the optimizer: weight decay for matrices only; `scale` is the factor of a group's learning rate.

    Parameters with a rate of 0 do not learn, and are from then on computed without gradients.
    """
    groups: dict[tuple[bool, float], list[nn.Parameter]] = {}
    multipliers = config.learning_rate_multipliers
    used = set()
    levels = levels_from_the_top(model) if isinstance(model, Model) else []
    depth = {id(parameter): number for number, level in enumerate(levels) for parameter in level}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            prefix = max(filter(name.startswith, multipliers), key=len, default=None)
            used.add(prefix)
            scale = 1.0 if prefix is None else multipliers[prefix]
            if not scale:
                parameter.requires_grad_(False)
                continue
            scale *= config.layer_decay ** depth.get(id(parameter), 0)
            groups.setdefault((parameter.ndim > 1, scale), []).append(parameter)
    for prefix in multipliers.keys() - used:
        raise TwofoldError(f"train.learning_rate_multipliers: no parameter's name begins with '{prefix}'")
    if not groups:
        raise TwofoldError("train.learning_rate_multipliers: all are 0, and nothing is trained; set one above 0")
    made = [
        {"params": members, "weight_decay": config.weight_decay if matrix else 0.0, "scale": scale}
        for (matrix, scale), members in sorted(groups.items(), key=lambda group: group[0], reverse=True)
    ]
    betas = (0.9, config.beta2)
    if config.optimizer == "adamax":
        return torch.optim.Adamax(made, config.learning_rate, betas, foreach=True)
    return torch.optim.AdamW(made, config.learning_rate, betas, eps=1e-9, fused=True)


def learning_rate(config: TrainConfig, step: int, progress: float, plateau: float, total: float = math.inf) -> float:
    """Learning rate of step `step` of `total`, counted from 1, when the share `progress` of the training is done."""
    warmup = max(1.0, config.warmup)
    if config.warmup_share is not None:
        warmup = max(1.0, min(warmup, config.warmup_share * total))
    rate = config.learning_rate * min(1.0, step / warmup)
    factors = {
        "inverse_sqrt": min(1.0, math.sqrt(warmup / step)),
        "cosine": 0.5 * (1 + math.cos(math.pi * min(progress, 1.0))),
        "plateau": plateau,
        "constant": 1.0,
    }
    return rate * factors[config.schedule]


def optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """State of the optimizer as named tensors: `<parameter>/<what>`."""
    return {
        f"{name}/{key}": value.detach()
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Restores the state that `optimizer_tensors` returned."""
    parameters = dict(model.named_parameters())
    for name, tensor in tensors.items():
        parameter, key = name.rsplit("/", 1)
        optimizer.state[parameters[parameter]][key] = tensor


class ExponentialMovingAverage:
    """Exponential moving average of the weights; its decay is lower at first, so that it leaves the start behind.

    The running statistics of BatchNorm belong to the weights of each step, and are averaged with them.
    """

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        parameters = list(model.parameters())
        known = {id(parameter) for parameter in parameters}
        buffers = [value for value in model.state_dict(keep_vars=True).values() if id(value) not in known]
        learned = [parameter.detach() for parameter in parameters if parameter.requires_grad]
        self.parameters: list[Tensor] = [*learned, *(buffer for buffer in buffers if buffer.is_floating_point())]
        self.means = [parameter.clone() for parameter in self.parameters]

    def update(self, step: int) -> None:
        decay = min(self.decay, (1 + step) / (10 + step))
        torch._foreach_lerp_(self.means, self.parameters, 1 - decay)

    def swap(self) -> None:
        """Exchanges weights and means; a second call undoes the first."""
        for parameter, mean in zip(self.parameters, self.means, strict=True):
            kept = parameter.clone()
            parameter.copy_(mean)
            mean.copy_(kept)

    def tensors(self) -> dict[str, Tensor]:
        return {str(number): mean for number, mean in enumerate(self.means)}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        for number, mean in enumerate(self.means):
            mean.copy_(tensors[str(number)])
