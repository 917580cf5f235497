"""How an image is brought before a model: its size and numbers, and the random views a training takes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

UNCOUNTED = 255
"""In a mask: a pixel that does not count."""
GAP = 3
"""How many times larger than what is read an image may be reduced to, before it is brought to that size smoothly."""
Size = tuple[int, int]
"""Height and width."""
Pixels = NDArray[np.uint8]
"""(height, width, 3) of an image, (height, width) of a mask."""


@dataclass(frozen=True)
class ImageSettings:
    """How images are read."""

    size: Size | None = None
    """Height and width that every image is brought to; without it each keeps its own, and a batch holds one size."""
    fit: Literal["stretch", "crop"] = "stretch"
    """With a size: whether the whole image is stretched to it, or the largest middle part of its shape is taken."""
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    """What is taken from red, green and blue, which go from 0 to 1; unless given, ImageNet's means."""
    deviation: tuple[float, float, float] = (0.229, 0.224, 0.225)
    """What they are divided by afterwards."""

    def __post_init__(self) -> None:
        if self.size and not all(1 <= side <= 10_000 for side in self.size):
            raise ValueError(f"size {list(self.size)}: height and width must be from 1 to 10000")
        if not all(value > 0 for value in self.deviation):
            raise ValueError("deviation must be above 0")

    def fitted(self, size: Size) -> Size:
        """The size in which an image of this size is read."""
        return self.size or size

    def box(self, size: Size) -> tuple[float, float, float, float]:
        """Left, upper, right and lower edge of what is read of an image."""
        height, width = size
        if self.size is None or self.fit == "stretch":
            return 0.0, 0.0, float(width), float(height)
        scale = min(height / self.size[0], width / self.size[1])
        kept = min(self.size[0] * scale, height), min(self.size[1] * scale, width)  # rounding must not lead outside
        top, left = (height - kept[0]) / 2, (width - kept[1]) / 2
        return left, top, left + kept[1], top + kept[0]

    @property
    def near(self) -> Size | None:
        """The size below which an image must not be reduced before it is brought to its own size, for that shows."""
        return None if self.size is None else (GAP * self.size[0], GAP * self.size[1])

    def see(self, image: Image.Image) -> Pixels:
        """(height, width, 3)"""
        return self._resized(image, Image.Resampling.BILINEAR, GAP)

    def see_mask(self, mask: Pixels) -> Pixels:
        """(height, width), each pixel that of the nearest."""
        return self._resized(Image.fromarray(mask), Image.Resampling.NEAREST)

    def _resized(self, image: Image.Image, how: Image.Resampling, gap: int | None = None) -> Pixels:
        size = (image.height, image.width)
        height, width = self.fitted(size)
        if (height, width) != size:
            image = image.resize((width, height), how, self.box(size), gap)
        return np.asarray(image)

    def tensor(self, images: Sequence[Pixels]) -> Tensor:
        """(images, 3, height, width), normalized; images of one size."""
        pixels = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).float()
        mean, deviation = (torch.tensor(values)[:, None, None] * 255 for values in (self.mean, self.deviation))
        return pixels.sub_(mean).div_(deviation)  # in place: a large image takes four bytes for each value


@dataclass(frozen=True)
class Augment:
    """Random changes of images while training; a mask moves with its image."""

    flip: bool = False
    """Whether half of the images are mirrored, left to right."""
    scale: tuple[float, float] = (1.0, 1.0)
    """The smallest and the largest enlargement; what then lies outside is cut off, what is missing is gray."""
    crop: Size | None = None
    """Height and width of the part that is learned from; the whole image unless given."""
    color: float = 0.0
    """How much brightness, contrast and color may change: 0.2 for a fifth more or less."""

    def __post_init__(self) -> None:
        if not 0.1 <= self.scale[0] <= self.scale[1] <= 10 or not 0 <= self.color < 1:
            raise ValueError("scale must be two numbers from 0.1 to 10, the smaller one first; color from 0 to 1")
        if self.crop and not all(1 <= side <= 10_000 for side in self.crop):
            raise ValueError(f"crop {list(self.crop)}: height and width must be from 1 to 10000")

    def draw(self, size: Size, numbers: np.random.Generator) -> View:
        """A random view of an image of this size."""
        height, width = self.crop or size
        scale = float(np.exp(numbers.uniform(*np.log(self.scale))))
        tall, wide = height / scale, width / scale
        top = numbers.uniform(min(0, size[0] - tall), max(0, size[0] - tall))
        left = numbers.uniform(min(0, size[1] - wide), max(0, size[1] - wide))
        flip = self.flip and bool(numbers.random() < 0.5)
        colors = 1 + numbers.uniform(-self.color, self.color, 3)
        return View((left, top, left + wide, top + tall), (height, width), flip, tuple(colors.tolist()))


@dataclass(frozen=True)
class View:
    """One look at an image and its mask."""

    box: tuple[float, float, float, float]
    size: Size
    flip: bool = False
    colors: tuple[float, ...] = (1.0, 1.0, 1.0)
    """What brightness, contrast and color are multiplied by."""

    def of(self, pixels: Pixels) -> Pixels:
        """(height, width, 3)"""
        return self._colored(self._moved(pixels, Image.Resampling.BILINEAR, (124, 116, 104)))

    def of_mask(self, mask: Pixels) -> Pixels:
        """(height, width); what the image does not show does not count."""
        return self._moved(mask, Image.Resampling.NEAREST, UNCOUNTED)

    def _moved(self, pixels: Pixels, how: Image.Resampling, outside: int | tuple[int, ...]) -> Pixels:
        height, width = self.size
        if self.box != (0.0, 0.0, float(pixels.shape[1]), float(pixels.shape[0])) or self.size != pixels.shape[:2]:
            image = Image.fromarray(pixels)
            moved = image.transform((width, height), Image.Transform.EXTENT, self.box, how, fillcolor=outside)
            pixels = np.asarray(moved)
        return pixels[:, ::-1] if self.flip else pixels

    def _colored(self, pixels: Pixels) -> Pixels:
        brightness, contrast, color = self.colors
        if self.colors == (1.0, 1.0, 1.0):
            return pixels
        values = pixels.astype(np.float32) * brightness
        gray = values @ np.array([0.299, 0.587, 0.114], np.float32)
        values = gray[..., None] + (values - gray[..., None]) * color
        mean = gray.mean()
        changed: Pixels = (mean + (values - mean) * contrast).clip(0, 255).astype(np.uint8)
        return changed
