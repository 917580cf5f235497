"""A recurrent network that writes a text from one vector of fixed size, without attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from twofold.decoders import DecoderConfig
from twofold.generate.decoder import TextDecoder, make_output, sampled_teaching
from twofold.generate.search import Step
from twofold.layers.blocks import make_embedding
from twofold.layers.dropout import dropout
from twofold.layers.recurrent import CellKind, Recurrent, RecurrentState
from twofold.types import Hidden, HiddenSpec, OutputSpec, Vocabulary


@dataclass(frozen=True)
class Config(DecoderConfig):
    """Settings of the recurrent decoder."""

    cell: CellKind = "gru"
    """GRU or LSTM."""
    embedding: int = 128
    """Width of the token vectors and of the features that meet the vocabulary."""
    width: int = 256
    """Width of the state."""
    layers: int = 1
    """How many layers lie above each other."""
    dropout: float = 0.1
    """Share of values set to zero on the token vectors, between the layers and on the features."""
    label_smoothing: float = 0.0
    """Share of the probability that is spread over all tokens when learning."""
    tied: bool = True
    """Whether the layer over the vocabulary shares the table of token vectors."""
    scheduled_sampling: float = 0.0
    """Chance of reading its own prediction instead of the right token, growing from 0 to this over the training."""

    def needs(self) -> frozenset[str]:
        return frozenset({"summary"})

    def build(self, spec: HiddenSpec, output: OutputSpec) -> RNNDecoder:
        assert isinstance(output, Vocabulary)
        return RNNDecoder(self, spec.width("summary"), output)


class Remembered(NamedTuple):
    """The vector, and the state of the recurrence."""

    vector: Tensor
    state: RecurrentState

    def select(self, rows: Tensor) -> Remembered:
        return Remembered(self.vector.index_select(0, rows), tuple(part.index_select(1, rows) for part in self.state))


class RNNDecoder(TextDecoder):
    """The vector sets the first state and is read again with every token."""

    def __init__(self, config: Config, memory_width: int, vocabulary: Vocabulary) -> None:
        super().__init__(vocabulary, config.label_smoothing)
        self.dropout, self.scheduled_sampling = config.dropout, config.scheduled_sampling
        self.embedding = make_embedding(vocabulary.size, config.embedding)
        self.first = nn.Linear(memory_width, config.layers * config.width)
        inputs = config.embedding + memory_width
        self.recurrent = Recurrent(config.cell, inputs, config.width, config.layers, config.dropout)
        self.readout = nn.Linear(config.width + inputs, config.embedding)
        self.output = make_output(config.embedding, vocabulary.size, self.embedding if config.tied else None)

    def teach(self, hidden: Hidden, tokens: Tensor, mask: Tensor, progress: float) -> Tensor:
        chance = self.scheduled_sampling * progress
        if self.training and chance:
            return sampled_teaching(self, hidden, tokens, chance)
        return self.forward(self.start(hidden), tokens)[0]

    def start(self, hidden: Hidden) -> Remembered:
        vector = hidden.need("summary")
        return Remembered(vector, self.recurrent.state(torch.tanh(self.first(vector))))

    def step(self, state: Remembered, tokens: Tensor) -> Step:
        features, after = self.forward(state, tokens[:, None])
        return Step(features[:, 0], after)

    def forward(self, state: Remembered, tokens: Tensor) -> tuple[Tensor, Remembered]:
        """Features (rows, positions, embedding) after each token, and the state after the last."""
        embedded = dropout(self.embedding(tokens), self.dropout, self.training)
        inputs = torch.cat([embedded, state.vector[:, None].expand(-1, tokens.shape[1], -1)], -1)
        outputs, after = self.recurrent(inputs, state.state)
        features = torch.tanh(self.readout(torch.cat([outputs, inputs], -1)))
        return dropout(features, self.dropout, self.training), Remembered(state.vector, after)
