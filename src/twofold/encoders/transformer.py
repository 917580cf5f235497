"""Transformer over a text, with bidirectional or causal self-attention."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from twofold.encoders import EncoderConfig
from twofold.inputs.text import Tokens
from twofold.layers.blocks import Embed, make_embedding
from twofold.layers.pooling import masked_mean, state_at
from twofold.layers.transformer import BlockSettings, EncoderBlock
from twofold.types import Batch, Encoder, Hidden, HiddenSpec, Vocabulary


@dataclass(frozen=True)
class Config(BlockSettings, EncoderConfig):
    """Settings of the Transformer encoder."""

    causal: bool = False
    """Uses a causal (look-ahead) mask: each token attends to itself and to earlier tokens only."""

    def spec(self) -> HiddenSpec:
        return HiddenSpec(states=self.width, summary=self.width, causal=self.causal)

    def build(self, vocabulary: Vocabulary, needs: frozenset[str]) -> TransformerEncoder:
        return TransformerEncoder(self, vocabulary, needs)


class TransformerEncoder(Encoder):
    """Transformer encoder: the states of all positions; the summary is their mean, or the last real state if causal."""

    def __init__(self, config: Config, vocabulary: Vocabulary, needs: frozenset[str]) -> None:
        super().__init__()
        self.needs, self.causal = needs, config.causal
        self.embedding = make_embedding(vocabulary.size, config.width)
        self.embed = Embed(config.positions, config.width, vocabulary.limit, config.dropout)
        self.rotary = config.make_rotary(vocabulary.limit)
        self.blocks = nn.ModuleList(EncoderBlock(config) for _ in range(config.layers))
        self.norm = config.make_last_norm()

    def forward(self, batch: Batch) -> Hidden:
        text = batch.read(Tokens)
        states, mask = self.embed(self.embedding(text.tokens)), text.mask
        for block in self.blocks:
            states = block(states, mask, self.causal, self.rotary)
        if self.norm is not None:
            states = self.norm(states, mask)
        summary = None
        if "summary" in self.needs:
            summary = state_at(states, mask.sum(1) - 1) if self.causal else masked_mean(states, mask)
        return Hidden(mask=mask, states=states if "states" in self.needs else None, summary=summary)
