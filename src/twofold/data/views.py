"""Image preprocessing: resizing, normalization and random augmentation."""

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
"""Class id of mask pixels that are ignored in loss and metrics."""
GAP = 3
"""Factor by which a reduced image stays larger than its final size before the smooth resize."""
Size = tuple[int, int]
"""Height and width."""
Pixels = NDArray[np.uint8]
"""Pixels: (height, width, 3) for an image, (height, width) for a mask."""


@dataclass(frozen=True)
class ImageSettings:
    """Settings of image preprocessing."""

    size: Size | None = None
    """Height and width that every image is resized to; null keeps each image's size, and a batch then holds one
    size."""
    fit: Literal["stretch", "crop"] = "stretch"
    """Way to reach `size`: `stretch` resizes the whole image, `crop` takes the largest central part of the right
    shape."""
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    """Mean of red, green and blue (values from 0 to 1), which is subtracted; the default is ImageNet's."""
    deviation: tuple[float, float, float] = (0.229, 0.224, 0.225)
    """Standard deviation of red, green and blue, which they are divided by; the default is ImageNet's."""

    def __post_init__(self) -> None:
        if self.size and not all(1 <= side <= 10_000 for side in self.size):
            raise ValueError(f"size {list(self.size)}: height and width must be from 1 to 10000")
        if not all(value > 0 for value in self.deviation):
            raise ValueError("deviation must be above 0")

    def fitted(self, size: Size) -> Size:
        """Size in which an image of this size is read."""
        return self.size or size

    def box(self, size: Size) -> tuple[float, float, float, float]:
        """Left, top, right and bottom edge of the part of the image that is read."""
        height, width = size
        if self.size is None or self.fit == "stretch":
            return 0.0, 0.0, float(width), float(height)
        scale = min(height / self.size[0], width / self.size[1])
        # Rounding must not go beyond the image.
        kept = min(self.size[0] * scale, height), min(self.size[1] * scale, width)
        top, left = (height - kept[0]) / 2, (width - kept[1]) / 2
        return left, top, left + kept[1], top + kept[0]

    @property
    def near(self) -> Size | None:
        """Minimum size of a reduced image: reducing further before the final resize would be visible."""
        return None if self.size is None else (GAP * self.size[0], GAP * self.size[1])

    def see(self, image: Image.Image) -> Pixels:
        """Resized pixels (height, width, 3) of an image."""
        return self._resized(image, Image.Resampling.BILINEAR, GAP)

    def see_mask(self, mask: Pixels) -> Pixels:
        """Resized class ids (height, width) of a mask, by nearest neighbor."""
        return self._resized(Image.fromarray(mask), Image.Resampling.NEAREST)

    def _resized(self, image: Image.Image, how: Image.Resampling, gap: int | None = None) -> Pixels:
        size = (image.height, image.width)
        height, width = self.fitted(size)
        if (height, width) != size:
            image = image.resize((width, height), how, self.box(size), gap)
        return np.asarray(image)

    def tensor(self, images: Sequence[Pixels]) -> Tensor:
        """Normalized tensor (images, 3, height, width) of images of one size."""
        pixels = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).float()
        mean, deviation = (torch.tensor(values)[:, None, None] * 255 for values in (self.mean, self.deviation))
        return pixels.sub_(mean).div_(deviation)  # in place: saves four bytes for each value


@dataclass(frozen=True)
class Augment:
    """Random augmentation of images in training; the mask follows its image."""

    flip: bool = False
    """Mirrors half of the images horizontally."""
    scale: tuple[float, float] = (1.0, 1.0)
    """Minimum and maximum zoom factor; parts outside are cut off, missing parts are gray. [1, 1] changes nothing."""
    crop: Size | None = None
    """Height and width of a random crop for training; null uses the whole image."""
    color: float = 0.0
    """Maximum relative change of brightness, contrast and saturation: 0.2 is ±20 %; 0 changes nothing."""

    def __post_init__(self) -> None:
        if not 0.1 <= self.scale[0] <= self.scale[1] <= 10 or not 0 <= self.color < 1:
            raise ValueError("scale must be two numbers from 0.1 to 10, the smaller one first; color from 0 to 1")
        if self.crop and not all(1 <= side <= 10_000 for side in self.crop):
            raise ValueError(f"crop {list(self.crop)}: height and width must be from 1 to 10000")

    def draw(self, size: Size, numbers: np.random.Generator) -> View:
        """Draws a random view of an image of this size."""
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
    """View of an image and its mask: the box that is read, its size, flip and colors."""

    box: tuple[float, float, float, float]
    size: Size
    flip: bool = False
    colors: tuple[float, ...] = (1.0, 1.0, 1.0)
    """Factors of brightness, contrast and saturation."""

    def of(self, pixels: Pixels) -> Pixels:
        """Pixels (height, width, 3) of an image in this view."""
        return self._colored(self._moved(pixels, Image.Resampling.BILINEAR, (124, 116, 104)))

    def of_mask(self, mask: Pixels) -> Pixels:
        """Class ids (height, width) of a mask in this view; parts outside the image are ignored."""
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
