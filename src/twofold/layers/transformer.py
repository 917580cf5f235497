"""Transformer layers: attention and feed-forward with norms, dropout and residual connections."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from twofold.layers.attend import AttendKind, KeysValues, make_attend
from twofold.layers.attention import CrossAttention, Past, SelfAttention
from twofold.layers.blocks import NormKind, PositionKind, Rotary, dropout, make_norm
from twofold.layers.linear import Linear


@dataclass(frozen=True)
class BlockSettings:
    """Settings shared by Transformer encoders and decoders."""

    width: int = 256
    """Width of the token embeddings and all hidden states (d_model)."""
    layers: int = 4
    """Number of Transformer layers."""
    heads: int = 4
    """Number of attention heads; `width` must be a multiple of it."""
    feed_forward: int | None = None
    """Width of the feed-forward layers; null means four times `width`."""
    attention: AttendKind = "full"
    """Self-attention: `full`, `window` (to the positions at most `window` away) or `linear` (kernelized, time linear in
    the length). All have the same weights; cross-attention stays full."""
    window: int = 128
    """Number of positions to each side that `attention: window` attends to; causal attention has the left side only."""
    positions: PositionKind = "sinusoidal"
    """Positional encoding: `sinusoidal`, `learned`, `rotary` (RoPE) or `none`."""
    norm: NormKind = "layer"
    """Normalization: `layer` (LayerNorm), or `batch` (BatchNorm over the real positions of the batch)."""
    norm_place: Literal["pre", "post"] = "pre"
    """Position of the norm: `pre` normalizes the input of each sub-layer, `post` normalizes after the residual
    connection."""
    residual: bool = True
    """Adds the input of each sub-layer to its output (residual connection); `false` builds a plain stack."""
    activation: Literal["relu", "gelu"] = "relu"
    """Activation of the feed-forward layers."""
    dropout: float = 0.1
    """Dropout probability on the embeddings and after each sub-layer."""
    attention_dropout: float = 0.0
    """Dropout probability on the attention weights; slow on CPUs, where fused attention does not support it."""

    def __post_init__(self) -> None:
        if self.width % self.heads:
            raise ValueError(f"width {self.width} is not a multiple of the {self.heads} heads")
        if self.positions == "rotary" and self.width // self.heads % 2:
            raise ValueError(f"rotary positions need heads of even width, not {self.width // self.heads}")
        if self.positions == "sinusoidal" and self.width % 2:
            raise ValueError(f"sinusoidal positions need an even width, not {self.width}")

        if self.attention == "linear" and self.attention_dropout:
            raise ValueError(
                "attention_dropout: linear attention never forms its weights; leave it out, or take window or full"
            )

    def make_self_attention(self) -> SelfAttention:
        return SelfAttention(self.width, self.heads, self.attention_dropout, make_attend(self.attention, self.window))

    def make_rotary(self, limit: int) -> Rotary | None:
        return Rotary(self.width // self.heads, limit) if self.positions == "rotary" else None

    def make_last_norm(self) -> nn.Module | None:
        """Creates the final norm, which pre-norm models need after the last layer."""
        return make_norm(self.norm, self.width) if self.norm_place == "pre" else None


class EncoderBlock(nn.Module):
    """Encoder layer: self-attention, then feed-forward."""

    def __init__(self, settings: BlockSettings) -> None:
        super().__init__()
        self.attention = settings.make_self_attention()
        self.feed_forward = FeedForward(settings)
        self.around_attention, self.around_feed_forward = Around(settings), Around(settings)

    def forward(self, states: Tensor, mask: Tensor, causal: bool, rotary: Rotary | None) -> Tensor:
        # Padding is on the right, so causal attention from a real position never reaches it.
        allowed = None if causal else mask
        states = self.around_attention(states, mask, lambda entered: self.attention(entered, allowed, causal, rotary))
        return self.around_feed_forward(states, mask, self.feed_forward)  # type: ignore[no-any-return]


class DecoderBlock(nn.Module):
    """Decoder layer: causal self-attention, cross-attention, then feed-forward."""

    def __init__(self, settings: BlockSettings, memory_width: int) -> None:
        super().__init__()
        self.attention = settings.make_self_attention()
        self.cross = CrossAttention(settings.width, settings.heads, memory_width, settings.attention_dropout)
        self.feed_forward = FeedForward(settings)
        self.around_attention, self.around_cross = Around(settings), Around(settings)
        self.around_feed_forward = Around(settings)

    def forward(
        self, states: Tensor, mask: Tensor, memory: KeysValues, source: Tensor, rotary: Rotary | None
    ) -> Tensor:
        """Computes all positions at once with a causal mask.

        `mask` is (rows, positions), `source` (rows, source positions), both true where real.
        """
        states = self.around_attention(states, mask, lambda entered: self.attention(entered, None, True, rotary))
        return self._read_source(states, mask, memory, source)

    def step(self, states: Tensor, past: Past, memory: KeysValues, source: Tensor, rotary: Rotary | None) -> Tensor:
        """Computes one more position of each hypothesis, (rows, hypotheses, width)."""
        states = self.around_attention(states, None, lambda entered: self.attention.step(entered, past, rotary))
        return self._read_source(states, None, memory, source)

    def _read_source(self, states: Tensor, mask: Tensor | None, memory: KeysValues, source: Tensor) -> Tensor:
        states = self.around_cross(states, mask, lambda entered: self.cross(entered, memory, source))
        return self.around_feed_forward(states, mask, self.feed_forward)  # type: ignore[no-any-return]


class Around(nn.Module):
    """Residual connection around a sub-layer: x + f(norm(x)) with `pre`, norm(x + f(x)) with `post`.

    A plain stack (`residual: false`) leaves out x.
    """

    def __init__(self, settings: BlockSettings) -> None:
        super().__init__()
        self.norm = make_norm(settings.norm, settings.width)
        self.before = settings.norm_place == "pre"
        self.dropout, self.residual = settings.dropout, settings.residual

    def forward(self, states: Tensor, mask: Tensor | None, layer: Callable[[Tensor], Tensor]) -> Tensor:
        return self.leave(states, layer(self.enter(states, mask)), mask)

    def enter(self, states: Tensor, mask: Tensor | None) -> Tensor:
        """Input of the sub-layer."""
        return self.norm(states, mask) if self.before else states

    def leave(self, states: Tensor, changed: Tensor, mask: Tensor | None) -> Tensor:
        """Adds the sub-layer's output to the states; replaces them in a plain stack."""
        changed = dropout(changed, self.dropout, self.training)
        states = states + changed if self.residual else changed
        return states if self.before else self.norm(states, mask)


class FeedForward(nn.Module):
    """Feed-forward layer: two linear maps with an activation in between, at each position."""

    def __init__(self, settings: BlockSettings) -> None:
        super().__init__()
        inner = settings.feed_forward or 4 * settings.width
        self.inner = Linear(settings.width, inner)
        self.outer = Linear(inner, settings.width)
        self.activation = F.relu if settings.activation == "relu" else F.gelu
        self.dropout = settings.dropout

    def forward(self, states: Tensor) -> Tensor:
        inner = dropout(self.activation(self.inner(states)), self.dropout, self.training)
        return self.outer(inner)  # type: ignore[no-any-return]
