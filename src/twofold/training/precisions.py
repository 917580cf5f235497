"""Precision of a training: settled before the first step, recorded in its checkpoints, and kept when it is resumed."""

from __future__ import annotations

from typing import Literal

import torch

from twofold import precision
from twofold.model import Model
from twofold.training import processes
from twofold.training.config import TrainConfig
from twofold.training.console import say

Precision = Literal["float32", "bfloat16"]
DATA_TYPES: dict[Precision, torch.dtype | None] = {"float32": None, "bfloat16": torch.bfloat16}


def begin(model: Model, config: TrainConfig) -> Precision:
    """Sets the precision that a new training computes in, the first process's choice, and returns its name."""
    settled: Precision = processes.from_first(precision.settled(config.precision, model.device.type))
    model.precision = DATA_TYPES[settled]
    return settled


def resume(model: Model, config: TrainConfig, kept: Precision) -> None:
    """Sets the precision that the training began with; says so where another would be chosen now."""
    model.precision = DATA_TYPES[kept]
    if kept != precision.settled(config.precision, model.device.type) and processes.is_first():
        slow = ", which is slow on this machine" if kept == "bfloat16" and not precision.is_fast() else ""
        say(f"train.precision: goes on in {kept}, in which the training began{slow}")
