"""Multi-head attention: self-attention with cached keys and values, and cross-attention."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from twofold.layers.attend import Attend, FullAttention, KeysValues, attend, attend_kept, kept
from twofold.layers.blocks import Rotary
from twofold.layers.cache import Cache
from twofold.layers.linear import Linear
from twofold.recording import record_attention, records_attention


class Past(NamedTuple):
    """Cached positions that one layer attends to during generation."""

    cache: Cache
    layer: int
    visible: Tensor | None
    """Mask to be added to the scores, (rows, 1, hypotheses, entries); None if all entries may be seen."""


class SelfAttention(nn.Module):
    """Multi-head self-attention, optionally causal; all kinds of `attend` have the same parameters."""

    def __init__(self, width: int, heads: int, dropout: float = 0.0, attend: Attend | None = None) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.attend = attend or FullAttention()
        self.project = Linear(width, 3 * width)
        self.output = Linear(width, width)
        nn.init.xavier_uniform_(self.project.weight, gain=1 / math.sqrt(2))
        nn.init.zeros_(self.project.bias)

    def forward(self, states: Tensor, mask: Tensor | None, causal: bool, rotary: Rotary | None) -> Tensor:
        """Attends over `states` (rows, positions, width); `mask` (rows, positions) is true where real."""
        queries, memory = self._read(states, rotary)
        allowed = None if mask is None else mask[:, None, None]
        dropout = self.dropout if self.training else 0.0
        values, weights = self.attend(queries, memory, allowed, causal, dropout, records_attention())
        record_attention("self", weights)
        return self.output(_join(values))  # type: ignore[no-any-return]

    def step(self, states: Tensor, past: Past, rotary: Rotary | None) -> Tensor:
        """Attends from the current position of each hypothesis, (rows, hypotheses, width), to itself and its past."""
        at = past.cache.length - 1
        queries, keys, values = _split(self.project(states), self.heads, 3)
        if rotary is not None:
            queries, keys = rotary(queries, at, at + 1), rotary(keys, at, at + 1)
        entries = past.cache.write(past.layer, kept(torch.cat([_join(keys), _join(values)], 2)))
        memory = KeysValues(*_split(entries, self.heads, 2))
        return self.output(_join(self.attend.step(queries, memory, past.visible)))  # type: ignore[no-any-return]

    def _read(self, states: Tensor, rotary: Rotary | None) -> tuple[Tensor, KeysValues]:
        queries, keys, values = _split(self.project(states), self.heads, 3)
        if rotary is not None:
            queries, keys = rotary(queries), rotary(keys)
        return queries, KeysValues(keys, values)


class CrossAttention(nn.Module):
    """Multi-head cross-attention: positions of one side attend to the other side."""

    def __init__(self, width: int, heads: int, memory_width: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.query = Linear(width, width)
        self.memory = Linear(memory_width, 2 * width)
        self.output = Linear(width, width)
        for linear in (self.query, self.memory):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def remember(self, states: Tensor) -> KeysValues:
        """Computes the keys and values of the other side, (rows, positions, memory width), once."""
        return KeysValues(*_split(self.memory(states), self.heads, 2))

    def forward(self, states: Tensor, memory: KeysValues, mask: Tensor) -> Tensor:
        """Attends to `memory`; `mask` (rows, positions of the other side) is true where real."""
        dropout = self.dropout if self.training else 0.0
        (queries,) = _split(self.query(states), self.heads, 1)
        if queries.dtype != memory.keys.dtype and not records_attention():  # kept for generation
            return self.output(_join(attend_kept(queries, memory, mask[:, None, None])))  # type: ignore[no-any-return]
        values, weights = attend(queries, memory, mask[:, None, None], False, dropout, records_attention())
        record_attention("cross", weights)
        return self.output(_join(values))  # type: ignore[no-any-return]


def _split(states: Tensor, heads: int, parts: int) -> list[Tensor]:
    """Splits (rows, positions, parts × width) into heads: (rows, heads, positions, width of a head) for each part."""
    return [part.view(*part.shape[:2], heads, -1).transpose(1, 2) for part in states.chunk(parts, 2)]


def _join(states: Tensor) -> Tensor:
    return states.transpose(1, 2).flatten(2)
