"""Recurrent text decoder over one vector of fixed size, without attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from twofold.decoders import RecurrentDecoder, RecurrentDecoderConfig
from twofold.generate.decoder import repeated
from twofold.layers.blocks import dropout
from twofold.layers.linear import make_output
from twofold.layers.recurrent import Recurrent, RecurrentState
from twofold.types import Hidden, HiddenSpec, OutputSpec, Vocabulary


@dataclass(frozen=True)
class Config(RecurrentDecoderConfig):
    """Settings of the recurrent decoder."""

    def needs(self) -> frozenset[str]:
        return frozenset({"summary"})

    def build(self, spec: HiddenSpec, output: OutputSpec) -> RNNDecoder:
        assert isinstance(output, Vocabulary)
        return RNNDecoder(self, spec.width("summary"), output)


class Remembered(NamedTuple):
    """Vector of the source, and the state of the recurrent layers."""

    vector: Tensor
    state: RecurrentState

    def select(self, rows: Tensor) -> Remembered:
        return Remembered(self.vector.index_select(0, rows), tuple(part.index_select(1, rows) for part in self.state))


class RNNDecoder(RecurrentDecoder):
    """Recurrent decoder: the vector sets the initial state and is read again with every token."""

    def __init__(self, config: Config, memory_width: int, vocabulary: Vocabulary) -> None:
        super().__init__(config, memory_width, vocabulary)
        inputs = config.embedding + memory_width
        self.recurrent = Recurrent(config.cell, inputs, config.width, config.layers, config.dropout)
        self.readout = nn.Linear(config.width + inputs, config.embedding)
        self.output = make_output(config.embedding, vocabulary.size, self.embedding if config.tied else None)

    def start(self, hidden: Hidden, beam: int = 1) -> Remembered:
        hidden = repeated(hidden, beam)
        vector = hidden.need("summary")
        return Remembered(vector, self.recurrent.state(torch.tanh(self.first(vector))))

    def run(self, state: Remembered, tokens: Tensor) -> tuple[Tensor, Remembered]:
        embedded = dropout(self.embedding(tokens), self.dropout, self.training)
        inputs = torch.cat([embedded, state.vector[:, None].expand(-1, tokens.shape[1], -1)], -1)
        outputs, after = self.recurrent(inputs, state.state)
        features = torch.tanh(self.readout(torch.cat([outputs, inputs], -1)))
        return dropout(features, self.dropout, self.training), Remembered(state.vector, after)
