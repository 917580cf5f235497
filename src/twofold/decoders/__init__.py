"""g : H → Y. Each decoder is one file; this one says what the settings of every decoder offer, and what rankers add."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from twofold.config import Part, Role
from twofold.results import CandidateScores, Hypotheses
from twofold.types import Decoder, Hidden, HiddenSpec, OutputSpec


@dataclass(frozen=True)
class DecoderConfig(Part):
    """Settings of a decoder; they know what it needs, and build it."""

    role: ClassVar[Role] = "decoders"
    sizes: ClassVar[bool] = True
    output: ClassVar[str] = "text"
    """The kind of output that it writes unless a recipe says."""
    writes: ClassVar[type] = Hypotheses
    """The class of its results."""

    def compares(self) -> bool:
        """Whether it compares two texts, each of which must be known apart from the other."""
        return False

    def keeps_position(self) -> str | None:
        """The position, first or last, whose state speaks for the whole text, if one does."""
        return None

    def needs(self) -> frozenset[str]:
        """The fields of `Hidden` that it reads."""
        raise NotImplementedError

    def build(self, spec: HiddenSpec, output: OutputSpec) -> Decoder:
        """A new decoder of what an encoder gives, for what is to be written."""
        raise NotImplementedError


@dataclass(frozen=True)
class RankingDecoderConfig(DecoderConfig):
    """Settings of a ranking decoder."""

    output: ClassVar[str] = "ranking"
    writes: ClassVar[type] = CandidateScores
    joined: ClassVar[bool] = False
    """Whether a context and a candidate are read as one text."""

    def reads_alone(self) -> bool:
        """Whether each of the two is read by itself, be it beside what is read as one text."""
        return not self.joined


@dataclass(frozen=True)
class Contexts:
    """Contexts as a ranker keeps them: one vector each, or several that a candidate attends over."""

    vectors: Tensor
    """(contexts, codes, width)"""
    mask: Tensor | None = None
    """(contexts, codes), true where a code is there; all are where there is none."""

    def __len__(self) -> int:
        return self.vectors.shape[0]

    def rows(self, start: int, stop: int) -> Contexts:
        """Some of them."""
        return Contexts(self.vectors[start:stop], None if self.mask is None else self.mask[start:stop])


class RankingDecoder(Decoder):
    """g of a ranker: sees what was read of contexts and candidates, and scores them."""

    compares: bool = False
    """Whether, where the two are read as one text, each is read alone as well, and `score` is added to `joint`."""

    def context(self, hidden: Hidden) -> Contexts:
        """What is kept of each context."""
        raise NotImplementedError

    def candidate(self, hidden: Hidden) -> Tensor:
        """What is kept of each candidate: (candidates, width)."""
        raise NotImplementedError

    def score(self, contexts: Contexts, candidates: Tensor) -> Tensor:
        """(contexts, candidates)"""
        raise NotImplementedError

    def stored(self, candidates: Tensor) -> Tensor:
        """What an index stores of candidates: vectors whose dot products with those of `ceiling` bound their scores."""
        return candidates

    def stored_score(self, contexts: Contexts, candidates: Tensor) -> Tensor:
        """The same as `score`, of candidates as an index stores them."""
        return self.score(contexts, candidates)

    def towards(self, contexts: Contexts, candidates: Tensor) -> Tensor:
        """For each context and the candidate of the same row the vector that the candidate is compared with."""
        raise NotImplementedError

    def ceiling(self, contexts: Contexts) -> Tensor:
        """Vectors that bound one context's scores: (groups, vectors, width).

        No candidate scores more than the sum, over the groups, of its largest dot product with a vector in the group.
        """
        raise NotImplementedError

    def joint(self, hidden: Hidden) -> Tensor:
        """The score of each context and candidate where the two are read as one text: (rows,)."""
        raise NotImplementedError
