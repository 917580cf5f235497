"""Cross-entropy with in-batch negatives: the responses to other contexts are each context's negatives."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from twofold.losses import LossConfig, ScoredRows


@dataclass(frozen=True)
class Config(LossConfig):
    """Settings of cross-entropy with in-batch negatives (Humeau et al. 2020; also InfoNCE or
    MultipleNegativesRankingLoss)."""

    symmetric: bool = False
    """Adds the opposite direction: each right candidate is also told apart from the batch's contexts (CLIP, Radford et
    al. 2021)."""

    def is_symmetric(self) -> bool:
        return self.symmetric

    def sum(self, scored: ScoredRows) -> Tensor:
        scores = scored.scores.masked_fill(~scored.allowed, -torch.inf)
        return F.cross_entropy(scores, scored.right, reduction="sum")
