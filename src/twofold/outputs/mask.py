"""Mask output: a class for each pixel of an image (semantic segmentation)."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from twofold import storage
from twofold.data.batches import Draw
from twofold.data.cache import Cache, Encoded, Field
from twofold.data.file_columns import each_usable, name_field
from twofold.data.files import Row
from twofold.data.images import MASK, ImageFile, find_image
from twofold.data.named_files import FileError
from twofold.data.tokenizer import Ids, TextTokenizer
from twofold.data.views import UNCOUNTED, Size
from twofold.errors import TwofoldError
from twofold.explaining import Question
from twofold.inputs import Input
from twofold.inputs.image import ImageInput, Images, SizedImage, named_image
from twofold.outputs import ColumnConfig, ColumnOutput, Tab
from twofold.results import Mask, PixelClasses, Prediction, counts_of
from twofold.results.explanation import Explanation
from twofold.types import Batch, Classes, HiddenSpec, InputBatch, Target

RightMask = Row | ImageFile
"""Row or file of a mask; masks are read batch by batch, because all of them would not fit in memory."""


@dataclass(frozen=True)
class Config(ColumnConfig):
    """Settings of semantic segmentation."""

    takes: ClassVar[type] = PixelClasses
    input: ClassVar[str | None] = "image"
    reads: ClassVar[type[InputBatch]] = Images
    joins: ClassVar[bool] = False
    tab: ClassVar[Tab] = "look"

    column: str = MASK
    """Column that names the mask file; in a plain folder, masks are in `masks/`."""
    classes: tuple[str, ...] = ()
    """Names of the classes, in the order of their numbers."""
    first_class: int = 0
    """Number of the first class in mask files."""
    ignore: int | None = None
    """Pixel value that is ignored in loss and metrics; null ignores none."""

    def __post_init__(self) -> None:
        if not self.classes:
            raise ValueError("classes: name the classes of the masks: output.classes=[...]")
        if not 1 <= len(self.classes) <= 255 - self.first_class or self.first_class < 0:
            raise ValueError("classes: from 1 to 255 names, whose numbers go from first_class, at least 0, up to 254")
        if len(set(self.classes)) < len(self.classes):
            raise ValueError("classes: a name stands twice")
        if self.ignore is not None and self.first_class <= self.ignore < self.first_class + len(self.classes):
            raise ValueError(f"ignore {self.ignore}: the number of '{self.classes[self.ignore - self.first_class]}'")

    def build(self, name: str, input: Input[Any], tokenizer: TextTokenizer | None, spec: HiddenSpec) -> MaskOutput:
        assert isinstance(input, ImageInput)
        return MaskOutput(name, self, Classes(self.classes), input)

    def required(self, row: Row) -> dict[str, tuple[str, ...]]:
        return {}  # missing masks are reported with their images


@dataclass(frozen=True)
class MaskOutput(ColumnOutput[RightMask]):
    """Mask output; masks follow the augmentation of their images."""

    config: Config
    image: ImageInput
    metrics: ClassVar[tuple[str, ...]] = ("loss", "mask")

    def settings(self) -> list[Any]:
        config = self.config
        return [*super().settings(), list(config.classes), config.ignore, config.first_class, self.image.settings()]

    def columns(self) -> dict[str, Field]:
        # The mask comes first, so that its errors are reported there.
        return {self.name: self, f"{self.name}_name": name_field(["mask name", self.config.column], self._named)}

    def encode(self, rows: Sequence[Row]) -> Encoded:
        """Height and width of each mask, after checking its size and classes."""
        return each_usable(rows, lambda row: list(self.gold(row).shape), self.image.config.skips())

    def file(self, row: Row) -> Any:
        """Mask of a row: a file, or an array in memory."""
        value = row.values.get(self.config.column)
        image = row.values.get(self.image.config.column)
        if isinstance(value, str) and value and isinstance(image, ImageFile):
            return find_image(image.files, value)
        if isinstance(value, str | Path) and str(value):
            return ImageFile.at(value)
        # a table cell that names no file
        if value is None or (not isinstance(value, ImageFile) and np.ndim(value) == 0):
            raise FileError(
                f"{row.place}: no mask '{self.config.column}' for this image; put images into images/ and masks of the "
                "same names into masks/, or name both in a table"
            )
        return value

    def _named(self, row: Row) -> Any:
        try:
            return self.file(row)
        except FileError:  # reported where the mask itself is read
            return None

    def gold(self, row: Row) -> NDArray[np.uint8]:
        """Class ids (height, width) from 0; `UNCOUNTED` for ignored pixels."""
        value = self.file(row)
        place = str(value) if isinstance(value, ImageFile) else row.place
        numbers = value.numbers() if isinstance(value, ImageFile) else np.asarray(value)
        if numbers.dtype.kind not in "biu" or (numbers.size and not 0 <= numbers.min() <= numbers.max() <= 255):
            raise FileError(f"{place}: a mask holds class numbers from 0 to 255")
        size = self.image.value(row).size()
        if numbers.shape != size:
            shown = " × ".join(map(str, numbers.shape))
            raise FileError(f"{place}: a mask of {shown} for an image of {size[0]} × {size[1]}")
        return self._classes(numbers, place)

    def _classes(self, numbers: NDArray[np.uint8], place: str) -> NDArray[np.uint8]:
        """Converts a mask file's numbers to class ids from 0."""
        first, ignore = self.config.first_class, self.config.ignore
        last = first + len(self.config.classes) - 1
        occurring = np.flatnonzero(counts_of(numbers))
        unknown = [int(number) for number in occurring if number != ignore and not first <= number <= last]
        if unknown:
            raise FileError(
                f"{place}: holds {', '.join(map(str, unknown[:5]))}, but classes go from {first} to {last}"
                + ("" if ignore is None else f" and {ignore} does not count")
                + "; name those of your masks with output.classes=[...], output.first_class=N and output.ignore=N"
            )
        classes = (numbers - first).astype(np.uint8)
        if ignore is not None:
            classes[numbers == ignore] = UNCOUNTED
        return classes

    def values(self, rows: Sequence[Row]) -> Sequence[RightMask]:
        return rows

    def cached(self, cache: Cache, row: int) -> RightMask:
        return named_image(cache, f"{self.name}_name", row, self.image.config)

    def add_target(self, batch: Batch, values: Sequence[RightMask], draws: Sequence[Draw], training: bool) -> Batch:
        masks = [
            self._classes(value.numbers(), value.place) if isinstance(value, ImageFile) else self.gold(value)
            for value in values
        ]
        fitted = [self.image.config.see_mask(mask) for mask in masks]
        views = batch.read(Images).views
        if views is not None:
            fitted = [view.of_mask(mask) for view, mask in zip(views, fitted, strict=True)]
        classes = torch.from_numpy(np.stack(fitted)).long()
        counts = classes != UNCOUNTED
        return batch.with_target(self.name, Target(classes.masked_fill(~counts, 0), counts))

    def plain(self, answer: Mask) -> dict[str, Any]:
        """Size and class shares of a mask."""
        return {"height": answer.pixels.shape[0], "width": answer.pixels.shape[1], "shares": answer.shares()}

    def shown(self, prediction: Prediction, named: bool = False) -> str:
        shares = prediction.output.shares()
        return f"{prediction.input}: " + ", ".join(f"{name} {share:.1%}" for name, share in shares.items())

    def mask(self, answer: Mask) -> Mask:
        return answer

    def mask_paths(self, inputs: Sequence[Any], folder: Path) -> list[Path]:
        """Paths of mask files: the names of the images with .png; refuses to overwrite other files."""
        paths = [folder / f"{Path(str(image)).stem}.png" for image in inputs]
        images = {Path(str(image)).resolve() for image in inputs}
        seen: set[Path] = set()
        for path in paths:
            if path in seen:
                raise TwofoldError(f"--masks: two images are called {path.stem}; give them apart")
            if path.resolve() in images:
                raise TwofoldError(f"--masks: {path} is one of the images; give another folder")
            seen.add(path)
        return paths

    def write_mask(self, answer: Mask, path: Path) -> None:
        """Writes a PNG of class numbers."""
        content = io.BytesIO()
        Image.fromarray(answer.pixels + np.uint8(answer.first)).save(content, "png")
        storage.write_bytes(path, content.getvalue())

    def answer(self, given: Any, item: SizedImage, raw: PixelClasses, begun: Ids = ()) -> Prediction:
        """Mask in the image's own size; parts cropped in reading take the nearest class."""
        pixels = self._whole(raw.pixels, item.size)
        return Prediction(given, Mask(pixels, self.config.classes, self.config.first_class), raw.score)

    def explain(self, question: Question, raw: PixelClasses) -> Explanation:
        explanation = super().explain(question, raw)
        return (
            explanation
            if raw.confidence is None
            else replace(explanation, confidence=self._whole(raw.confidence, question.item.size))
        )

    def _whole(self, values: NDArray[Any], size: Size) -> NDArray[Any]:
        """Values of pixels in the image's own size, from those that were read."""
        left, top, right, bottom = self.image.config.box(size)
        rows = _nearest(size[0], top, bottom, values.shape[0])
        columns = _nearest(size[1], left, right, values.shape[1])
        return values[rows[:, None], columns[None]]


def _nearest(side: int, start: float, stop: float, read: int) -> NDArray[np.int64]:
    """Index of the nearest read pixel for each pixel of a side; the read part is from `start` to `stop`."""
    places = (np.arange(side) + 0.5 - start) * read / (stop - start)
    nearest: NDArray[np.int64] = np.floor(places).astype(np.int64).clip(0, read - 1)
    return nearest
