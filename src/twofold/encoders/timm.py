"""Image network of the `timm` package, by its name there."""

from __future__ import annotations

import dataclasses
import re
import warnings
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from textwrap import shorten
from typing import Any, Self

import torch
from torch import Tensor, nn

from twofold import storage
from twofold.encoders import EncoderConfig
from twofold.errors import ANYWAY, TwofoldError, listed
from twofold.inputs.image import Images
from twofold.layers.convolutions import channels_last, read_pyramid
from twofold.types import Batch, Encoder, Features, Hidden, HiddenSpec

_STAGE = re.compile(r"^([a-z]+)_(\d+)\.")


@dataclass(frozen=True)
class Config(EncoderConfig):
    """Settings of the timm encoder."""

    input = "image"
    reads = Images
    name: str = "resnet18"
    """Name of the network in timm; its feature maps must halve from one to the next, as in resnet18, convnext_tiny."""
    weights: str | None = None
    """Initial weights: a local .safetensors file, or `hub` for the weights that timm publishes; null is random."""
    frozen: bool = False
    """Freezes the weights."""
    dropout: float = 0.0
    """Dropout probability on the states and the summary."""
    channels: tuple[int, ...] | None = None
    """Channels of each feature map, filled in from the network."""
    stride: int = 2
    """Stride of the finest feature map, in pixels, filled in from the network."""

    def __post_init__(self) -> None:
        if self.weights not in (None, "hub") and Path(str(self.weights)).suffix != ".safetensors":
            raise ValueError(f"weights {self.weights}: a .safetensors file, or hub")

    def gives(self) -> frozenset[str]:
        return frozenset({"states", "summary", "maps", "finish"})

    def spec(self) -> HiddenSpec:
        if self.channels is None:
            return self.settled().spec()
        last = self.channels[-1]
        return HiddenSpec(states=last, summary=last, maps=self.channels, stride=self.stride)

    def settled(self) -> Self:
        if self.channels is not None:
            return self
        about = _network(self.name).feature_info
        strides = about.pooling()
        if any(after != 2 * before for before, after in pairwise(strides)) or strides[0] not in (1, 2, 4):
            raise TwofoldError(
                f"encoder.name={self.name}: its feature maps do not halve from stage to stage ({strides})"
            )
        return dataclasses.replace(self, channels=tuple(about.channels()), stride=strides[0])

    def build(self, vocabulary: Features, needs: frozenset[str]) -> TimmEncoder:
        return TimmEncoder(self, needs)

    def fill(self, encoder: Encoder, anyway: bool = False) -> None:
        if self.weights is None:
            return
        network = encoder.get_submodule("network")
        state = network.state_dict()
        if self.weights == "hub":
            saved = _network(self.name, pretrained=True).state_dict()
        else:
            saved = storage.read_tensors(Path(self.weights), "give a file that timm's weights were saved in")
        # Where only the maps are wanted, timm calls stages.0 stages_0; the head for its labels is left over.
        names = {name: name if name in saved else _STAGE.sub(r"\1.\2.", name) for name in state}
        given = {name: saved[other] for name, other in names.items() if other in saved}
        shapes = {name: (tuple(value.shape), tuple(state[name].shape)) for name, value in given.items()}
        fitting = {name: value for name, value in given.items() if value.shape == state[name].shape}
        wrong = [f"{name} is missing" for name in state if name not in given]
        wrong += [f"{name} is {shape}, not {wanted}" for name, (shape, wanted) in shapes.items() if shape != wanted]
        if wrong and not (anyway and fitting):
            raise TwofoldError(f"encoder.weights={self.weights}: does not fit: {listed(wrong)}; {ANYWAY}")
        if wrong:
            warnings.warn(f"encoder.weights={self.weights}: left out: {listed(wrong)}", stacklevel=4)
        network.load_state_dict({**state, **fitting})


class TimmEncoder(Encoder):
    """Encoder of timm: a feature map after each stage; the positions of the last one are the states, their mean the
    summary."""

    def __init__(self, config: Config, needs: frozenset[str]) -> None:
        super().__init__()
        self.needs, self.dropout, self.frozen = needs, config.dropout, config.frozen
        self.network = _network(config.name)
        self.network.requires_grad_(not config.frozen)

    def train(self, mode: bool = True) -> Self:
        super().train(mode)
        self.network.train(mode and not self.frozen)  # what does not learn does not count statistics either
        return self

    def levels(self) -> list[list[nn.Parameter]]:
        levels = [list(child.parameters()) for child in self.network.children()]
        return [level for level in levels if level]

    def forward(self, batch: Batch) -> Hidden:
        pixels = batch.read(Images).pixels
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            maps: list[Tensor] = self.network(channels_last(pixels))
        return read_pyramid(tuple(maps), pixels, self.needs, self.dropout if self.training else 0.0)


def _network(name: str, pretrained: bool = False) -> Any:
    try:
        import timm  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise TwofoldError("encoder.kind=timm needs `pip install 'twofold[timm]'`") from None
    try:
        return timm.create_model(name, features_only=True, pretrained=pretrained)
    except Exception as error:  # timm and the hub raise many kinds
        if "Unknown model" in str(error):
            remedy = "timm.list_models() names them"
            raise TwofoldError(f"encoder.name={name}: timm has no such network; {remedy}") from None
        reason = shorten(str(error) or type(error).__name__, 200, placeholder=" ...")
        raise TwofoldError(f"encoder.name={name}: timm could not make it ({reason})") from error
