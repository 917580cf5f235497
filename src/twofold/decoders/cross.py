"""Cross-encoder: one score from context and candidate, which are read as one text."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal, Self, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from twofold.config import kind_of
from twofold.decoders import DecoderConfig, RankingDecoder, RankingDecoderConfig, Vectors
from twofold.errors import TwofoldError
from twofold.layers.pooling import Dense, Pooling, SentenceModules, dense_layers, means_of_both, pooling_needs
from twofold.results.explanation import ScoreParts
from twofold.types import Hidden, HiddenSpec, OutputSpec


@dataclass(frozen=True)
class Config(RankingDecoderConfig):
    """Settings of the cross-encoder."""

    joined = True

    pooling: Literal["first", "mean", "max", "attention", "summary", "both"] = "mean"
    """Pooling of the joined text: `first`, `mean`, `max`, `attention`, `summary` (the encoder's own), or `both`, the
    normalized mean states of the two texts and their product."""
    dense: tuple[Dense, ...] = ()
    """Dense layers over the pooled vector, before the score."""
    bias: bool = False
    """Adds a bias to the score. It changes no ranking, but gives scores a level, as those of a classifier have:
    `sigmoid(score)` is then a probability."""
    max_tokens: int | None = None
    """Maximum number of tokens of the joined text, special tokens included; the longer of the two texts is truncated
    first. null allows as many as both sides have."""
    compare: DecoderConfig | None = None
    """Ranker whose score is added, {kind: bi} or {kind: poly, ...}, which encodes each text alone. The joint score has
    weight 0 at first, so with that ranker's weights the training starts from that ranker; the weight of its score is
    trained too. null scores the joined text alone."""
    output_scale: float = 1.0
    """Factor of the scores in the loss only; it does not change the ranking scores."""

    def __post_init__(self) -> None:
        if self.output_scale <= 0:
            raise ValueError("output_scale must be above 0")
        if self.compare is not None and (not isinstance(self.compare, RankingDecoderConfig) or self.compare.joined):
            raise ValueError(f"compare: '{kind_of(self.compare)}' does not rank texts read apart; use bi or poly")

    def reads_alone(self) -> bool:
        return self.compare is not None

    def joint_limit(self) -> int | None:
        return self.max_tokens

    def limited(self, longest: int) -> Self:
        return self if self.max_tokens is None else replace(self, max_tokens=min(self.max_tokens, longest))

    def needs(self) -> frozenset[str]:
        return pooling_needs(self.pooling) | (self.compare.needs() if self.compare else frozenset())

    def build(self, spec: HiddenSpec, output: OutputSpec) -> CrossEncoder:
        return CrossEncoder(self, spec, output)


class CrossEncoder(RankingDecoder):
    """Decoder of a cross-encoder; only the score of `compare` can be computed from cached candidates."""

    def __init__(self, config: Config, spec: HiddenSpec, output: OutputSpec) -> None:
        super().__init__()
        self.pool = None if config.pooling == "both" else Pooling(config.pooling, spec)
        width = self.pool.width if self.pool else 3 * spec.width("states")
        self.dense = dense_layers(config.dense, width)
        width = config.dense[-1].width if config.dense else width
        self.output = nn.Linear(width, 1, bias=config.bias)
        nn.init.normal_(self.output.weight, std=0.02 if config.compare is None else 0.0)
        if config.bias:
            nn.init.zeros_(self.output.bias)
        self.compares = config.compare is not None
        if config.compare is not None:
            self.compare = cast(RankingDecoder, config.compare.build(spec, output))
            self.log_trust = nn.Parameter(torch.zeros(()))

    def joint(self, hidden: Hidden) -> Tensor:
        if self.pool:
            vectors: Tensor = self.pool(hidden)
        else:
            first, second = (F.normalize(mean, dim=-1) * math.sqrt(mean.shape[-1]) for mean in means_of_both(hidden))
            vectors = torch.cat([first, second, first * second], -1)  # each value about as large as one
        return self.output(self.dense(vectors))[:, 0]  # type: ignore[no-any-return]

    def probabilities(self, scores: Tensor) -> Tensor | None:
        return None if self.output.bias is None or self.compares else scores.sigmoid()

    def sentence_modules(self) -> SentenceModules:
        if self.pool is None:
            raise TwofoldError("decoder.pooling: sentence-transformers has no 'both'; export it --to onnx")
        if self.compares:
            raise TwofoldError("decoder.compare: sentence-transformers adds no score of another kind; leave it out")
        layers: list[Any] = list(self.dense)
        dense = tuple(zip(layers[::2], layers[1::2], strict=True))
        return SentenceModules(self.pool.elsewhere(), dense, scores=self.output)

    def context(self, hidden: Hidden) -> Vectors:
        return self.compare.context(hidden)

    def candidate(self, hidden: Hidden) -> Vectors:
        return self.compare.candidate(hidden)

    def explain(self, context: Hidden, candidate: Hidden) -> ScoreParts:
        score = self.score(self.context(context), self.candidate(candidate))
        return replace(self.compare.explain(context, candidate), compared=float(score))

    def score_at_once(self, contexts: Vectors, candidates: Vectors) -> Tensor:
        return self.compare.score_at_once(contexts, candidates) * self.log_trust.exp()

    def score(self, contexts: Vectors, candidates: Vectors) -> Tensor:
        return self.compare.score(contexts, candidates) * self.log_trust.exp()
