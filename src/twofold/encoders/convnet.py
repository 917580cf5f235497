"""Convolutional network over an image, in stages of halved resolution."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from torch import Tensor, nn

from twofold.encoders import EncoderConfig
from twofold.inputs.image import Images
from twofold.layers.convolutions import Activation, Convolution, ImageNorm, Residual, channels_last, read_pyramid
from twofold.types import Batch, Encoder, Features, Hidden, HiddenSpec


@dataclass(frozen=True)
class Config(EncoderConfig):
    """Settings of the convolutional encoder."""

    input = "image"
    reads = Images
    widths: tuple[int, ...] = (32, 64, 128, 256)
    """Channels of each stage, from the finest feature map to the coarsest."""
    blocks: int = 2
    """Number of blocks in a stage, each a pair of convolutions with a residual connection."""
    residual: bool = True
    """Adds the residual connections; `false` builds a plain stack of convolutions."""
    stem: Literal[1, 2, 4] = 2
    """Stride of the stem: pixels, in height and width, for one position of the finest feature map."""
    norm: ImageNorm = "batch"
    """Normalization: `batch` (BatchNorm), or `group` (GroupNorm), which works with gradient accumulation and several
    processes."""
    activation: Activation = "relu"
    """Activation after each convolution."""
    dropout: float = 0.0
    """Dropout probability on the states and the summary."""

    def __post_init__(self) -> None:
        if not self.widths or min(self.widths) < 1:
            raise ValueError(f"widths {list(self.widths)}: at least one stage, each at least 1 wide")

    def spec(self) -> HiddenSpec:
        last = self.widths[-1]
        return HiddenSpec(states=last, summary=last, maps=self.widths, stride=self.stem)

    def build(self, vocabulary: Features, needs: frozenset[str]) -> ConvnetEncoder:
        return ConvnetEncoder(self, needs)


class ConvnetEncoder(Encoder):
    """Convolutional encoder: a feature map after each stage; the positions of the last one are the states, their mean
    the summary."""

    def __init__(self, config: Config, needs: frozenset[str]) -> None:
        super().__init__()
        self.needs, self.dropout = needs, config.dropout
        first, norm, activation = config.widths[0], config.norm, config.activation
        stride, halvings = min(config.stem, 2), config.stem.bit_length() - 1
        channels = [3, *[first // 2 or 1] * (halvings - 1), first]  # where a map is finest, half as many will do
        stem = [Convolution(*sizes, norm, activation, stride=stride) for sizes in pairwise(channels)]
        self.stem = nn.Sequential(*stem)
        self.stages = nn.ModuleList()
        for number, (before, width) in enumerate(pairwise([first, *config.widths])):
            blocks = [Residual(before, width, norm, activation, 2 if number else 1, config.residual)]
            more = config.blocks - 1
            blocks += [Residual(width, width, norm, activation, residual=config.residual) for _ in range(more)]
            self.stages.append(nn.Sequential(*blocks))

    def forward(self, batch: Batch) -> Hidden:
        pixels = batch.read(Images).pixels
        maps: list[Tensor] = []
        read = self.stem(channels_last(pixels))
        for stage in self.stages:
            read = stage(read)
            maps.append(read)
        return read_pyramid(tuple(maps), pixels, self.needs, self.dropout if self.training else 0.0)
