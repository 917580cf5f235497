"""Optimizers, learning-rate schedules, and the gradients of several processes."""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor, nn

from twofold.errors import TwofoldError
from twofold.model import Model
from twofold.training.config import TrainConfig
from twofold.training.freezing import levels_from_the_top


def make_optimizer(model: nn.Module, config: TrainConfig) -> torch.optim.Optimizer:
    """Decay for matrices, none for norms and biases; `scale` is what a group's rate is multiplied by.

    What has no rate does not learn, and is from then on computed without gradients.
    """
    groups: dict[tuple[bool, float], list[nn.Parameter]] = {}
    multipliers = config.learning_rate_multipliers
    used = set()
    levels = levels_from_the_top(model) if isinstance(model, Model) else []
    depth = {id(one): number for number, level in enumerate(levels) for one in level}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            prefix = max((one for one in multipliers if name.startswith(one)), key=len, default=None)
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
        raise TwofoldError("train.learning_rate_multipliers: nothing learns; give the encoder or a decoder one above 0")
    made = [
        {"params": members, "weight_decay": config.weight_decay if matrix else 0.0, "scale": scale}
        for (matrix, scale), members in sorted(groups.items(), key=lambda item: item[0], reverse=True)
    ]
    betas = (0.9, config.beta2)
    if config.optimizer == "adamax":
        return torch.optim.Adamax(made, config.learning_rate, betas, foreach=True)
    return torch.optim.AdamW(made, config.learning_rate, betas, eps=1e-9, fused=True)


def learning_rate(config: TrainConfig, step: int, progress: float, plateau: float, total: float = math.inf) -> float:
    """The rate of step `step` of `total`, counted from 1, when `progress` of the training is done."""
    warmup = max(1.0, config.warmup)
    if config.warmup_share is not None:
        warmup = max(1.0, min(warmup, config.warmup_share * total))
    rate = config.learning_rate * min(1.0, step / warmup)
    match config.schedule:
        case "inverse_sqrt":
            return rate * min(1.0, math.sqrt(warmup / step))
        case "cosine":
            return rate * 0.5 * (1 + math.cos(math.pi * min(progress, 1.0)))
        case "plateau":
            return rate * plateau
        case "constant":
            return rate


def optimizer_tensors(optimizer: torch.optim.Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The optimizer's memory as named tensors: `<parameter>/<what>`."""
    return {
        f"{name}/{key}": value.detach()
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def restore_optimizer(optimizer: torch.optim.Optimizer, model: nn.Module, tensors: dict[str, Tensor]) -> None:
    """Give the optimizer back what `optimizer_tensors` took."""
    parameters = dict(model.named_parameters())
    for name, tensor in tensors.items():
        parameter, key = name.rsplit("/", 1)
        optimizer.state[parameters[parameter]][key] = tensor


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
