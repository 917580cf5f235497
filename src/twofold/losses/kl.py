"""Distillation by KL divergence: the softmax over the given candidates follows the teacher's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor

from twofold.losses import LossConfig, ScoredRows, each_taught, no_loss


@dataclass(frozen=True)
class Config(LossConfig):
    """Settings of KL divergence to a teacher (Hinton et al. 2015)."""

    needs_teacher: ClassVar[bool] = True

    temperature: float = 1.0
    """Softmax temperature that divides the scores of both student and teacher."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.temperature <= 0:
            raise ValueError("temperature must be above 0")

    def sum(self, scored: ScoredRows) -> Tensor:
        total, heat = no_loss(scored), self.temperature
        for student, teacher in each_taught(scored):
            total = total + F.kl_div((student / heat).log_softmax(0), (teacher / heat).softmax(0), reduction="sum")
        return total
