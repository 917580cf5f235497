"""A cross-encoder: context and candidate are read as one text, and one number says how well they fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from twofold.config import RankingPart
from twofold.layers.ranking import Reduce, Reduction
from twofold.types import Hidden, HiddenSpec, RankingHead, Vocabulary


@dataclass(frozen=True)
class Config(RankingPart):
    """Settings of the cross-encoder."""

    joined: ClassVar[bool] = True

    reduction: Reduction = "mean"
    """One vector out of the states of the joined text: first, mean, max, attention, or the encoder's summary."""
    output_scale: float = 1.0
    """What scores are multiplied by in the loss, and only there."""

    def __post_init__(self) -> None:
        if self.output_scale <= 0:
            raise ValueError("output_scale must be above 0")

    def needs(self) -> frozenset[str]:
        return frozenset(["summary"] if self.reduction == "summary" else ["states", "finish"])

    def build(self, spec: HiddenSpec, vocabulary: Vocabulary) -> CrossEncoder:
        return CrossEncoder(self, spec)


class CrossEncoder(RankingHead):
    """Sees every word of one beside every word of the other; nothing can be computed beforehand."""

    def __init__(self, config: Config, spec: HiddenSpec) -> None:
        super().__init__()
        self.reduce = Reduce(config.reduction, spec)
        width = spec.width("summary" if config.reduction == "summary" else "states")
        self.output = nn.Linear(width, 1, bias=False)  # the same for all candidates, a bias says nothing
        nn.init.normal_(self.output.weight, std=0.02)

    def joint(self, hidden: Hidden) -> Tensor:
        return self.output(self.reduce(hidden))[:, 0]  # type: ignore[no-any-return]
