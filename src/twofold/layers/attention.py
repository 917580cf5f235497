"""Multi-head attention over cached or fresh keys and values, and additive or dot attention for the RNNs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from twofold.layers.positions import Rotary


class Attended(NamedTuple):
    """What attention read, and where it looked if that was asked for."""

    values: Tensor
    weights: Tensor | None = None
    """(rows, heads, queries, keys)"""


@dataclass(frozen=True)
class KeysValues:
    """Keys and values, (rows, heads, positions, width of a head) each."""

    keys: Tensor
    values: Tensor

    def followed_by(self, more: KeysValues) -> KeysValues:
        return KeysValues(torch.cat([self.keys, more.keys], 2), torch.cat([self.values, more.values], 2))

    def select(self, rows: Tensor) -> KeysValues:
        return KeysValues(self.keys.index_select(0, rows), self.values.index_select(0, rows))


def attend(
    queries: Tensor,
    memory: KeysValues,
    mask: Tensor | None = None,
    causal: bool = False,
    dropout: float = 0.0,
    weights: bool = False,
) -> Attended:
    """softmax(q·k / √d)·v; `mask` is true where a query may look, `causal` hides what lies ahead."""
    if not weights:
        values = F.scaled_dot_product_attention(
            queries, memory.keys, memory.values, attn_mask=mask, dropout_p=dropout, is_causal=causal
        )
        return Attended(values)
    scores = queries @ memory.keys.transpose(-2, -1) / math.sqrt(queries.shape[-1])
    if causal:
        ahead = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(ahead, -math.inf)
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf)
    share = scores.softmax(-1)
    return Attended(F.dropout(share, dropout) @ memory.values, share)


class SelfAttention(nn.Module):
    """Every position looks at the others, or only at those before it."""

    def __init__(self, width: int, heads: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.project = nn.Linear(width, 3 * width)
        self.output = nn.Linear(width, width)
        nn.init.xavier_uniform_(self.project.weight, gain=1 / math.sqrt(2))
        nn.init.zeros_(self.project.bias)

    def forward(self, states: Tensor, mask: Tensor | None, causal: bool, rotary: Rotary | None) -> Tensor:
        """`states` is (rows, positions, width), `mask` (rows, positions) true where real."""
        queries, memory = self._read(states, rotary, 0)
        allowed = None if mask is None else mask[:, None, None]
        dropout = self.dropout if self.training else 0.0
        return self.output(_join(attend(queries, memory, allowed, causal, dropout).values))  # type: ignore[no-any-return]

    def step(self, state: Tensor, past: KeysValues | None, rotary: Rotary | None) -> tuple[Tensor, KeysValues]:
        """One more position, (rows, 1, width), that looks at itself and at all before it."""
        start = 0 if past is None else past.keys.shape[2]
        queries, memory = self._read(state, rotary, start)
        if past is not None:
            memory = past.followed_by(memory)
        return self.output(_join(attend(queries, memory).values)), memory

    def _read(self, states: Tensor, rotary: Rotary | None, start: int) -> tuple[Tensor, KeysValues]:
        queries, keys, values = (_split(part, self.heads) for part in self.project(states).chunk(3, -1))
        if rotary is not None:
            queries, keys = rotary(queries, start), rotary(keys, start)
        return queries, KeysValues(keys, values)


class CrossAttention(nn.Module):
    """Positions of one side look at the positions of another."""

    def __init__(self, width: int, heads: int, memory_width: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.query = nn.Linear(width, width)
        self.memory = nn.Linear(memory_width, 2 * width)
        self.output = nn.Linear(width, width)
        for linear in (self.query, self.memory):
            nn.init.xavier_uniform_(linear.weight)
            nn.init.zeros_(linear.bias)

    def remember(self, states: Tensor) -> KeysValues:
        """The keys and values of the other side, (rows, positions, memory width), computed once."""
        keys, values = (_split(part, self.heads) for part in self.memory(states).chunk(2, -1))
        return KeysValues(keys, values)

    def forward(self, states: Tensor, memory: KeysValues, mask: Tensor, weights: bool = False) -> Attended:
        """`mask` is (rows, positions of the other side), true where real."""
        dropout = self.dropout if self.training else 0.0
        found = attend(_split(self.query(states), self.heads), memory, mask[:, None, None], False, dropout, weights)
        return Attended(self.output(_join(found.values)), found.weights)


class QueryAttention(nn.Module):
    """One softmax over the positions for each query: additive, v·tanh(W q + U k), or a scaled dot product."""

    def __init__(self, query_width: int, memory_width: int, width: int, kind: Literal["additive", "dot"]) -> None:
        super().__init__()
        self.query = nn.Linear(query_width, width)
        self.key = nn.Linear(memory_width, width, bias=False)
        self.energy = nn.Linear(width, 1, bias=False) if kind == "additive" else None

    def forward(self, queries: Tensor, keys: Tensor, states: Tensor, mask: Tensor) -> Attended:
        """Queries (rows, queries, query width); keys from `self.key`; values are the states themselves."""
        asked = self.query(queries)
        if self.energy is None:
            scores = asked @ keys.transpose(1, 2) / math.sqrt(keys.shape[-1])
        else:
            scores = self.energy(torch.tanh(asked[:, :, None] + keys[:, None]))[..., 0]
        share = scores.masked_fill(~mask[:, None], -math.inf).softmax(-1)  # (rows, queries, positions)
        return Attended(share @ states, share[:, None])


def _split(states: Tensor, heads: int) -> Tensor:
    rows, positions, width = states.shape
    return states.view(rows, positions, heads, width // heads).transpose(1, 2)


def _join(states: Tensor) -> Tensor:
    return states.transpose(1, 2).flatten(2)
