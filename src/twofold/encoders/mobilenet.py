"""MobileNetV2 (Sandler et al., 2018): inverted residual blocks over an image, with torchvision's weights if wanted."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from torch import Tensor, nn

from twofold import storage
from twofold.data.named_models import MODELS, model_folder
from twofold.encoders import EncoderConfig
from twofold.errors import ANYWAY, TwofoldError, listed
from twofold.inputs.image import Images
from twofold.layers.convolutions import Convolution, channels_last, read_pyramid
from twofold.storage.pickled import read_pickled
from twofold.types import Batch, Encoder, Features, Hidden, HiddenSpec

STEM = 32
STAGES = (
    ((1, 16, 1, 1),),
    ((6, 24, 2, 2),),
    ((6, 32, 3, 2),),
    ((6, 64, 4, 2), (6, 96, 3, 1)),
    ((6, 160, 3, 2), (6, 320, 1, 1)),
)
"""Groups of blocks of each stage: expansion, channels, number of blocks, and stride of the first."""
STEP = 8
"""Channels are rounded to multiples of it."""
PICKLED = (".pth", ".pt", ".bin")
HEAD = "classifier."
"""Prefix of the tensors of ImageNet's classifier, which is left out."""
COUNTER = ".num_batches_tracked"
SHOWN = 8
"""Maximum number of tensors of each kind of misfit that an error lists."""
REMEDY = "give a file with the state dict of torchvision's mobilenet_v2"


@dataclass(frozen=True)
class Config(EncoderConfig):
    """Settings of MobileNetV2."""

    input = "image"
    reads = Images
    weights: str | None = None
    """Initial weights: `default-image` (torchvision's, trained on ImageNet), or a file with a state dict of torchvision
    (.safetensors, or .pth, of which tensors alone are read); null is random."""
    frozen: bool = False
    """Freezes the weights and the statistics of BatchNorm."""
    width_multiplier: float = 1.0
    """Factor of all channels, which are rounded to multiples of 8."""
    top: int | None = 1280
    """Channels of the 1×1 convolution over the coarsest feature map, which ImageNet's classifier reads; a
    `width_multiplier` above 1 multiplies them. null leaves the convolution out."""
    dropout: float = 0.0
    """Dropout probability on the states and the summary."""

    def __post_init__(self) -> None:
        if not 0 < self.width_multiplier <= 16:
            raise ValueError(f"width_multiplier {self.width_multiplier}: above 0, and at most 16")
        if self.weights is None or self.weights in MODELS:
            if self.weights is not None and MODELS[self.weights].encoder.get("weights") != self.weights:
                raise ValueError(f"weights {self.weights}: no weights of images; write default-image")
        elif Path(self.weights).suffix not in (".safetensors", *PICKLED):
            raise ValueError(f"weights {self.weights}: default-image, or a .safetensors or .pth file")

    def spec(self) -> HiddenSpec:
        maps = tuple(self.channels(stage[-1][1]) for stage in STAGES)
        last = maps[-1] if self.top is None else rounded(self.top * max(1.0, self.width_multiplier))
        return HiddenSpec(states=last, summary=last, maps=(*maps[:-1], last), stride=2)

    def channels(self, width: int) -> int:
        """Number of channels in the place of `width`."""
        return rounded(width * self.width_multiplier)

    def build(self, vocabulary: Features, needs: frozenset[str]) -> MobileNetEncoder:
        return MobileNetEncoder(self, needs)

    def fill(self, encoder: Encoder, anyway: bool = False) -> None:
        assert isinstance(encoder, MobileNetEncoder)
        if self.weights is not None:
            path = Path(self.weights)
            path = model_folder(self.weights) / "model.safetensors" if self.weights in MODELS else path
            pickled = path.suffix in PICKLED
            saved = read_pickled(path, REMEDY) if pickled else storage.read_tensors(path, REMEDY)
            _fill(encoder, saved, f"encoder.weights={self.weights}", anyway)


class MobileNetEncoder(Encoder):
    """MobileNetV2 encoder: a feature map after each stage; the positions of the last one are the states, their mean the
    summary."""

    def __init__(self, config: Config, needs: frozenset[str]) -> None:
        super().__init__()
        self.needs, self.dropout, self.frozen = needs, config.dropout, config.frozen
        channels = config.channels(STEM)
        self.stem = Convolution(3, channels, "batch", "relu6", stride=2)
        self.stages = nn.ModuleList()
        for stage in STAGES:
            blocks = []
            for expansion, width, count, stride in stage:
                for number in range(count):
                    step = 1 if number else stride
                    blocks.append(InvertedResidual(channels, config.channels(width), expansion, step))
                    channels = config.channels(width)
            self.stages.append(nn.Sequential(*blocks))
        top = config.spec().channels()[-1]
        self.top = None if config.top is None else Convolution(channels, top, "batch", "relu6", size=1)
        self.requires_grad_(not config.frozen)

    def train(self, mode: bool = True) -> Self:
        return super().train(mode and not self.frozen)  # what does not learn does not count statistics either

    def forward(self, batch: Batch) -> Hidden:
        pixels = batch.read(Images).pixels
        maps: list[Tensor] = []
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.frozen):
            read = self.stem(channels_last(pixels))
            for stage in self.stages:
                read = stage(read)
                maps.append(read)
            if self.top is not None:
                maps[-1] = self.top(read)
        return read_pyramid(tuple(maps), pixels, self.needs, self.dropout if self.training else 0.0)


class InvertedResidual(nn.Module):
    """Inverted residual block: more channels, a convolution of each alone, and fewer channels without activation."""

    def __init__(self, channels: int, width: int, expansion: int, stride: int) -> None:
        super().__init__()
        wide = channels * expansion
        self.expand = None if expansion == 1 else Convolution(channels, wide, "batch", "relu6", size=1)
        self.depthwise = Convolution(wide, wide, "batch", "relu6", stride=stride, groups=wide)
        self.project = Convolution(wide, width, "batch", None, size=1)
        self.residual = stride == 1 and channels == width

    def forward(self, maps: Tensor) -> Tensor:
        read = maps if self.expand is None else self.expand(maps)
        read = self.project(self.depthwise(read))
        return maps + read if self.residual else read  # type: ignore[no-any-return]


def rounded(width: float) -> int:
    """Rounds channels to a multiple of 8, at least 8, and not by more than a tenth down."""
    nearest = max(STEP, int(width + STEP / 2) // STEP * STEP)
    return nearest + STEP if nearest < 0.9 * width else nearest


def torchvision_names(encoder: MobileNetEncoder) -> Iterator[tuple[str, str]]:
    """Yields torchvision's names of the convolutions and norms, each with our name."""
    blocks = [(name, block) for name, block in encoder.named_modules() if isinstance(block, InvertedResidual)]
    yield from (("features.0.0", "stem.convolution"), ("features.0.1", "stem.norm"))
    for number, (ours, block) in enumerate(blocks, start=1):
        theirs, place = f"features.{number}.conv", 0
        for part in ("depthwise",) if block.expand is None else ("expand", "depthwise"):
            yield f"{theirs}.{place}.0", f"{ours}.{part}.convolution"
            yield f"{theirs}.{place}.1", f"{ours}.{part}.norm"
            place += 1
        yield f"{theirs}.{place}", f"{ours}.project.convolution"
        yield f"{theirs}.{place + 1}", f"{ours}.project.norm"
    if encoder.top is not None:
        last = f"features.{len(blocks) + 1}"
        yield from ((f"{last}.0", "top.convolution"), (f"{last}.1", "top.norm"))


def _fill(encoder: MobileNetEncoder, saved: Mapping[str, Tensor], place: str, anyway: bool) -> None:
    """Copies weights under torchvision's names; tensors that are missing, misshapen or unknown are listed."""
    state, modules = encoder.state_dict(), {ours: theirs for theirs, ours in torchvision_names(encoder)}
    theirs = {name: f"{modules[name.rpartition('.')[0]]}.{name.rpartition('.')[2]}" for name in state}
    fitting = {name: saved[other] for name, other in theirs.items() if other in saved}
    lost = []
    for name, other in theirs.items():
        shape = tuple(state[name].shape)
        if name not in fitting:
            lost += [] if other.endswith(COUNTER) else [f"{other} {shape} is missing"]
        elif fitting[name].shape != state[name].shape:
            lost.append(f"{other} is {tuple(fitting.pop(name).shape)}, not {shape}")
    known, left_out = set(theirs.values()), (HEAD, _left_out(encoder))
    over = [name for name in saved if name not in known and not name.startswith(left_out)]
    unknown = [f"{name} {tuple(saved[name].shape)} is not in this network" for name in over]
    wrong = "; ".join(listed(names, SHOWN) for names in (lost, unknown) if names)
    if wrong and not (anyway and fitting):
        raise TwofoldError(f"{place}: does not fit: {wrong}; {ANYWAY}")
    if wrong:
        warnings.warn(f"{place}: left out: {wrong}", stacklevel=4)
    encoder.load_state_dict({**state, **fitting})


def _left_out(encoder: MobileNetEncoder) -> str:
    """Prefix of the tensors of the convolution on top, where it is left out."""
    blocks = sum(isinstance(module, InvertedResidual) for module in encoder.modules())
    return HEAD if encoder.top is not None else f"features.{blocks + 1}."
