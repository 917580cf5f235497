"""Interfaces of decoders, g : H → Y, and of ranking decoders, and the base class of recurrent ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from twofold.config import Part, Role
from twofold.errors import TwofoldError
from twofold.generate.decoder import TextDecoder, sampled_teaching
from twofold.generate.search import Step
from twofold.layers.blocks import make_embedding
from twofold.layers.pooling import SentenceModules
from twofold.layers.recurrent import RecurrentSettings
from twofold.results import CandidateScores, Hypotheses
from twofold.results.explanation import ScoreParts
from twofold.types import Decoder, Hidden, HiddenSpec, OutputSpec, Vocabulary


@dataclass(frozen=True)
class DecoderConfig(Part):
    """Settings of a decoder: the fields that it needs are known from them, and they build it."""

    role: ClassVar[Role] = "decoders"
    sizes: ClassVar[bool] = True
    output: ClassVar[str] = "text"
    """Default kind of output, unless the recipe names one."""
    writes: ClassVar[type] = Hypotheses
    """Class of the decoder's results."""

    def compares(self) -> bool:
        """Returns True if the decoder compares two texts, whose positions must be told apart."""
        return False

    def keeps_position(self) -> str | None:
        """Returns the position, first or last, whose state is pooled; None for any other pooling."""
        return None

    def needs(self) -> frozenset[str]:
        """Returns the fields of `Hidden` that the decoder reads: by default the states."""
        return frozenset({"states"})

    def build(self, spec: HiddenSpec, output: OutputSpec) -> Decoder:
        """Builds a decoder from the widths of the encoder's output and the specification of the answers."""
        raise NotImplementedError


@dataclass(frozen=True)
class RankingDecoderConfig(DecoderConfig):
    """Settings of a ranking decoder."""

    output: ClassVar[str] = "ranking"
    writes: ClassVar[type] = CandidateScores
    joined: ClassVar[bool] = False
    """True if context and candidate are read as one text."""

    def reads_alone(self) -> bool:
        """Returns True if context and candidate are each read alone, possibly in addition to the joined text."""
        return not self.joined

    def joint_limit(self) -> int | None:
        """Returns the maximum number of tokens of a joined text, or None for as many as both sides have."""
        return None

    def limited(self, longest: int) -> Self:
        """Returns settings whose joined texts have at most `longest` tokens."""
        return self


@dataclass(frozen=True)
class Vectors:
    """Embeddings of contexts or candidates: one vector each, or several."""

    vectors: Tensor
    """Shape (rows, vectors, width)."""
    mask: Tensor | None = None
    """Shape (rows, vectors), true for real vectors; None if all are real."""

    def __len__(self) -> int:
        return self.vectors.shape[0]

    @property
    def present(self) -> Tensor:
        """Real vectors of all rows, (vectors, width)."""
        return self.vectors.flatten(0, 1) if self.mask is None else self.vectors[self.mask]

    @property
    def counts(self) -> Tensor:
        """Number of vectors of each row, (rows,)."""
        if self.mask is None:
            return torch.full((len(self),), self.vectors.shape[1])
        return self.mask.sum(1)

    def __getitem__(self, rows: slice | Sequence[int] | Tensor) -> Vectors:
        return Vectors(self.vectors[rows], None if self.mask is None else self.mask[rows])

    @property
    def single(self) -> Tensor:
        """Vectors (rows, width) of a decoder with one vector a row."""
        return self.vectors.squeeze(1)


class RankingDecoder(Decoder):
    """Decoder of a ranker: scores candidates for contexts from the encoder's output of both."""

    several: ClassVar[bool] = False
    """True if a candidate has several vectors; its score is then equal to the bound of `ceiling`."""
    compares: bool = False
    """True if joined texts are also read alone, and `score` is added to `joint`."""

    softmax_scale: float | None = None
    """β, if the score is the sum over the groups of `ceiling` of Σ_i softmax_i(β s_i)·s_i, where s_i is the largest dot
    product of vector i with a stored vector of the candidate; None for scores of another form."""

    def context(self, hidden: Hidden) -> Vectors:
        """Computes the vectors of each context."""
        raise NotImplementedError

    def candidate(self, hidden: Hidden) -> Vectors:
        """Computes the vectors of each candidate, which an index or a cache keeps."""
        raise NotImplementedError

    def score(self, contexts: Vectors, candidates: Vectors) -> Tensor:
        """Scores of all pairs, (contexts, candidates)."""
        raise NotImplementedError

    def score_at_once(self, contexts: Vectors, candidates: Vectors) -> Tensor:
        """Scores of all pairs, (contexts, candidates), in one piece, so that it can be exported."""
        return self.score(contexts, candidates)

    def probabilities(self, scores: Tensor) -> Tensor | None:
        """Probabilities that candidates fit, from their scores; None where the level of scores means nothing."""
        return None

    def sentence_modules(self) -> SentenceModules:
        """Layers by which sentence-transformers makes the same vectors or scores; most decoders have none."""
        raise TwofoldError("makes no single vector or score as sentence-transformers does; export it --to onnx")

    def reversed(self) -> RankingDecoder:
        """Returns the decoder with contexts and candidates exchanged."""
        raise TwofoldError("this decoder treats contexts and candidates differently; only `bi` can be reversed")

    def stored(self, candidates: Vectors) -> Vectors:
        """Vectors of candidates as an index stores them: dot products with those of `ceiling` bound the scores."""
        return candidates

    def stored_score(self, contexts: Vectors, candidates: Vectors) -> Tensor:
        """Scores (contexts, candidates) from the stored vectors of candidates."""
        return self.score(contexts, candidates)

    @torch.no_grad()
    def bounding_vectors(self, context: Vectors) -> NDArray[np.float32]:
        """Vectors of `ceiling` of one context, for a search."""
        return self.ceiling(context).cpu().numpy()

    @torch.no_grad()
    def scores_of_stored(self, context: Vectors, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """Scores (candidates,) for one context, of candidates with one stored vector each, (candidates, width)."""
        candidates = Vectors(torch.from_numpy(vectors)[:, None].to(context.vectors.device))
        scores: NDArray[np.float32] = self.stored_score(context, candidates)[0].cpu().numpy()
        return scores

    def most_vectors(self, tokens: int | None) -> int | None:
        """Largest number of vectors kept of a candidate with at most `tokens` tokens; None means no limit."""
        return tokens if self.several else 1

    def towards(self, contexts: Vectors, candidates: Tensor) -> Tensor:
        """Computes the vector of each context with which the candidate of the same row is compared, (rows, width)."""
        raise NotImplementedError

    def ceiling(self, contexts: Vectors) -> Tensor:
        """Vectors that bound the scores of one context, (groups, vectors, width).

        No candidate scores more than the sum, over the groups, of its largest dot product with a vector of the group;
        a candidate with several vectors takes the largest of all of them.
        """
        raise NotImplementedError

    def explain(self, context: Hidden, candidate: Hidden) -> ScoreParts:
        """Parts of the score of one candidate for one context, each read by itself; empty if there are none to show."""
        return ScoreParts()

    def joint(self, hidden: Hidden) -> Tensor:
        """Scores of contexts and candidates that are read as one text, (rows,)."""
        raise NotImplementedError


@dataclass(frozen=True)
class RecurrentDecoderConfig(RecurrentSettings, DecoderConfig):
    """Settings of a recurrent text decoder."""

    dropout: float = 0.1
    """Dropout probability on the embeddings, between the layers and on the features."""
    label_smoothing: float = 0.0
    """Label smoothing: fraction of the target probability that is spread over all tokens."""
    tied: bool = True
    """Shares the embedding table with the output layer (weight tying)."""
    scheduled_sampling: float = 0.0
    """Scheduled sampling: probability of reading the predicted token in place of the right one; it grows from 0 to this
    value over the training. 0 is teacher forcing."""


class RecurrentDecoder(TextDecoder):
    """Base class of recurrent text decoders, which implement `start` and `run`."""

    def __init__(self, config: RecurrentDecoderConfig, memory_width: int, vocabulary: Vocabulary) -> None:
        super().__init__(vocabulary, config.label_smoothing)
        self.dropout, self.scheduled_sampling = config.dropout, config.scheduled_sampling
        self.embedding = make_embedding(vocabulary.size, config.embedding)
        self.first = nn.Linear(memory_width, config.layers * config.width)

    def run(self, state: Any, tokens: Tensor) -> tuple[Tensor, Any]:
        """Features (rows, positions, embedding) after each token, and the state after the last."""
        raise NotImplementedError

    def teach(self, hidden: Hidden, tokens: Tensor, mask: Tensor, progress: float) -> Tensor:
        chance = self.scheduled_sampling * progress
        if self.training and chance:
            return sampled_teaching(self, hidden, tokens, chance)
        return self.run(self.start(hidden), tokens)[0]

    def step(self, state: Any, tokens: Tensor) -> Step:
        features, after = self.run(state, tokens[:, None])
        return Step(features[:, 0], after)
