"""Layers of image networks: convolutions with norms, residual blocks, and feature pyramids."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from twofold.layers.blocks import dropout
from twofold.types import Hidden

ImageNorm = Literal["batch", "group"]
Activation = Literal["relu", "relu6", "silu", "gelu"]
_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu_, "silu": F.silu, "gelu": F.gelu}
_ACTIVATIONS["relu6"] = partial(F.relu6, inplace=True)
_GROUP = 8
"""Channels in each group of GroupNorm."""
_NARROW = 16
"""Channel count below which a strided 1×1 convolution crashes in the backward pass on large maps (torch 2.13, oneDNN,
AVX-512); there the strided pixels are selected first, with the same result."""


class ImageBatchNorm(nn.BatchNorm2d):
    """BatchNorm over the pixels of all images; uses running statistics for a single pixel, which has no variance."""

    def forward(self, maps: Tensor) -> Tensor:
        if self.training and maps.numel() == maps.shape[1]:
            return F.batch_norm(maps, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps)
        return super().forward(maps)


def image_norm(kind: ImageNorm, channels: int) -> nn.Module:
    """Creates BatchNorm, or GroupNorm where micro-batch gradients must add up to those of the whole batch."""
    if kind == "batch":
        return ImageBatchNorm(channels)
    return nn.GroupNorm(channels // _GROUP if channels % _GROUP == 0 else 1, channels)


class Convolution(nn.Module):
    """Convolution with a norm and an optional activation."""

    def __init__(
        self,
        channels: int,
        width: int,
        norm: ImageNorm,
        activation: Activation | None,
        size: int = 3,
        stride: int = 1,
        groups: int = 1,
    ) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(channels, width, size, stride, size // 2, groups=groups, bias=False)
        self.norm = image_norm(norm, width)
        self.activation = activation
        nn.init.kaiming_normal_(self.convolution.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, maps: Tensor) -> Tensor:
        convolution = self.convolution
        small = convolution.kernel_size == (1, 1) and convolution.in_channels < _NARROW
        if small and convolution.stride != (1, 1) and torch.is_grad_enabled():
            step, across = convolution.stride
            maps = F.conv2d(maps[..., ::step, ::across], convolution.weight)
        else:
            maps = convolution(maps)
        maps = self.norm(maps)
        return _ACTIVATIONS[self.activation](maps) if self.activation else maps


class Residual(nn.Module):
    """Residual block: two convolutions and a residual connection (ResNet, He et al. 2015).

    With `residual=False` only the two convolutions run. The projection of the connection then stays frozen and unused,
    so that weights load either way.
    """

    def __init__(
        self,
        channels: int,
        width: int,
        norm: ImageNorm,
        activation: Activation,
        stride: int = 1,
        residual: bool = True,
    ) -> None:
        super().__init__()
        self.first = Convolution(channels, width, norm, activation, stride=stride)
        self.second = Convolution(width, width, norm, None)
        same = channels == width and stride == 1
        self.around = None if same else Convolution(channels, width, norm, None, size=1, stride=stride)
        self.activation, self.residual = activation, residual
        if self.around is not None and not residual:
            self.around.requires_grad_(False)

    def forward(self, maps: Tensor) -> Tensor:
        if not self.residual:
            return _ACTIVATIONS[self.activation](self.second(self.first(maps)))
        around = maps if self.around is None else self.around(maps)
        return _ACTIVATIONS[self.activation](self.second(self.first(maps)) + around)


def channels_last(maps: Tensor) -> Tensor:
    """Converts to channels-last memory format, which convolutions read fastest."""
    return maps.contiguous(memory_format=torch.channels_last)


def read_pyramid(maps: tuple[Tensor, ...], pixels: Tensor, needs: frozenset[str], share: float) -> Hidden:
    """Fills `Hidden` from a pyramid of maps: the maps, the positions of the coarsest map, and their mean."""
    rows, _, height, width = maps[-1].shape
    mask = torch.ones(rows, height * width, dtype=torch.bool, device=pixels.device)
    size = (pixels.shape[2], pixels.shape[3])
    states = summary = None
    if needs & {"states", "summary"}:
        places = dropout(maps[-1].flatten(2).transpose(1, 2).contiguous(), share, bool(share))
        states = places if "states" in needs else None
        summary = places.mean(1) if "summary" in needs else None
    kept = maps if "maps" in needs else None
    return Hidden(mask=mask, states=states, summary=summary, maps=kept, size=size, grid=(height, width))
