"""A bi-encoder: one vector for the context, one for the candidate, and their dot product."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from twofold.config import RankingPart
from twofold.layers.ranking import CandidateVector, Reduce, VectorSettings
from twofold.types import Contexts, Hidden, HiddenSpec, RankingHead, Vocabulary


@dataclass(frozen=True)
class Config(VectorSettings, RankingPart):
    """Settings of the bi-encoder."""

    def needs(self) -> frozenset[str]:
        return self.reduction_needs()

    def build(self, spec: HiddenSpec, vocabulary: Vocabulary) -> BiEncoder:
        return BiEncoder(self, spec)


class BiEncoder(RankingHead):
    """Candidates can be searched: the best is the one with the largest dot product."""

    def __init__(self, config: Config, spec: HiddenSpec) -> None:
        super().__init__()
        # A trainable query is of each side's own; other reductions have nothing to learn.
        self.reduce = Reduce(config.reduction, spec)
        self.vector = CandidateVector(config, spec)
        self.normalise = config.normalise == "both"

    def context(self, hidden: Hidden) -> Contexts:
        vectors = self.reduce(hidden)
        return Contexts((F.normalize(vectors, dim=-1) if self.normalise else vectors)[:, None])

    def candidate(self, hidden: Hidden) -> Tensor:
        return self.vector(hidden)  # type: ignore[no-any-return]

    def score(self, contexts: Contexts, candidates: Tensor) -> Tensor:
        return contexts.vectors[:, 0] @ candidates.T

    def towards(self, contexts: Contexts, candidates: Tensor) -> Tensor:
        return contexts.vectors[:, 0]

    def ceiling(self, contexts: Contexts) -> Tensor:
        return contexts.vectors
