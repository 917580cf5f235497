"""Margin MSE distillation: score differences between right and given wrong candidates follow the teacher's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor

from twofold.losses import LossConfig, ScoredRows, each_taught, no_loss


@dataclass(frozen=True)
class Config(LossConfig):
    """Settings of margin MSE (Hofstätter et al. 2020)."""

    needs_teacher: ClassVar[bool] = True

    def sum(self, scored: ScoredRows) -> Tensor:
        total = no_loss(scored)
        for student, teacher in each_taught(scored):
            total = total + F.mse_loss(student[0] - student[1:], teacher[0] - teacher[1:])
        return total
