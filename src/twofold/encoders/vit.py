"""Vision Transformer over the patches of an image, and optionally the beginning of a text."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from twofold.encoders import EncoderConfig
from twofold.inputs.image import Images
from twofold.inputs.text import Tokens
from twofold.layers.blocks import Embed, dropout, make_embedding, sinusoids
from twofold.layers.convolutions import Convolution, ImageNorm, channels_last
from twofold.layers.pooling import masked_mean
from twofold.layers.transformer import BlockSettings, EncoderBlock
from twofold.types import Batch, Encoder, Hidden, HiddenSpec, InputBatch, InputSpec, Vocabulary


@dataclass(frozen=True)
class Config(BlockSettings, EncoderConfig):
    """Settings of the vision Transformer."""

    input = "image"
    reads = Images
    patch: int = 16
    """Height and width of a patch in pixels; images are resized to the nearest multiple of it."""
    stem: Literal["linear", "convolutions"] = "linear"
    """Patch embedding: one `linear` map, or `convolutions` that halve the image until patches are left."""
    stem_norm: ImageNorm = "batch"
    """Normalization with `stem: convolutions`: `batch` (BatchNorm), or `group` (GroupNorm), which works with gradient
    accumulation and several processes."""
    prefix: bool = False
    """Reads a text prefix together with the image."""
    grid: int = 64
    """Maximum number of rows and columns of patches, with `positions: learned`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.positions == "rotary":
            raise ValueError(
                "positions: rotary encodes one number, and a patch has a row and a column; use sinusoidal or learned"
            )
        if self.attention == "window":
            raise ValueError("attention: window is for sequences, and patches form a grid; use full or linear")
        if self.positions == "sinusoidal" and self.width % 4:
            raise ValueError(f"sinusoidal positions of rows and columns need a width of a multiple of 4: {self.width}")
        if self.stem == "convolutions" and self.patch & (self.patch - 1):
            raise ValueError(f"stem: convolutions halve the image, so patch must be 1, 2, 4, 8, ..., not {self.patch}")

    def beside(self) -> type[InputBatch] | None:
        return Tokens if self.prefix else None

    def alone(self) -> Self:
        return replace(self, prefix=False)

    def spec(self) -> HiddenSpec:
        return HiddenSpec(states=self.width, summary=self.width)

    def build(self, vocabulary: InputSpec, needs: frozenset[str]) -> VisionTransformer:
        return VisionTransformer(self, vocabulary, needs)


class VisionTransformer(Encoder):
    """Vision Transformer encoder: the states of the patches, then of the text; the summary is their mean."""

    def __init__(self, config: Config, vocabulary: InputSpec, needs: frozenset[str]) -> None:
        super().__init__()
        self.needs, self.config = needs, config
        self.stem = _stem(config)
        if config.positions == "learned":
            self.rows = nn.Parameter(torch.randn(config.grid, config.width) * config.width**-0.5)
            self.columns = nn.Parameter(torch.randn(config.grid, config.width) * config.width**-0.5)
        if config.prefix:
            assert isinstance(vocabulary, Vocabulary)
            self.embedding = make_embedding(vocabulary.size, config.width)
            self.embed = Embed(config.positions, config.width, vocabulary.limit, config.dropout)
            self.kind = nn.Parameter(torch.randn(config.width) * config.width**-0.5)
        self.blocks = nn.ModuleList(EncoderBlock(config) for _ in range(config.layers))
        self.norm = config.make_last_norm()

    def forward(self, batch: Batch) -> Hidden:
        pixels = batch.read(Images).pixels
        patches: Tensor = self.stem(channels_last(self._divided(pixels)))  # (rows, width, patch rows, patch columns)
        states = (patches + self._positions(patches)).flatten(2).transpose(1, 2)
        states = dropout(states.contiguous(), self.config.dropout, self.training)
        mask = torch.ones(states.shape[:2], dtype=torch.bool, device=states.device)
        text = batch.find(Tokens) if self.config.prefix else None
        if text is not None and text.tokens.shape[1]:
            states = torch.cat([states, self.embed(self.embedding(text.tokens)) + self.kind], 1)
            mask = torch.cat([mask, text.mask], 1)
        for block in self.blocks:
            states = block(states, mask, False, None)
        if self.norm is not None:
            states = self.norm(states, mask)
        summary = masked_mean(states, mask) if "summary" in self.needs else None
        kept = states if "states" in self.needs else None
        size, grid = (pixels.shape[2], pixels.shape[3]), (patches.shape[2], patches.shape[3])
        return Hidden(mask=mask, states=kept, summary=summary, size=size, grid=grid)

    def _divided(self, pixels: Tensor) -> Tensor:
        """Resizes images to multiples of the patch size."""
        patch, sides = self.config.patch, pixels.shape[2:]
        wanted = [max(1, round(side / patch)) * patch for side in sides]
        if self.config.positions == "learned":
            wanted = [min(side, self.config.grid * patch) for side in wanted]
        if wanted == list(sides):
            return pixels
        return F.interpolate(pixels, wanted, mode="bilinear", antialias=True)

    def _positions(self, patches: Tensor) -> Tensor:
        """Positional encodings of the patches, (width, rows, columns)."""
        height, width = patches.shape[2:]
        if self.config.positions == "learned":
            return (self.rows[:height, None] + self.columns[None, :width]).permute(2, 0, 1)
        if self.config.positions == "none":
            return patches.new_zeros(())
        half = self.config.width // 2
        down, across = sinusoids(height, half).to(patches), sinusoids(width, half).to(patches)
        both = [down[:, None].expand(-1, width, -1), across[None].expand(height, -1, -1)]
        return torch.cat(both, -1).permute(2, 0, 1)


def _stem(config: Config) -> nn.Module:
    """Creates the patch embedding: from pixels to (rows, width, patch rows, patch columns)."""
    if config.stem == "linear":
        return nn.Conv2d(3, config.width, config.patch, config.patch)
    halvings = config.patch.bit_length() - 1
    widths = [3, *(max(8, config.width >> (halvings - 1 - n)) for n in range(halvings))]
    halve = [Convolution(*sizes, config.stem_norm, "relu", stride=2) for sizes in pairwise(widths)]
    return nn.Sequential(*halve, nn.Conv2d(widths[-1], config.width, 1))
