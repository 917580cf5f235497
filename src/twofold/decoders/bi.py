"""Bi-encoder: one vector for the context, one for the candidate, and their dot product or cosine."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, Literal

import torch.nn.functional as F
from torch import Tensor

from twofold.decoders import RankingDecoder, RankingDecoderConfig, Vectors
from twofold.errors import TwofoldError
from twofold.layers.pooling import CandidateVector, Dense, Pooling, SentenceModules, VectorSettings, dense_layers
from twofold.types import Hidden, HiddenSpec, OutputSpec


@dataclass(frozen=True)
class Config(VectorSettings, RankingDecoderConfig):
    """Settings of the bi-encoder."""

    dense: tuple[Dense, ...] = ()
    """Dense layers over the pooled vector of both sides, before normalization."""
    similarity: Literal["dot", "cosine"] = "dot"
    """Score of two vectors: `dot` product, or `cosine`, which does not normalize the vectors themselves."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.similarity == "cosine" and self.normalize != "none":
            raise ValueError("similarity: cosine is for vectors of any length; set normalize: none")

    def build(self, spec: HiddenSpec, output: OutputSpec) -> BiEncoder:
        return BiEncoder(self, spec)


class BiEncoder(RankingDecoder):
    """Decoder of a bi-encoder; its scores are dot products, so that an index can search candidates."""

    def __init__(self, config: Config, spec: HiddenSpec) -> None:
        super().__init__()
        # A trainable query is of each side's own; other poolings have nothing to learn.
        self.pool = Pooling(config.pooling, spec)
        self.vector = CandidateVector(config, spec)
        self.dense = dense_layers(config.dense, self.pool.width)
        self.normalize = config.normalize == "both"
        self.cosine = config.similarity == "cosine"
        self.softmax_scale = 1.0  # of a single dot product

    def context(self, hidden: Hidden) -> Vectors:
        vectors = self.dense(self.pool(hidden))
        return Vectors((F.normalize(vectors, dim=-1) if self.normalize else vectors)[:, None])

    def candidate(self, hidden: Hidden) -> Vectors:
        return Vectors(self.vector.lengthen(self.dense(self.vector.pool(hidden)))[:, None])

    def sentence_modules(self) -> SentenceModules:
        if self.vector.normalize != self.normalize:
            raise TwofoldError("decoder.normalize: candidates treats the two sides differently; export it --to onnx")
        layers: list[Any] = list(self.dense)
        dense = tuple(zip(layers[::2], layers[1::2], strict=True))
        cosine = self.normalize or self.cosine
        return SentenceModules(self.pool.elsewhere(), dense, self.normalize, cosine)

    def reversed(self) -> BiEncoder:
        if self.vector.normalize and not self.normalize:
            raise TwofoldError(
                "normalize: candidates treats the two sides differently; only `both` or `none` can be reversed"
            )
        twin = copy.deepcopy(self)
        twin.pool, twin.vector.pool = twin.vector.pool, twin.pool
        return twin

    def score(self, contexts: Vectors, candidates: Vectors) -> Tensor:
        return self.stored_score(contexts, self.stored(candidates))

    def stored(self, candidates: Vectors) -> Vectors:
        return Vectors(F.normalize(candidates.vectors, dim=-1)) if self.cosine else candidates

    def stored_score(self, contexts: Vectors, candidates: Vectors) -> Tensor:
        return self.ceiling(contexts)[:, 0] @ candidates.single.T

    def towards(self, contexts: Vectors, candidates: Tensor) -> Tensor:
        return contexts.vectors[:, 0]

    def ceiling(self, contexts: Vectors) -> Tensor:
        return F.normalize(contexts.vectors, dim=-1) if self.cosine else contexts.vectors
