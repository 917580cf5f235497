"""g : H → Y. Each decoder is one file; this one says what all offer, rankers add, and recurrent ones share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from twofold.config import Part, Role
from twofold.errors import TwofoldError
from twofold.generate.decoder import TextDecoder, sampled_teaching
from twofold.generate.search import Step
from twofold.layers.blocks import make_embedding
from twofold.layers.recurrent import RecurrentSettings
from twofold.results import CandidateScores, Hypotheses
from twofold.results.explanation import ScoreParts
from twofold.types import Decoder, Hidden, HiddenSpec, OutputSpec, Vocabulary


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
        """The fields of `Hidden` that it reads: the states unless it says otherwise."""
        return frozenset({"states"})

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
class Vectors:
    """What a ranker keeps of some contexts or candidates: one vector each, or several."""

    vectors: Tensor
    """(rows, vectors, width)"""
    mask: Tensor | None = None
    """(rows, vectors), true where a vector is there; all are where there is no mask."""

    def __len__(self) -> int:
        return self.vectors.shape[0]

    @property
    def present(self) -> Tensor:
        """(all vectors, width): those that are there, one row after another."""
        return self.vectors.flatten(0, 1) if self.mask is None else self.vectors[self.mask]

    @property
    def counts(self) -> Tensor:
        """(rows,): how many vectors each row has."""
        if self.mask is None:
            return torch.full((len(self),), self.vectors.shape[1])
        return self.mask.sum(1)

    def __getitem__(self, rows: slice | Sequence[int] | Tensor) -> Vectors:
        return Vectors(self.vectors[rows], None if self.mask is None else self.mask[rows])

    @property
    def single(self) -> Tensor:
        """(rows, width), where one vector each is kept."""
        return self.vectors.squeeze(1)


class RankingDecoder(Decoder):
    """g of a ranker: sees what was read of contexts and candidates, and scores them."""

    several: ClassVar[bool] = False
    """Whether several vectors are kept of a candidate, whose score is then exactly what `ceiling` says at most."""
    compares: bool = False
    """Whether, where the two are read as one text, each is read alone as well, and `score` is added to `joint`."""

    def context(self, hidden: Hidden) -> Vectors:
        """What is kept of each context."""
        raise NotImplementedError

    def candidate(self, hidden: Hidden) -> Vectors:
        """What is kept of each candidate."""
        raise NotImplementedError

    def score(self, contexts: Vectors, candidates: Vectors) -> Tensor:
        """(contexts, candidates)"""
        raise NotImplementedError

    def reversed(self) -> RankingDecoder:
        """The same where contexts and candidates change places."""
        raise TwofoldError("this decoder reads contexts and candidates each in its own way; only `bi` can be reversed")

    def stored(self, candidates: Vectors) -> Vectors:
        """What an index stores of candidates: vectors whose dot products with those of `ceiling` bound their scores."""
        return candidates

    def stored_score(self, contexts: Vectors, candidates: Vectors) -> Tensor:
        """The same as `score`, of candidates as an index stores them."""
        return self.score(contexts, candidates)

    def most_vectors(self, tokens: int | None) -> int | None:
        """Largest number of vectors kept of a candidate with at most `tokens` tokens; None means no limit."""
        return tokens if self.several else 1

    def towards(self, contexts: Vectors, candidates: Tensor) -> Tensor:
        """For each context and the candidate of the same row the vector that the candidate is compared with."""
        raise NotImplementedError

    def ceiling(self, contexts: Vectors) -> Tensor:
        """Vectors that bound one context's scores: (groups, vectors, width).

        No candidate scores more than the sum, over the groups, of its largest dot product with a vector in the group:
        the largest of all its vectors', where several are kept.
        """
        raise NotImplementedError

    def explain(self, context: Hidden, candidate: Hidden) -> ScoreParts:
        """Parts of the score of one candidate for one context, each read by itself; empty if there are none to show."""
        return ScoreParts()

    def joint(self, hidden: Hidden) -> Tensor:
        """The score of each context and candidate where the two are read as one text: (rows,)."""
        raise NotImplementedError


@dataclass(frozen=True)
class RecurrentDecoderConfig(RecurrentSettings, DecoderConfig):
    """Settings of a recurrent network that writes a text."""

    dropout: float = 0.1
    """Share of values set to zero on the token vectors, between the layers and on the features."""
    label_smoothing: float = 0.0
    """Share of the probability that is spread over all tokens when learning."""
    tied: bool = True
    """Whether the layer over the vocabulary shares the table of token vectors."""
    scheduled_sampling: float = 0.0
    """Chance of reading its own prediction instead of the right token, growing from 0 to this over the training."""


class RecurrentDecoder(TextDecoder):
    """A recurrent network that writes a text: `forward` gives features, then the state after the last token."""

    def __init__(self, config: RecurrentDecoderConfig, memory_width: int, vocabulary: Vocabulary) -> None:
        super().__init__(vocabulary, config.label_smoothing)
        self.dropout, self.scheduled_sampling = config.dropout, config.scheduled_sampling
        self.embedding = make_embedding(vocabulary.size, config.embedding)
        self.first = nn.Linear(memory_width, config.layers * config.width)

    def teach(self, hidden: Hidden, tokens: Tensor, mask: Tensor, progress: float) -> Tensor:
        chance = self.scheduled_sampling * progress
        if self.training and chance:
            return sampled_teaching(self, hidden, tokens, chance)
        return self.forward(self.start(hidden), tokens)[0]  # type: ignore[no-any-return]

    def step(self, state: Any, tokens: Tensor) -> Step:
        features, after, *_ = self.forward(state, tokens[:, None])
        return Step(features[:, 0], after)
