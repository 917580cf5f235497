"""Recurrent network, GRU or LSTM, over a text in one direction or both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from twofold.encoders import EncoderConfig
from twofold.inputs.text import Tokens
from twofold.layers.blocks import dropout, make_embedding
from twofold.layers.pooling import masked_max, masked_mean
from twofold.layers.recurrent import RecurrentSettings, TwoWay
from twofold.types import Batch, Encoder, Hidden, HiddenSpec, Vocabulary


@dataclass(frozen=True)
class Config(RecurrentSettings, EncoderConfig):
    """Settings of the recurrent encoder."""

    bidirectional: bool = True
    """Reads from right to left as well; states and summary are then twice as wide."""
    summary: Literal["last", "mean", "max"] = "last"
    """Summary vector: the `last` state of each direction, or `mean` or `max` pooling over all positions."""
    dropout: float = 0.1
    """Dropout probability on the embeddings, between the layers and on the states."""

    def spec(self) -> HiddenSpec:
        width = self.width * (1 + self.bidirectional)
        return HiddenSpec(states=width, summary=width, causal=not self.bidirectional)

    def build(self, vocabulary: Vocabulary, needs: frozenset[str]) -> RNNEncoder:
        return RNNEncoder(self, vocabulary, needs)


class RNNEncoder(Encoder):
    """Recurrent encoder: the states of all positions, and a summary pooled from them."""

    def __init__(self, config: Config, vocabulary: Vocabulary, needs: frozenset[str]) -> None:
        super().__init__()
        self.needs, self.dropout, self.summary = needs, config.dropout, config.summary
        self.embedding = make_embedding(vocabulary.size, config.embedding)
        directions = 1 + config.bidirectional
        self.layers = TwoWay(config.cell, config.embedding, config.width, config.layers, directions, config.dropout)

    def forward(self, batch: Batch) -> Hidden:
        text = batch.read(Tokens)
        embedded = dropout(self.embedding(text.tokens), self.dropout, self.training)
        states, last = self.layers(embedded, text.mask)
        return Hidden(
            mask=text.mask,
            states=dropout(states, self.dropout, self.training) if "states" in self.needs else None,
            summary=self._summary(states, last, text.mask) if "summary" in self.needs else None,
        )

    def _summary(self, states: Tensor, last: Tensor, mask: Tensor) -> Tensor:
        """Pools the summary, (rows, width)."""
        if self.summary == "max":
            last = masked_max(states, mask)
        elif self.summary == "mean":
            last = masked_mean(states, mask)
        return dropout(last, self.dropout, self.training)
