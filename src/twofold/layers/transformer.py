"""The layers of a Transformer: multi-head attention and feed-forward, each with its norm, dropout and way around."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from twofold.layers.blocks import NormKind, PositionKind, Rotary, dropout, make_norm


@dataclass(frozen=True)
class BlockSettings:
    """What Transformer encoders and decoders have in common."""

    width: int = 256
    """Width of the token vectors and of all states."""
    layers: int = 4
    """How many layers lie above each other."""
    heads: int = 4
    """How many attentions run side by side in a layer; they share the width."""
    feed_forward: int | None = None
    """Width inside the feed-forward layers; without it four times the width."""
    positions: PositionKind = "sinusoidal"
    """How the order of tokens is made known."""
    norm: NormKind = "layer"
    """LayerNorm, or BatchNorm over the real positions of the batch."""
    norm_place: Literal["pre", "post"] = "pre"
    """Whether the norm stands before each layer or after the sum."""
    activation: Literal["relu", "gelu"] = "relu"
    """The activation inside the feed-forward layers."""
    dropout: float = 0.1
    """Share of values set to zero on the token vectors and after each layer."""
    attention_dropout: float = 0.0
    """The same on the attention weights; slow on CPUs, whose fused attention has none."""

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} cannot be shared by {self.heads} heads; make it a multiple")
        if self.positions == "rotary" and self.width // self.heads % 2:
            raise ValueError(f"rotary positions need heads of even width, not {self.width // self.heads}")
        if self.positions == "sinusoidal" and self.width % 2:
            raise ValueError(f"sinusoidal positions need an even width, not {self.width}")

    def make_rotary(self, limit: int) -> Rotary | None:
        return Rotary(self.width // self.heads, limit) if self.positions == "rotary" else None

    def make_last_norm(self) -> nn.Module | None:
        """With norms before the layers, one more after the last."""
        return make_norm(self.norm, self.width) if self.norm_place == "pre" else None


class EncoderBlock(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(self, settings: BlockSettings) -> None:
        super().__init__()
        self.attention = SelfAttention(settings.width, settings.heads, settings.attention_dropout)
        self.feed_forward = FeedForward(settings)
        self.around_attention, self.around_feed_forward = Around(settings), Around(settings)

    def forward(self, states: Tensor, mask: Tensor, causal: bool, rotary: Rotary | None) -> Tensor:
        # Padding stands on the right, so what looks only backwards never sees it from a real position.
        allowed = None if causal else mask
        states = self.around_attention(states, mask, lambda x: self.attention(x, allowed, causal, rotary))
        return self.around_feed_forward(states, mask, self.feed_forward)  # type: ignore[no-any-return]


class DecoderBlock(nn.Module):
    """Masked self-attention, then cross-attention, then feed-forward."""

    def __init__(self, settings: BlockSettings, memory_width: int) -> None:
        super().__init__()
        self.attention = SelfAttention(settings.width, settings.heads, settings.attention_dropout)
        self.cross = CrossAttention(settings.width, settings.heads, memory_width, settings.attention_dropout)
        self.feed_forward = FeedForward(settings)
        self.around_attention, self.around_cross = Around(settings), Around(settings)
        self.around_feed_forward = Around(settings)

    def forward(
        self, states: Tensor, mask: Tensor, memory: KeysValues, source: Tensor, rotary: Rotary | None, weights: bool
    ) -> Attended:
        """All positions at once, each seeing those before it; the weights are those of the cross-attention.

        `mask` is (rows, positions), `source` (rows, positions of the source), both true where real.
        """
        states = self.around_attention(states, mask, lambda x: self.attention(x, None, True, rotary))
        return self._read_source(states, mask, memory, source, weights)

    def step(
        self, state: Tensor, past: KeysValues | None, memory: KeysValues, source: Tensor, rotary: Rotary | None
    ) -> tuple[Tensor, KeysValues]:
        """One more position, (rows, 1, width), and the keys and values up to it."""
        around = self.around_attention
        changed, grown = self.attention.step(around.enter(state, None), past, rotary)
        state = around.leave(state, changed, None)
        return self._read_source(state, None, memory, source, False).values, grown

    def _read_source(
        self, states: Tensor, mask: Tensor | None, memory: KeysValues, source: Tensor, weights: bool
    ) -> Attended:
        looked = self.cross(self.around_cross.enter(states, mask), memory, source, weights)
        states = self.around_cross.leave(states, looked.values, mask)
        return Attended(self.around_feed_forward(states, mask, self.feed_forward), looked.weights)


class Around(nn.Module):
    """A way around a layer: x + f(norm(x)) before, norm(x + f(x)) after."""

    def __init__(self, settings: BlockSettings) -> None:
        super().__init__()
        self.norm = make_norm(settings.norm, settings.width)
        self.before = settings.norm_place == "pre"
        self.dropout = settings.dropout

    def forward(self, states: Tensor, mask: Tensor | None, layer: Callable[[Tensor], Tensor]) -> Tensor:
        return self.leave(states, layer(self.enter(states, mask)), mask)

    def enter(self, states: Tensor, mask: Tensor | None) -> Tensor:
        """What the layer reads."""
        return self.norm(states, mask) if self.before else states

    def leave(self, states: Tensor, changed: Tensor, mask: Tensor | None) -> Tensor:
        """The states with what the layer made of them."""
        states = states + dropout(changed, self.dropout, self.training)
        return states if self.before else self.norm(states, mask)


class FeedForward(nn.Module):
    """Two linear maps with an activation between, for each position by itself."""

    def __init__(self, settings: BlockSettings) -> None:
        super().__init__()
        inner = settings.feed_forward or 4 * settings.width
        self.inner = nn.Linear(settings.width, inner)
        self.outer = nn.Linear(inner, settings.width)
        self.activation = F.relu if settings.activation == "relu" else F.gelu
        self.dropout = settings.dropout

    def forward(self, states: Tensor) -> Tensor:
        inner = dropout(self.activation(self.inner(states)), self.dropout, self.training)
        return self.outer(inner)  # type: ignore[no-any-return]


class Attended(NamedTuple):
    """What attention read, and where it looked if that was asked for."""

    values: Tensor
    weights: Tensor | None = None
    """(rows, heads, queries, keys)"""


class KeysValues(NamedTuple):
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
        return Attended(F.scaled_dot_product_attention(queries, *memory, mask, dropout, causal))
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
        queries, memory = self._read(state, rotary, 0 if past is None else past.keys.shape[2])
        if past is not None:
            memory = past.followed_by(memory)
        return self.output(_join(attend(queries, memory).values)), memory

    def _read(self, states: Tensor, rotary: Rotary | None, start: int) -> tuple[Tensor, KeysValues]:
        queries, keys, values = _split(self.project(states), self.heads, 3)
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
        return KeysValues(*_split(self.memory(states), self.heads, 2))

    def forward(self, states: Tensor, memory: KeysValues, mask: Tensor, weights: bool = False) -> Attended:
        """`mask` is (rows, positions of the other side), true where real."""
        dropout = self.dropout if self.training else 0.0
        (queries,) = _split(self.query(states), self.heads, 1)
        values, looked = attend(queries, memory, mask[:, None, None], False, dropout, weights)
        return Attended(self.output(_join(values)), looked)


def _split(states: Tensor, heads: int, parts: int) -> list[Tensor]:
    """(rows, positions, parts × width) → for each part (rows, heads, positions, width of a head)."""
    return [part.view(*part.shape[:2], heads, -1).transpose(1, 2) for part in states.chunk(parts, 2)]


def _join(states: Tensor) -> Tensor:
    return states.transpose(1, 2).flatten(2)
