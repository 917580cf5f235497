"""Recurrent text decoder with attention over all positions of the source at every step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from twofold.decoders import RecurrentDecoder, RecurrentDecoderConfig
from twofold.generate.decoder import repeated
from twofold.layers.blocks import dropout
from twofold.layers.linear import make_output
from twofold.layers.pooling import masked_mean
from twofold.layers.recurrent import QueryAttention, Recurrent, RecurrentState
from twofold.recording import record_attention
from twofold.types import Hidden, HiddenSpec, OutputSpec, Vocabulary


@dataclass(frozen=True)
class Config(RecurrentDecoderConfig):
    """Settings of the recurrent decoder with attention; `width` is also the width of the attention space."""

    layers: int = 2
    """Number of stacked recurrent layers; the first one computes the query, the others read the attended context."""
    attention: Literal["additive", "dot"] = "additive"
    """Attention score: `additive`, v·tanh(W q + U k), or `dot`, the scaled dot product."""
    recurrence: Literal["luong", "bahdanau"] = "luong"
    """Recurrence: `luong` attends after the update, c_i from s_i; `bahdanau` attends before it, c_i from s_{i-1}, and
    s_i = f(s_{i-1}, y_{i-1}, c_i), which trains token by token."""

    def build(self, spec: HiddenSpec, output: OutputSpec) -> AttentionRNNDecoder:
        assert isinstance(output, Vocabulary)
        return AttentionRNNDecoder(self, spec.width("states"), output)


class Remembered(NamedTuple):
    """States of the source, their keys, the padding mask, and the states of the recurrent layers."""

    source: Tensor
    keys: Tensor
    mask: Tensor
    asking: RecurrentState
    reading: RecurrentState

    def select(self, rows: Tensor) -> Remembered:
        source, keys, mask = (part.index_select(0, rows) for part in self[:3])
        asking, reading = (tuple(part.index_select(1, rows) for part in state) for state in self[3:])
        return Remembered(source, keys, mask, asking, reading)


class Asked(NamedTuple):
    """Outputs of the first layer, the results and weights of attention for each, and the final recurrent state."""

    outputs: Tensor
    answers: Tensor
    weights: Tensor
    asking: RecurrentState


class AttentionRNNDecoder(RecurrentDecoder):
    """Recurrent decoder whose first layer makes the queries; the layers above read the result of attention.

    With the recurrence of Luong et al. (2015) a query does not depend on the attention before it, so that in training
    each layer runs over the whole target at once. With that of Bahdanau et al. (2015) the first layer reads the result
    of attention with each token, so it runs token by token; the layers above still run over the whole target.
    """

    def __init__(self, config: Config, memory_width: int, vocabulary: Vocabulary) -> None:
        super().__init__(config, memory_width, vocabulary)
        self.asks_first = config.recurrence == "bahdanau"
        read = config.embedding + (memory_width if self.asks_first else 0)
        self.asking = Recurrent(config.cell, read, config.width, 1, 0.0)
        self.attend = QueryAttention(config.width, memory_width, config.width, config.attention)
        answered, above = config.width + memory_width, config.layers - 1
        self.reading = Recurrent(config.cell, answered, config.width, above, config.dropout) if above else None
        self.readout = nn.Linear(answered + config.embedding, config.embedding)
        self.output = make_output(config.embedding, vocabulary.size, self.embedding if config.tied else None)

    def start(self, hidden: Hidden, beam: int = 1) -> Remembered:
        hidden = repeated(hidden, beam)
        source, mask = hidden.need("states"), hidden.mask
        first = torch.tanh(self.first(masked_mean(source, mask)))
        asking = self.asking.state(first[:, : self.asking.width])
        reading = self.reading.state(first[:, self.asking.width :]) if self.reading else ()
        return Remembered(source, self.attend.key(source), mask, asking, reading)

    def run(self, state: Remembered, tokens: Tensor) -> tuple[Tensor, Remembered]:
        embedded = dropout(self.embedding(tokens), self.dropout, self.training)
        outputs, answers, weights, asking = (self._ask_first if self.asks_first else self._ask)(embedded, state)
        record_attention("cross", weights[:, None])
        reading = state.reading
        if self.reading is not None:
            inputs = dropout(outputs, self.dropout, self.training)
            outputs, reading = self.reading(torch.cat([inputs, answers], -1), reading)
        features = torch.tanh(self.readout(torch.cat([outputs, answers, embedded], -1)))
        after = state._replace(asking=asking, reading=reading)
        return dropout(features, self.dropout, self.training), after

    def _ask(self, embedded: Tensor, state: Remembered) -> Asked:
        """Attends after each update of the state (Luong)."""
        outputs, asking = self.asking(embedded, state.asking)
        attended = self.attend(outputs, state.keys, state.source, state.mask)
        return Asked(outputs, attended.values, attended.weights[:, 0], asking)

    def _ask_first(self, embedded: Tensor, state: Remembered) -> Asked:
        """Attends before each update of the state (Bahdanau)."""
        asking, parts = state.asking, []
        for token in torch.split(embedded, 1, 1):  # (rows, 1, embedding)
            question = asking[0].transpose(0, 1)  # (rows, 1, width)
            answer, weights = self.attend(question, state.keys, state.source, state.mask)
            output, asking = self.asking(torch.cat([token, answer], -1), asking)
            parts.append((output, answer, weights[:, 0]))
        outputs, answers, shares = (torch.cat(values, 1) for values in zip(*parts, strict=True))
        return Asked(outputs, answers, shares, asking)
