"""GRU and LSTM layers over padded rows: unidirectional with a state for step-by-step decoding, or bidirectional."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from twofold.layers.attend import Attended
from twofold.layers.blocks import dropout

CellKind = Literal["gru", "lstm"]
RecurrentState = tuple[Tensor, ...]
"""State (layers, rows, width); LSTMs add the cell state in the same shape."""


@dataclass(frozen=True)
class RecurrentSettings:
    """Settings shared by recurrent encoders and decoders."""

    cell: CellKind = "gru"
    """Recurrent cell: `gru` or `lstm`."""
    embedding: int = 128
    """Width of the token embeddings, and in a decoder of the features before the output layer."""
    width: int = 256
    """Width of the hidden state; in a bidirectional encoder, of each direction."""
    layers: int = 1
    """Number of stacked recurrent layers."""


class Recurrent(nn.Module):
    """Unidirectional recurrent layers, from left to right."""

    def __init__(self, cell: CellKind, input_width: int, width: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.cell, self.layers, self.width = cell, layers, width
        between = dropout if layers > 1 else 0.0
        self.rnn = _kind(cell)(input_width, width, layers, batch_first=True, dropout=between)

    def state(self, first: Tensor) -> RecurrentState:
        """Creates the initial state from (rows, layers × width)."""
        state = first.view(-1, self.layers, self.width).transpose(0, 1).contiguous()
        return (state,) if self.cell == "gru" else (state, torch.zeros_like(state))

    def forward(self, inputs: Tensor, state: RecurrentState) -> tuple[Tensor, RecurrentState]:
        """Maps (rows, positions, input width) to (rows, positions, width); also returns the final state."""
        outputs, after = self.rnn(inputs, state[0] if self.cell == "gru" else state)
        return outputs, (after,) if self.cell == "gru" else after


class TwoWay(nn.Module):
    """Recurrent layers in one or both directions; padding is never read before a real position."""

    def __init__(
        self, cell: CellKind, input_width: int, width: int, layers: int, directions: int, dropout: float
    ) -> None:
        super().__init__()
        self.dropout, kind = dropout, _kind(cell)
        widths = [input_width] + [directions * width] * (layers - 1)
        self.forwards = nn.ModuleList(kind(size, width, batch_first=True) for size in widths)
        self.backwards = nn.ModuleList(kind(size, width, batch_first=True) for size in widths if directions == 2)

    def forward(self, states: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        """Maps (rows, positions, input width) to states (rows, positions, output width) and the final state of each
        direction."""
        turned = turned_around(mask)
        last = mask.sum(1, keepdim=True)[..., None] - 1
        for number, ahead in enumerate(self.forwards):
            if number:
                states = dropout(states, self.dropout, self.training)
            read = _free_positions(ahead(states)[0], mask)
            final = [_take(read, last)]
            if self.backwards:
                back = self.backwards[number](_take(states, turned))[0]
                final.append(_take(back, last))
                read = torch.cat([read, _take(back, turned)], -1)
            states = read
        return states, torch.cat(final, -1)[:, 0]


def turned_around(mask: Tensor) -> Tensor:
    """Indices (rows, positions, 1) that reverse the real positions of each row and keep padding in place."""
    position = torch.arange(mask.shape[1], device=mask.device).expand_as(mask)
    return torch.where(mask, mask.sum(1, keepdim=True) - 1 - position, position)[..., None]


class QueryAttention(nn.Module):
    """Attention of queries over positions: additive, v·tanh(W q + U k) (Bahdanau et al. 2015), or scaled dot
    product."""

    def __init__(self, query_width: int, memory_width: int, width: int, kind: Literal["additive", "dot"]) -> None:
        super().__init__()
        self.query = nn.Linear(query_width, width)
        self.key = nn.Linear(memory_width, width, bias=False)
        self.energy = nn.Linear(width, 1, bias=False) if kind == "additive" else None

    def forward(self, queries: Tensor, keys: Tensor, states: Tensor, mask: Tensor) -> Attended:
        """Attends with queries (rows, queries, query width); keys come from `self.key`, values are the states."""
        asked = self.query(queries)
        if self.energy is None:
            scores = asked @ keys.transpose(1, 2) / math.sqrt(keys.shape[-1])
        else:
            scores = self.energy(torch.tanh(asked[:, :, None] + keys[:, None]))[..., 0]
        share = scores.masked_fill(~mask[:, None], -math.inf).softmax(-1)  # (rows, queries, positions)
        return Attended(share @ states, share[:, None])


def _kind(cell: CellKind) -> type[nn.GRU | nn.LSTM]:
    return nn.GRU if cell == "gru" else nn.LSTM


def _free_positions(states: Tensor, mask: Tensor) -> Tensor:
    """States as they are; in an export their number of positions is that of the mask, not a constant."""
    if not torch.compiler.is_exporting():
        return states
    return _take(states, torch.arange(mask.shape[1], device=mask.device).expand(mask.shape)[..., None])


def _take(states: Tensor, positions: Tensor) -> Tensor:
    return states.gather(1, positions.expand(-1, -1, states.shape[-1]))
