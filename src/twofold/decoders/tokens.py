"""Guesses words of a text itself: those that were masked, or over a causal encoder each that follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from twofold.config import DecoderPart, Writes
from twofold.errors import TwofoldError
from twofold.types import Decoder, Hidden, HiddenSpec, Loss, Target, Vocabulary


@dataclass(frozen=True)
class Config(DecoderPart):
    """Settings of the decoder that a text encoder is pre-trained with."""

    writes: ClassVar[Writes] = "tokens"
    masked: float | None = None
    """Share of the tokens that are masked and to be guessed; with 0, over a causal encoder, each next one is. Unless
    given it goes by the encoder: each next one if it is causal, otherwise 0.15."""

    def __post_init__(self) -> None:
        if not 0 <= (self.masked or 0) < 1:
            raise ValueError("masked must be at least 0 and below 1")

    def needs(self) -> frozenset[str]:
        return frozenset({"states"})

    def build(self, spec: HiddenSpec, output: Vocabulary) -> TokensDecoder:
        return TokensDecoder(spec, output)


class TokensDecoder(Decoder):
    """A layer, then a score for each token; the table of the encoder's tokens serves here as well where it fits."""

    metrics = ("likelihood",)

    def __init__(self, spec: HiddenSpec, output: Vocabulary) -> None:
        super().__init__()
        width = spec.width("states")
        self.between = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))
        self.output = nn.Linear(width, output.size)

    def share(self, table: nn.Parameter | None) -> None:
        if table is not None and table.shape == self.output.weight.shape:
            self.output.weight = table

    def count(self, target: Target) -> int:
        return int(target.mask.sum())

    def loss(self, hidden: Hidden, target: Target, progress: float = 0.0) -> Loss:
        states = hidden.need("states")[target.mask]
        scores: Tensor = self.output(self.between(states)).float()
        return Loss(F.cross_entropy(scores, target.tokens[target.mask], reduction="sum"), len(states))

    def predict(self, hidden: Hidden, options: object) -> list[object]:
        raise TwofoldError("this model was pre-trained and answers nothing; name its folder as a recipe's `encoder`")
