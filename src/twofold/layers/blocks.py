"""The layers of a Transformer: attention and feed-forward, each with its norm, dropout and way around."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from twofold.layers.attention import Attended, CrossAttention, KeysValues, SelfAttention
from twofold.layers.dropout import dropout
from twofold.layers.norms import NormKind, make_norm
from twofold.layers.positions import PositionKind, Positions, Rotary


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


class Around(nn.Module):
    """A way around a layer: x + f(norm(x)) before, norm(x + f(x)) after."""

    def __init__(self, settings: BlockSettings) -> None:
        super().__init__()
        self.norm = make_norm(settings.norm, settings.width)
        self.before = settings.norm_place == "pre"
        self.dropout = settings.dropout

    def forward(self, states: Tensor, mask: Tensor | None, layer: Callable[[Tensor], Tensor]) -> Tensor:
        changed = layer(self.norm(states, mask) if self.before else states)
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
        self,
        states: Tensor,
        mask: Tensor,
        memory: KeysValues,
        memory_mask: Tensor,
        rotary: Rotary | None,
        weights: bool,
    ) -> Attended:
        """All positions at once, each seeing those before it; the weights are those of the cross-attention."""
        states = self.around_attention(states, mask, lambda x: self.attention(x, None, True, rotary))
        return self._read_source(states, mask, memory, memory_mask, weights)

    def step(
        self, state: Tensor, past: KeysValues | None, memory: KeysValues, memory_mask: Tensor, rotary: Rotary | None
    ) -> tuple[Tensor, KeysValues]:
        """One more position, (rows, 1, width), and the keys and values up to it."""
        grown: list[KeysValues] = []

        def look_back(x: Tensor) -> Tensor:
            values, now = self.attention.step(x, past, rotary)
            grown.append(now)
            return values

        state = self.around_attention(state, None, look_back)
        return self._read_source(state, None, memory, memory_mask, False).values, grown[0]

    def _read_source(
        self, states: Tensor, mask: Tensor | None, memory: KeysValues, memory_mask: Tensor, weights: bool
    ) -> Attended:
        seen: list[Tensor | None] = []

        def look_across(x: Tensor) -> Tensor:
            found = self.cross(x, memory, memory_mask, weights)
            seen.append(found.weights)
            return found.values  # type: ignore[no-any-return]

        states = self.around_cross(states, mask, look_across)
        return Attended(self.around_feed_forward(states, mask, self.feed_forward), seen[0])


class Embed(nn.Module):
    """Scales token vectors so that they and their positions count alike, and adds the positions."""

    def __init__(self, kind: PositionKind, width: int, limit: int, dropout: float) -> None:
        super().__init__()
        self.positions = Positions(kind, width, limit)
        self.scale, self.dropout = width**0.5, dropout

    def forward(self, vectors: Tensor, start: int = 0) -> Tensor:
        """(rows, positions, width), the first position being number `start`."""
        return dropout(self.positions(vectors * self.scale, start), self.dropout, self.training)


def make_embedding(size: int, width: int) -> nn.Embedding:
    """A table of token vectors of expected length one."""
    embedding = nn.Embedding(size, width)
    nn.init.normal_(embedding.weight, std=width**-0.5)
    return embedding
