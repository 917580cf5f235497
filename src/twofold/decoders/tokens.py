"""Pre-training by prediction of tokens: masked ones, or the next one over a causal encoder."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from twofold.decoders import DecoderConfig
from twofold.errors import TwofoldError
from twofold.results import DecoderOutput, TokenScores
from twofold.types import Decoder, Hidden, HiddenSpec, Loss, OutputSpec, Target, Vocabulary


@dataclass(frozen=True)
class Config(DecoderConfig):
    """Settings of the language-modeling decoder, which pre-trains a text encoder."""

    output = "tokens"
    writes = TokenScores

    def build(self, spec: HiddenSpec, output: OutputSpec) -> TokensDecoder:
        assert isinstance(output, Vocabulary)
        return TokensDecoder(spec, output)


class TokensDecoder(Decoder):
    """Language-model head: a dense layer, then the output layer, tied to the encoder's embeddings if the shapes fit."""

    def __init__(self, spec: HiddenSpec, output: Vocabulary) -> None:
        super().__init__()
        width = spec.width("states")
        self.between = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.LayerNorm(width))
        self.output = nn.Linear(width, output.size)

    def share(self, table: nn.Parameter | None) -> None:
        if table is not None and table.shape == self.output.weight.shape:
            self.output.weight = table

    def forward(self, hidden: Hidden, target: Target | None = None, progress: float = 0.0) -> DecoderOutput:
        return DecoderOutput(self.output(self.between(hidden.need("states"))).float())

    def count(self, target: Target) -> int:
        return int(target.mask.sum())

    def loss(self, hidden: Hidden, target: Target, progress: float = 0.0) -> Loss:
        scores: Tensor = self.output(self.between(hidden.need("states")[target.mask])).float()
        return Loss(F.cross_entropy(scores, target.tokens[target.mask], reduction="sum"), len(scores))

    def predict(self, hidden: Hidden, options: object) -> list[object]:
        raise TwofoldError(
            "a language model for pre-training has no answers; name its folder as the `encoder` of a recipe"
        )
