"""What rankers minimize. Each loss is one file; this one says what every loss offers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from twofold.config import Part, Role


@dataclass(frozen=True)
class ScoredRows:
    """The scores of some contexts, and what is known of their candidates."""

    scores: Tensor
    """(contexts, candidates)"""
    right: Tensor
    """(contexts,): the number of each context's right candidate."""
    allowed: Tensor
    """(contexts, candidates): false where a candidate may be as right without being the right one."""
    given: Sequence[Tensor]
    """For each context the numbers of its right candidate and of the negatives that were given with it."""
    teacher: Sequence[Tensor]
    """For each context a teacher's scores of those; empty where there is no teacher."""


@dataclass(frozen=True)
class LossConfig(Part):
    """Settings of a loss, which compute it."""

    role: ClassVar[Role] = "losses"
    needs_teacher: ClassVar[bool] = False
    """Whether it follows a teacher's scores."""

    weight: float = 1.0
    """What it is multiplied by."""

    def __post_init__(self) -> None:
        if self.weight < 0:
            raise ValueError("weight must be at least 0")

    def sum(self, scored: ScoredRows) -> Tensor:
        """The sum over the contexts."""
        raise NotImplementedError

    def is_symmetric(self) -> bool:
        """Whether candidates are compared with the contexts of the batch as well."""
        return False

    def both_ways(self, scored: ScoredRows, back: ScoredRows | None) -> Tensor:
        """The sum over the contexts; of a symmetric loss the mean with that of the right candidates among contexts."""
        if back is None or not self.is_symmetric():
            return self.sum(scored)
        return (self.sum(scored) + self.sum(back)) / 2


def each_taught(scored: ScoredRows) -> list[tuple[Tensor, Tensor]]:
    """For each context that a teacher has scored the scores of its given candidates, and the teacher's."""
    rows = zip(scored.scores, scored.given, scored.teacher, strict=True)
    return [(scores[given], teacher.to(scores)) for scores, given, teacher in rows if len(teacher) > 1]


def no_loss(scored: ScoredRows) -> Tensor:
    """0, whose gradients are 0 as well, where no context has anything to follow."""
    return scored.scores[:0].sum()
