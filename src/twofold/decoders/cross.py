"""A cross-encoder: context and candidate are read together, and one number says how well they fit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from twofold.config import RankingPart
from twofold.layers.ranking import Reduce, Reduction, means_of_both
from twofold.types import Hidden, HiddenSpec, RankingHead, Vocabulary


@dataclass(frozen=True)
class Config(RankingPart):
    """Settings of the cross-encoder."""

    joined: ClassVar[bool] = True

    reduction: Reduction = "mean"
    """One vector out of the states of the joined text: first, mean, max, attention, or the encoder's summary."""
    compare: bool = False
    """Whether the score also has a part that compares the two texts: the cosine of the means of their states, as they
    are read beside each other, times a scale that learns. A backbone that was made for such means starts from there."""
    scale: float = 20.0
    """With compare: what the cosine is multiplied by at the start."""
    opens: float = 0.0
    """If above 0: each text is read as if it were alone at first, so that with `compare` and a bi-encoder's weights it
    starts as that bi-encoder; the tokens of the other text count more and more, until this share of the training is
    done. Needs an encoder that can read so."""
    opens_to: float = 1.0
    """With opens: how much the tokens of the other text count in the end, beside those of the own text."""
    output_scale: float = 1.0
    """What scores are multiplied by in the loss, and only there."""

    def __post_init__(self) -> None:
        if self.output_scale <= 0 or self.scale <= 0:
            raise ValueError("scale and output_scale must be above 0")
        if not 0 <= self.opens <= 1 or not 0 < self.opens_to <= 1:
            raise ValueError("opens must be from 0 to 1, opens_to above 0 and at most 1")

    def needs(self) -> frozenset[str]:
        reduced = ["summary"] if self.reduction == "summary" else ["states", "finish"]
        return frozenset([*reduced, "states"] if self.compare else reduced)

    def build(self, spec: HiddenSpec, vocabulary: Vocabulary) -> CrossEncoder:
        return CrossEncoder(self, spec)


class CrossEncoder(RankingHead):
    """Sees every word of one beside every word of the other; nothing can be computed beforehand."""

    def __init__(self, config: Config, spec: HiddenSpec) -> None:
        super().__init__()
        self.reduce = Reduce(config.reduction, spec)
        width = spec.width("summary" if config.reduction == "summary" else "states")
        self.output = nn.Linear(width, 1, bias=False)  # the same for all candidates, a bias says nothing
        nn.init.normal_(self.output.weight, std=0.0 if config.compare else 0.02)  # the comparison speaks alone at first
        self.log_scale = nn.Parameter(torch.tensor(math.log(config.scale))) if config.compare else None
        self.opens, self.opens_to = config.opens, config.opens_to
        self.register_buffer("opened", torch.tensor(0.0) if config.opens else None)
        self.opened: Tensor | None

    def between(self) -> float | None:
        return None if self.opened is None else float(self.opened)

    def at(self, progress: float) -> None:
        if self.opened is not None:
            self.opened.fill_(self.opens_to * min(1.0, progress / self.opens))

    def joint(self, hidden: Hidden) -> Tensor:
        score: Tensor = self.output(self.reduce(hidden))[:, 0]
        if self.log_scale is None:
            return score
        return score + self.log_scale.exp() * F.cosine_similarity(*means_of_both(hidden))
