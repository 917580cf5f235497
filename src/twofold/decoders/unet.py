"""U-Net decoder for segmentation: transposed convolutions up to the image's size, with skip connections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from twofold.decoders import DecoderConfig
from twofold.errors import TwofoldError
from twofold.layers.convolutions import Activation, Convolution, ImageNorm
from twofold.results import DecoderOutput, PixelClasses
from twofold.types import Classes, Decoder, Hidden, HiddenSpec, Loss, OutputSpec, Target


@dataclass(frozen=True)
class Config(DecoderConfig):
    """Settings of the U-Net decoder (Ronneberger et al., 2015)."""

    output = "mask"
    writes = PixelClasses

    widths: tuple[int, ...] | None = None
    """Channels after each transposed convolution, from coarse to fine; null mirrors the encoder,
    then halves the channels at each further step."""
    skips: bool = True
    """Concatenates the encoder's feature map of each scale (skip connections)."""
    convolutions: int = 2
    """Number of convolutions after each transposed convolution."""
    norm: ImageNorm = "batch"
    """Normalization: `batch` (BatchNorm), or `group` (GroupNorm), which works with gradient accumulation and several
    processes."""
    activation: Activation = "relu"
    """Activation after each convolution."""
    dropout: float = 0.0
    """Dropout probability of whole channels of the coarsest feature map."""
    cross_entropy: float = 1.0
    """Weight of the cross-entropy in the loss."""
    focal: float = 0.0
    """Weight of the focal loss (Lin et al., 2017), a cross-entropy with less weight on easy pixels."""
    focal_power: float = 2.0
    """Exponent γ of the focal loss: each pixel has the weight (1 − probability)^γ."""
    dice: float = 0.0
    """Weight of the Dice loss: 1 − Dice of each class in each image that contains it."""
    class_weights: tuple[float, ...] | None = None
    """Weights of the classes in cross-entropy and focal loss; null weighs all alike."""

    def __post_init__(self) -> None:
        weights = (self.cross_entropy, self.focal, self.dice, *(self.class_weights or ()))
        if min(weights) < 0 or not any(weights[:3]) or self.focal_power < 0:
            raise ValueError("weights and focal_power must be at least 0, and one of the three losses above 0")
        if self.class_weights and not any(self.class_weights):
            raise ValueError("class_weights: at least one must be above 0")
        if self.widths and min(self.widths) < 1:
            raise ValueError(f"widths {list(self.widths)}: each must be at least 1")

    def needs(self) -> frozenset[str]:
        return frozenset({"maps"})

    def build(self, spec: HiddenSpec, output: OutputSpec) -> UNetDecoder:
        assert isinstance(output, Classes)
        return UNetDecoder(self, spec, output)


class Up(nn.Module):
    """Upsampling step: a transposed convolution, the encoder's feature map of that size, and convolutions over both."""

    def __init__(self, config: Config, channels: int, skip: int, width: int) -> None:
        super().__init__()
        self.enlarge = nn.ConvTranspose2d(channels, width, 2, 2)
        inputs = [width + skip, *[width] * (config.convolutions - 1)]
        self.read = nn.Sequential(*(Convolution(size, width, config.norm, config.activation) for size in inputs))

    def forward(self, maps: Tensor, skip: Tensor | None, size: Sequence[int]) -> Tensor:
        maps = self.enlarge(maps)[:, :, : size[0], : size[1]]  # a map of odd size was rounded up when it was halved
        below, right = size[0] - maps.shape[2], size[1] - maps.shape[3]
        if below or right:  # or rounded down, as some networks do
            maps = F.pad(maps, (0, right, 0, below), mode="replicate")
        return self.read(maps if skip is None else torch.cat([maps, skip], 1))  # type: ignore[no-any-return]


class UNetDecoder(Decoder):
    """U-Net decoder: a distribution over the classes for each pixel."""

    def __init__(self, config: Config, spec: HiddenSpec, classes: Classes) -> None:
        super().__init__()
        self.config = config
        *finer, coarsest = spec.channels()
        doublings = spec.stride.bit_length() - 1
        widths = config.widths or (*reversed(finer), *(max(8, spec.channels()[0] >> (n + 1)) for n in range(doublings)))
        skipped = [*(reversed(finer) if config.skips else [0] * len(finer)), *[0] * doublings]
        if len(widths) != len(skipped):
            wanted = f"give {len(skipped)} widths, one for each doubling of the size up to the image"
            raise TwofoldError(f"decoder.widths: {wanted}, not {len(widths)}")
        if config.class_weights and len(config.class_weights) != len(classes):
            given, remedy = len(config.class_weights), "give one for each, or decoder.class_weights=null"
            raise TwofoldError(f"decoder.class_weights: {given} for {len(classes)} classes; {remedy}")
        channels = [coarsest, *widths]
        sizes = zip(channels, skipped, widths, strict=False)
        self.steps = nn.ModuleList(Up(config, before, skip, width) for before, skip, width in sizes)
        self.output = nn.Conv2d(channels[-1], len(classes), 1)
        self.class_weights = nn.Buffer(torch.tensor(config.class_weights or [1.0] * len(classes)), persistent=False)

    def forward(self, hidden: Hidden, target: Target | None = None, progress: float = 0.0) -> DecoderOutput:
        *finer, maps = hidden.pyramid()
        assert hidden.size is not None
        maps = F.dropout2d(maps, self.config.dropout, self.training)
        doublings = len(self.steps) - len(finer)
        sizes = [finer_map.shape[2:] for finer_map in reversed(finer)]
        sizes += [torch.Size(-(-side >> n) for side in hidden.size) for n in reversed(range(doublings))]
        skips = [*(reversed(finer) if self.config.skips else [None] * len(finer)), *[None] * doublings]
        for step, skip, size in zip(self.steps, skips, sizes, strict=True):
            maps = step(maps, skip, size)
        return DecoderOutput(self.output(maps).float())

    def count(self, target: Target) -> int:
        return int(target.mask.sum())

    def loss(self, hidden: Hidden, target: Target, progress: float = 0.0) -> Loss:
        """Loss summed over all labeled pixels; the Dice loss of an image is weighted by their number."""
        config, scores = self.config, self.forward(hidden).logits
        right = target.tokens.masked_fill(~target.mask, -100)
        total, logs = scores.new_zeros(()), scores.log_softmax(1)
        if config.cross_entropy or config.focal:
            weights = self.class_weights if config.class_weights else None
            surprise = F.nll_loss(logs, right, weights, reduction="none")  # 0 where a pixel does not count
            total = total + config.cross_entropy * surprise.sum()
        if config.focal:
            chance = logs.gather(1, target.tokens[:, None])[:, 0].exp()
            unsure = (1 - chance).clamp(min=1e-7)  # a root of 0 has no gradient
            total = total + config.focal * (unsure**config.focal_power * surprise).sum()
        if config.dice:
            total = total + config.dice * (_dice(logs.exp(), target) * target.mask.sum((1, 2))).sum()
        return Loss(total, self.count(target))

    @torch.no_grad()
    def predict(self, hidden: Hidden, options: object = None) -> list[PixelClasses]:
        best = self.forward(hidden).logits.log_softmax(1).max(1)
        scores = best.values.mean((1, 2)).tolist()
        pixels = best.indices.to(torch.uint8).cpu().numpy()
        confidence = best.values.exp().cpu().numpy()
        return [PixelClasses(*image) for image in zip(pixels, scores, confidence, strict=True)]


def _dice(chances: Tensor, target: Target) -> Tensor:
    """Dice loss of each image, (rows,): one minus the mean overlap 2·|A∩B| / (|A|+|B|) of the classes that it shows."""
    tokens, counts = target.tokens.flatten(1), target.mask.flatten(1).to(chances.dtype)
    chances = chances.flatten(2)
    none = chances.new_zeros(chances.shape[:2])
    both = none.scatter_add(1, tokens, chances.gather(1, tokens[:, None])[:, 0] * counts)
    right = none.scatter_add(1, tokens, counts)
    sizes = (chances * counts[:, None]).sum(2) + right
    overlap = 2 * both / sizes.clamp(min=1e-6)  # 0 of a class that an image does not show
    return 1 - overlap.sum(1) / (right > 0).sum(1).clamp(min=1)
