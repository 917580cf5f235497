"""A recurrent network that looks at all positions of the source before it writes each token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor, nn

from twofold.decoders import DecoderConfig
from twofold.generate.decoder import TextDecoder, make_output, sampled_teaching
from twofold.generate.search import Step
from twofold.layers.attention import QueryAttention
from twofold.layers.blocks import make_embedding
from twofold.layers.dropout import dropout
from twofold.layers.pooling import masked_mean
from twofold.layers.recurrent import CellKind, Recurrent, RecurrentState
from twofold.types import Hidden, HiddenSpec, OutputSpec, Vocabulary


@dataclass(frozen=True)
class Config(DecoderConfig):
    """Settings of the recurrent decoder with attention."""

    cell: CellKind = "gru"
    """GRU or LSTM."""
    embedding: int = 128
    """Width of the token vectors and of the features that meet the vocabulary."""
    width: int = 256
    """Width of the state, and of the space in which attention compares."""
    layers: int = 2
    """The first asks where to look; those above read what was found there."""
    attention: Literal["additive", "dot"] = "additive"
    """v·tanh(W q + U k), or a scaled dot product."""
    dropout: float = 0.1
    """Share of values set to zero on the token vectors, between the layers and on the features."""
    label_smoothing: float = 0.0
    """Share of the probability that is spread over all tokens when learning."""
    tied: bool = True
    """Whether the layer over the vocabulary shares the table of token vectors."""
    scheduled_sampling: float = 0.0
    """Chance of reading its own prediction instead of the right token, growing from 0 to this over the training."""

    def needs(self) -> frozenset[str]:
        return frozenset({"states"})

    def build(self, spec: HiddenSpec, output: OutputSpec) -> AttentionRNNDecoder:
        assert isinstance(output, Vocabulary)
        return AttentionRNNDecoder(self, spec.width("states"), output)


class Remembered(NamedTuple):
    """The source as read, its keys computed once, and the states of the recurrences."""

    source: Tensor
    keys: Tensor
    mask: Tensor
    asking: RecurrentState
    reading: RecurrentState

    def select(self, rows: Tensor) -> Remembered:
        source, keys, mask = (part.index_select(0, rows) for part in self[:3])
        asking, reading = (tuple(part.index_select(1, rows) for part in state) for state in self[3:])
        return Remembered(source, keys, mask, asking, reading)


class Read(NamedTuple):
    """Features after each token, the state after the last, and where attention looked."""

    features: Tensor
    after: Remembered
    weights: Tensor


class AttentionRNNDecoder(TextDecoder):
    """The first layer follows what is written and asks; what attention finds goes into the layers above.

    The question does not wait for the answer to the one before, so that in training each layer runs over
    the whole target at once instead of token by token.
    """

    attends: ClassVar = True

    def __init__(self, config: Config, memory_width: int, vocabulary: Vocabulary) -> None:
        super().__init__(vocabulary, config.label_smoothing)
        self.dropout, self.scheduled_sampling = config.dropout, config.scheduled_sampling
        self.embedding = make_embedding(vocabulary.size, config.embedding)
        self.first = nn.Linear(memory_width, config.layers * config.width)
        self.asking = Recurrent(config.cell, config.embedding, config.width, 1, 0.0)
        self.attend = QueryAttention(config.width, memory_width, config.width, config.attention)
        found = config.width + memory_width
        above = config.layers - 1
        self.reading = Recurrent(config.cell, found, config.width, above, config.dropout) if above else None
        self.readout = nn.Linear(config.width + memory_width + config.embedding, config.embedding)
        self.output = make_output(config.embedding, vocabulary.size, self.embedding if config.tied else None)

    def teach(self, hidden: Hidden, tokens: Tensor, mask: Tensor, progress: float) -> Tensor:
        chance = self.scheduled_sampling * progress
        if self.training and chance:
            return sampled_teaching(self, hidden, tokens, chance)
        return self.forward(self.start(hidden), tokens).features

    def start(self, hidden: Hidden) -> Remembered:
        source, mask = hidden.need("states"), hidden.mask
        first = torch.tanh(self.first(masked_mean(source, mask)))
        asking, reading = first[:, : self.asking.width], first[:, self.asking.width :]
        below = self.asking.state(asking)
        return Remembered(
            source, self.attend.key(source), mask, below, self.reading.state(reading) if self.reading else ()
        )

    def step(self, state: Remembered, tokens: Tensor) -> Step:
        read = self.forward(state, tokens[:, None])
        return Step(read.features[:, 0], read.after)

    def attention(self, hidden: Hidden, tokens: Tensor) -> Tensor:
        return self.forward(self.start(hidden), tokens).weights

    def forward(self, state: Remembered, tokens: Tensor) -> Read:
        """Features (rows, positions, embedding), and all that follows from the tokens."""
        embedded = dropout(self.embedding(tokens), self.dropout, self.training)
        outputs, asking = self.asking(embedded, state.asking)
        found = self.attend(outputs, state.keys, state.source, state.mask)
        reading = state.reading
        if self.reading is not None:
            inputs = dropout(outputs, self.dropout, self.training)
            outputs, reading = self.reading(torch.cat([inputs, found.values], -1), reading)
        features = torch.tanh(self.readout(torch.cat([outputs, found.values, embedded], -1)))
        after = state._replace(asking=asking, reading=reading)
        return Read(dropout(features, self.dropout, self.training), after, found.weights[:, 0])
