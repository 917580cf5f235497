"""Cross-entropy over the candidates of the batch: the right ones of other contexts are each context's negatives."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from twofold.losses import LossConfig, ScoredRows


@dataclass(frozen=True)
class Config(LossConfig):
    """Settings of the cross-entropy over in-batch negatives (Humeau et al., 2020)."""

    symmetric: bool = False
    """Whether each right candidate is also told from the contexts of the batch (Radford et al., 2021)."""

    def is_symmetric(self) -> bool:
        return self.symmetric

    def sum(self, scored: ScoredRows) -> Tensor:
        scores = scored.scores.masked_fill(~scored.allowed, -torch.inf)
        return F.cross_entropy(scores, scored.right, reduction="sum")
