"""Convolutions over a spectrogram that reduce time and frequency, followed by a Transformer."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from twofold.encoders import EncoderConfig
from twofold.inputs.audio import Spectrogram
from twofold.layers.blocks import NormKind, Positions, dropout, make_norm
from twofold.layers.pooling import masked_mean
from twofold.layers.transformer import BlockSettings, EncoderBlock
from twofold.types import Batch, Encoder, Features, Hidden, HiddenSpec


@dataclass(frozen=True)
class Config(BlockSettings, EncoderConfig):
    """Settings of the spectrogram encoder; with 0 layers it has convolutions alone."""

    input = "audio"
    reads = Spectrogram
    may_be_0 = ("layers",)
    channels: tuple[int, ...] = (32, 64)
    """Channels of the convolutions; each convolution halves time and frequency."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.channels or min(self.channels) < 1:
            raise ValueError(f"channels {list(self.channels)}: at least one convolution, each at least 1 wide")

    def spec(self) -> HiddenSpec:
        return HiddenSpec(states=self.width, summary=self.width)

    def build(self, vocabulary: Features, needs: frozenset[str]) -> SpectrogramEncoder:
        return SpectrogramEncoder(self, vocabulary, needs)


class SpectrogramEncoder(Encoder):
    """Spectrogram encoder: a state for every 2^n frames after n convolutions; the summary is their mean."""

    def __init__(self, config: Config, features: Features, needs: frozenset[str]) -> None:
        super().__init__()
        self.needs, self.dropout = needs, config.dropout
        self.convolutions = nn.ModuleList()
        bands, before, limit = features.width, 1, features.limit
        for channels in config.channels:
            self.convolutions.append(Halving(before, channels, config.norm))
            bands, before, limit = -(-bands // 2), channels, -(-limit // 2)
        self.project = nn.Linear(before * bands, config.width)
        self.positions = Positions(config.positions, config.width, limit)
        self.rotary = config.make_rotary(limit)
        self.blocks = nn.ModuleList(EncoderBlock(config) for _ in range(config.layers))
        self.norm = config.make_last_norm()

    def forward(self, batch: Batch) -> Hidden:
        read = batch.read(Spectrogram)
        maps, mask = read.frames[..., None], read.mask  # (rows, frames, mels, 1)
        for convolution in self.convolutions:
            maps, mask = convolution(maps, mask), mask[:, ::2]
        states = self.positions(self.project(dropout(maps.flatten(2), self.dropout, self.training)))
        states = dropout(states, self.dropout, self.training)
        for block in self.blocks:
            states = block(states, mask, False, self.rotary)
        if self.norm is not None:
            states = self.norm(states, mask)
        summary = masked_mean(states, mask) if "summary" in self.needs else None
        return Hidden(mask=mask, states=states if "states" in self.needs else None, summary=summary)


class Halving(nn.Module):
    """Convolution that halves time and frequency, a norm over the channels of each position, and ReLU."""

    def __init__(self, before: int, channels: int, norm: NormKind) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(before, channels, 3, stride=2, padding=1)
        self.norm = make_norm(norm, channels)

    def forward(self, maps: Tensor, mask: Tensor) -> Tensor:
        """Maps (rows, frames, bands, channels) to half as many frames and bands, rounded up; padding is read as
        zeros."""
        real = (maps * mask[..., None, None]).permute(0, 3, 1, 2)
        halved = self.convolution(real).permute(0, 2, 3, 1)
        return F.relu(self.norm(halved, mask[:, ::2, None].expand(halved.shape[:3])))
