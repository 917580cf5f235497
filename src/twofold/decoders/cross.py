"""A cross-encoder: context and candidate are read together, and one number says how well they fit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from twofold.config import RankingPart
from twofold.layers.ranking import CandidateVector, Reduce, Reduction, VectorSettings
from twofold.types import Contexts, Hidden, HiddenSpec, RankingHead, Vocabulary


@dataclass(frozen=True)
class Config(RankingPart):
    """Settings of the cross-encoder."""

    joined: ClassVar[bool] = True

    reduction: Reduction = "mean"
    """One vector out of the states of the joined text: first, mean, max, attention, or the encoder's summary."""
    compare: bool = False
    """Whether a bi-encoder's score is added: each text is read alone as well, and the cosine of the mean states, times
    a scale that learns, is one part of the score. The other, from both read as one, then begins at 0, so that with a
    bi-encoder's weights it starts as that bi-encoder and learns what only reading both together can tell."""
    scale: float = 20.0
    """With compare: what the cosine is multiplied by at the start."""
    output_scale: float = 1.0
    """What scores are multiplied by in the loss, and only there."""

    def __post_init__(self) -> None:
        if self.output_scale <= 0 or self.scale <= 0:
            raise ValueError("scale and output_scale must be above 0")

    def needs(self) -> frozenset[str]:
        reduced = ["summary"] if self.reduction == "summary" else ["states", "finish"]
        return frozenset([*reduced, "states", "finish"] if self.compare else reduced)

    def build(self, spec: HiddenSpec, vocabulary: Vocabulary) -> CrossEncoder:
        return CrossEncoder(self, spec)


class CrossEncoder(RankingHead):
    """Sees every word of one beside every word of the other; nothing but a comparison can be computed beforehand."""

    def __init__(self, config: Config, spec: HiddenSpec) -> None:
        super().__init__()
        self.compares = config.compare
        self.reduce = Reduce(config.reduction, spec)
        width = spec.width("summary" if config.reduction == "summary" else "states")
        self.output = nn.Linear(width, 1, bias=False)  # the same for all candidates, a bias says nothing
        nn.init.normal_(self.output.weight, std=0.0 if config.compare else 0.02)
        self.vector = CandidateVector(VectorSettings(scale=config.scale), spec) if config.compare else None

    def joint(self, hidden: Hidden) -> Tensor:
        score: Tensor = self.output(self.reduce(hidden))
        return score[:, 0]

    def context(self, hidden: Hidden) -> Contexts:
        assert self.vector is not None
        return Contexts(F.normalize(self.vector.reduce(hidden), dim=-1)[:, None])

    def candidate(self, hidden: Hidden) -> Tensor:
        assert self.vector is not None
        return self.vector(hidden)  # type: ignore[no-any-return]

    def score(self, contexts: Contexts, candidates: Tensor) -> Tensor:
        return contexts.vectors[:, 0] @ candidates.T
