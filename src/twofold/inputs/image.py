"""An image, read in its own size or brought to one, in random views while training."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from PIL.Image import Image
from torch import Tensor

from twofold.data.batches import Draw, Plan, plan_at_random, plan_by_size
from twofold.data.cache import Cache, DerivedField, Encoded, Field
from twofold.data.columns import TooLongError
from twofold.data.files import DataFile, Row, Sources, fingerprint
from twofold.data.images import ENDINGS, GivenImage, ImageFile, as_image, image_names, read_images
from twofold.data.named_files import FileError, Files, FileSide, find_files, name_files, open_files
from twofold.data.ranking import Side
from twofold.data.tokenizer import TextTokenizer
from twofold.data.views import Augment, ImageSettings, Size, View
from twofold.errors import TwofoldError, listed
from twofold.inputs import INPUT, BatchSizes, Input, InputConfig
from twofold.types import InputBatch

NAME = "name"
"""The cache's column of the images' names."""


@dataclass(frozen=True)
class Images(InputBatch):
    """Images of one size."""

    pixels: Tensor
    """(rows, 3, height, width), normalized."""
    views: tuple[View, ...] | None = None
    """What part of each image is shown, where that was drawn at random."""

    def __len__(self) -> int:
        return self.pixels.shape[0]


@dataclass(frozen=True)
class Config(ImageSettings, InputConfig):
    """Settings of images."""

    gives: ClassVar[type[InputBatch]] = Images
    noun: ClassVar[str] = "image"
    endings: ClassVar[tuple[str, ...]] = ENDINGS
    training: ClassVar[Mapping[str, Any]] = {"batch_rows": 16, "warmup_share": 0.1}

    column: str = "image"
    """The column of a table that names the image."""
    folder: str | None = None
    """The folder or zip archive of the images that a table names; the table's own folder unless given."""
    augment: Augment = field(default_factory=Augment)
    """Random views while training."""

    def build(self, tokenizer: TextTokenizer | None) -> ImageInput:
        return ImageInput(self)

    def in_folder(self, folder: str | None) -> Self:
        return replace(self, folder=folder)

    def skips(self) -> bool:
        return self.broken == "skip"

    def check_columns(self, where: Sources) -> bool:
        return not self.skips() and find_files(_one(where)) is None

    def check_batch_rows(self, rows: int | None) -> None:
        if not rows:
            raise ValueError("batch_rows must be at least 1: images have no tokens to count")

    def rows(self, where: Sources) -> Iterator[Row]:
        return read_images(_one(where), self.folder, self.column)

    def files(self, where: Sources, setting: str) -> dict[str, DataFile]:
        path = _one(where)
        files, names = self.files_of(path), image_names(self.rows(path))
        images = DataFile(files.place(""), partial(files.sum, names), files.fingerprint(names))
        if find_files(path):
            return {setting: images}
        return {**super().files(path, setting), f"images of {setting}": images}

    def name_files(self, rows: Iterable[Row], where: Sources, columns: Sequence[str]) -> Iterator[Row]:
        path = _one(where)
        if find_files(path):
            return iter(rows)
        return name_files(rows, self.files_of(path), columns, ImageFile, ENDINGS, lists=True)

    def side(self) -> Side:
        return FileSide(self.noun, as_image)

    def content(self, where: Sources) -> str:
        path = _one(where)
        table = "" if find_files(path) else fingerprint(path)
        return f"{table} {self.files_of(path).fingerprint(image_names(self.rows(path)))}"

    def files_of(self, where: str) -> Files:
        """Where the images lie that a table names, or that a folder holds."""
        return find_files(where) or open_files(self.folder or Path(where).parent)


def _one(where: Sources) -> str:
    if not isinstance(where, str):
        raise TwofoldError("images are named by one table, or lie in one folder")
    return where


@dataclass(frozen=True)
class SizedImage:
    """An image to be read, and its own height and width."""

    image: ImageFile | GivenImage
    size: Size


def each_usable(rows: Sequence[Row], numbers: Callable[[Row], list[int]], skips: bool) -> Encoded:
    """The numbers of each row; one that cannot be used has none where that `skips` it, and is an error otherwise."""
    usable: list[list[int]] = []
    reasons = []
    for row in rows:
        try:
            usable.append(numbers(row))
        except TooLongError:  # has a setting of its own
            raise
        except TwofoldError as error:
            if not skips:
                raise
            reasons.append(str(error))
            usable.append([])
    if reasons:
        warnings.warn(f"left out: {listed(reasons)}", stacklevel=2)
    return Encoded(usable, len(reasons))


PATCH = 16
"""Pixels on each side of the square that counts as a token, where images and texts share a limit."""


@dataclass(frozen=True)
class ImageInput(Input[SizedImage]):
    """Items are images whose pixels are not read yet."""

    config: Config
    dtype: str = "int32"

    def settings(self) -> list[Any]:
        return ["image", self.config.column, self.config.size, self.config.broken]

    def encode(self, rows: Sequence[Row]) -> Encoded:
        """The height and width in which each image is read; reading it whole shows whether it can be."""
        return each_usable(rows, lambda row: list(self._pixels(self.value(row)).shape[:2]), self.config.skips())

    def value(self, row: Row) -> ImageFile | GivenImage:
        value = row.values.get(self.config.column)
        if value is None:
            raise FileError(f"{row.place}: '{self.config.column}' names no image; this row has {', '.join(row.values)}")
        return as_image(value, row.place)

    def columns(self) -> dict[str, Field]:
        return {NAME: name_field([self.config.column], lambda row: row.values.get(self.config.column)), INPUT: self}

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
        """Batches of images of one size."""
        assert sizes.rows
        if self.config.augment.crop:  # whatever their sizes were, the parts that are learned from have one
            return plan_at_random(rows, sizes.rows, sizes.seed, epoch)
        # Rows that were left out have no size, so a row's size stands where its offset says.
        read_sizes = cache.columns[INPUT].whole().reshape(-1, 2)[cache.columns[INPUT].offsets[rows] // 2]
        return plan_by_size(read_sizes, rows, sizes.rows, sizes.seed, epoch)

    def groups(self, items: Sequence[SizedImage], tokens: int) -> Iterator[list[int]]:
        """Images that are read in one size, at most so many that they fill a batch."""
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

    def usable(self, rows: Iterable[Row], further: Iterable[Field]) -> Iterator[Row]:
        columns = [self, *further]
        return (row for row in rows if all(column.encode([row]).ids[0] for column in columns))

    def rows_to_answer(self, where: str, folder: str | None) -> list[Row]:
        if find_files(where):
            rows = list(self.config.rows(where))
        else:
            rows = super().rows_to_answer(where, folder)
            if set(rows[0].values) != {self.config.column} or folder:  # a table, and not plain lines
                rows = list(self.config.in_folder(folder).rows(where))
        return [row for row in rows if each_usable([row], self._named, self.config.skips()).ids[0]]

    def _named(self, row: Row) -> list[int]:
        """That a row names an image."""
        return [self.value(row) is not None]

    def box(self, size: Size) -> tuple[float, float, float, float]:
        return self.config.box(size)

    def image(self, value: Any) -> Image:
        return as_image(value, "image").image()

    def several(self, inputs: Any) -> Sequence[Any]:
        return inputs if isinstance(inputs, list | tuple) else [inputs]

    def _pixels(self, image: ImageFile | GivenImage) -> NDArray[np.uint8]:
        return self.config.see(image.image(self.config.near))


def name_field(settings: list[Any], file: Callable[[Row], Any]) -> DerivedField:
    """The names of images or masks as bytes, so that a training finds them again; one at hand has none."""

    def encode(rows: Sequence[Row]) -> Encoded:
        names = [image.name if isinstance(image, ImageFile) else "" for image in map(file, rows)]
        return Encoded([list(name.encode(errors="surrogatepass")) for name in names])

    return DerivedField("uint8", lambda: settings, encode)


def named_image(cache: Cache, column: str, row: int, config: Config) -> ImageFile:
    """The image whose name a cache keeps."""
    name = cache.columns[column].row(row).tobytes().decode(errors="surrogatepass")
    return ImageFile(config.files_of(str(cache.where)), name)
