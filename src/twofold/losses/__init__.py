"""Losses of rankers. Each loss is one file; this module defines the interface they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from twofold.config import Part, Role


@dataclass(frozen=True)
class ScoredRows:
    """Scores of contexts and candidates, with the labels that losses need."""

    scores: Tensor
    """Scores (contexts, candidates)."""
    right: Tensor
    """Position of each context's right candidate, (contexts,)."""
    allowed: Tensor
    """Mask (contexts, candidates); false for possible false negatives, which may be as right as the right candidate."""
    given: Sequence[Tensor]
    """Positions of each context's right candidate and given negatives."""
    teacher: Sequence[Tensor]
    """Teacher's scores of these, for each context; empty without a teacher."""


@dataclass(frozen=True)
class LossConfig(Part):
    """Settings of a loss, which compute it."""

    role: ClassVar[Role] = "losses"
    needs_teacher: ClassVar[bool] = False
    """True if the loss needs a teacher's scores (distillation)."""

    weight: float = 1.0
    """Factor of the loss in the sum of losses; 0 turns it off."""

    def __post_init__(self) -> None:
        if self.weight < 0:
            raise ValueError("weight must be at least 0")

    def sum(self, scored: ScoredRows) -> Tensor:
        """Sum of the loss over the contexts."""
        raise NotImplementedError

    def is_symmetric(self) -> bool:
        """Returns True if candidates are also compared with the contexts of the batch."""
        return False

    def both_ways(self, scored: ScoredRows, back: ScoredRows | None) -> Tensor:
        """Sum over the contexts; for a symmetric loss, the mean of both directions."""
        if back is None or not self.is_symmetric():
            return self.sum(scored)
        return (self.sum(scored) + self.sum(back)) / 2


def each_taught(scored: ScoredRows) -> list[tuple[Tensor, Tensor]]:
    """Scores of the given candidates and the teacher's scores, for each context with a teacher."""
    rows = zip(scored.scores, scored.given, scored.teacher, strict=True)
    return [(scores[given], teacher.to(scores)) for scores, given, teacher in rows if len(teacher) > 1]


def no_loss(scored: ScoredRows) -> Tensor:
    """Zero loss with zero gradients, for batches without a teacher's scores."""
    return scored.scores[:0].sum()
