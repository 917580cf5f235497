"""Image input: images in their own size or resized, with random augmentation in training."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from PIL.Image import Image
from torch import Tensor

from twofold.data.batches import Draw, Plan, plan_at_random, plan_by_size
from twofold.data.cache import Cache, Field
from twofold.data.file_columns import NAME, FileColumn, FileSettings, cached_name
from twofold.data.files import Row, Sources
from twofold.data.images import ENDINGS, GivenImage, ImageFile, as_image, read_images
from twofold.data.named_files import NamedFile
from twofold.data.tokenizer import TextTokenizer
from twofold.data.views import GAP, Augment, ImageSettings, Size, View
from twofold.inputs import INPUT, BatchSizes, Input, InputConfig
from twofold.types import Features, InputBatch

PATCH = 16
"""Side in pixels of the square that counts as one token, where images and texts share a token limit."""


@dataclass(frozen=True)
class Images(InputBatch):
    """Images of one size."""

    pixels: Tensor
    """Normalized pixels (rows, 3, height, width)."""
    views: tuple[View, ...] | None = None
    """Random view of each image (augmentation), if drawn."""

    def __len__(self) -> int:
        return self.pixels.shape[0]


@dataclass(frozen=True)
class Config(ImageSettings, FileSettings, InputConfig):
    """Settings of image inputs."""

    gives: ClassVar[type[InputBatch]] = Images
    noun: ClassVar[str] = "image"
    endings: ClassVar[tuple[str, ...]] = ENDINGS
    file: ClassVar[type[NamedFile]] = ImageFile
    training: ClassVar[Mapping[str, Any]] = {"batch_rows": 16, "warmup_share": 0.1}

    column: str = "image"
    """Column of the table that names the image."""
    augment: Augment = field(default_factory=Augment)
    """Random augmentation in training."""

    def build(self, tokenizer: TextTokenizer | None) -> ImageInput:
        return ImageInput(self)

    def check_batch_rows(self, rows: int | None) -> None:
        if not rows:
            raise ValueError("batch_rows must be at least 1: images have no tokens to count")

    def rows(self, where: Sources) -> Iterator[Row]:
        return read_images(self.source(where), self.folder, self.column)

    def given(self, value: Any, place: str) -> ImageFile | GivenImage:
        return as_image(value, place)


@dataclass(frozen=True)
class SizedImage:
    """Image to read, with its height and width."""

    image: ImageFile | GivenImage
    size: Size


@dataclass(frozen=True)
class ImageInput(FileColumn, Input[SizedImage]):
    """Image input; items are images whose pixels are read later."""

    config: Config
    dtype: str = "int32"
    example: ClassVar[str] = "np.zeros((64, 96, 3), np.uint8)"

    def settings(self) -> list[Any]:
        return ["image", self.config.column, self.config.size, self.config.broken]

    @property
    def spec(self) -> Features:
        return Features(size=self.config.size)

    def numbers(self, row: Row) -> list[int]:
        """Returns the height and width in which an image is read."""
        return list(self._pixels(self.value(row)).shape[:2])

    def columns(self) -> dict[str, Field]:
        return {NAME: self.names(), INPUT: self}

    def items(self, rows: Sequence[Row]) -> list[SizedImage]:
        return [SizedImage(image, image.size()) for image in map(self.value, rows)]

    def cached(self, cache: Cache, row: int) -> SizedImage:
        height, width = cache.columns[INPUT].row(row).tolist()
        return SizedImage(named_image(cache, NAME, row, self.config), (height, width))

    def length(self, item: SizedImage) -> int:
        height, width = self.config.fitted(item.size)
        return -(-height // PATCH) * -(-width // PATCH)

    def plan(
        self, cache: Cache, rows: NDArray[np.int64], written: Sequence[NDArray[np.int64]], sizes: BatchSizes, epoch: int
    ) -> Plan:
        """Plans batches of images of one size."""
        assert sizes.rows
        if self.config.augment.crop:  # random crops have one size, whatever the size of the images
            return plan_at_random(rows, sizes.rows, sizes.seed, epoch)
        # Skipped rows have no size, so sizes are found by the row's offset.
        read_sizes = cache.columns[INPUT].whole().reshape(-1, 2)[cache.columns[INPUT].offsets[rows] // 2]
        return plan_by_size(read_sizes, rows, sizes.rows, sizes.seed, epoch)

    def groups(self, items: Sequence[SizedImage], tokens: int) -> Iterator[list[int]]:
        """Groups images of one size, up to a full batch."""
        sizes: dict[Size, list[int]] = {}
        for number, item in enumerate(items):
            sizes.setdefault(self.config.fitted(item.size), []).append(number)
        for (height, width), numbers in sizes.items():
            step = max(1, tokens * PATCH**2 // (height * width))
            yield from (numbers[start : start + step] for start in range(0, len(numbers), step))

    def batch(self, items: Sequence[SizedImage], draws: Sequence[Draw] | None = None) -> Images:
        pixels = [self._pixels(item.image) for item in items]
        if draws is None:
            return Images(self.config.tensor(pixels))
        draw_view = self.config.augment.draw
        views = tuple(draw_view(image.shape[:2], draw) for image, draw in zip(pixels, draws, strict=True))
        return Images(self.config.tensor([view.of(image) for view, image in zip(views, pixels, strict=True)]), views)

    def box(self, size: Size) -> tuple[float, float, float, float]:
        return self.config.box(size)

    def image(self, value: Any) -> Image:
        return as_image(value, "image").image()

    def reading(self) -> dict[str, Any]:
        size = None if self.config.size is None else list(self.config.size)
        values = {"mean": list(self.config.mean), "deviation": list(self.config.deviation)}
        return {"reader": "images", "size": size, "fit": self.config.fit, **values, "gap": GAP}

    def samples(self) -> list[Any]:
        draw, (height, width) = np.random.default_rng(0), self.config.size or (64, 96)
        sizes = ((height, width), (height, width), (height, width + 32), (height + 16, width))
        return [draw.integers(0, 256, (*size, 3), np.uint8) for size in sizes]

    def _pixels(self, image: ImageFile | GivenImage) -> NDArray[np.uint8]:
        return self.config.see(image.image(self.config.near))


def named_image(cache: Cache, column: str, row: int, config: Config) -> ImageFile:
    """Image whose name is cached."""
    return ImageFile(config.files_of(str(cache.where)), cached_name(cache, column, row))
