"""Columns of images, of their masks and of their captions, as numbers."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twofold.data.cache import Encoded
from twofold.data.fields import TextField, TooLongError
from twofold.data.files import Row
from twofold.data.image_files import ImageError
from twofold.data.images import ImageFile, Shown, as_image
from twofold.data.views import UNCOUNTED, ImageSettings, Size
from twofold.errors import TwofoldError, listed
from twofold.results import counts_of
from twofold.types import Classes, Vocabulary

PREDICT_PIXELS = 1 << 20
"""Pixels of one batch when predicting."""


@dataclass(frozen=True)
class Seen:
    """An image to be read, and the beginning of the text that is read with it."""

    image: ImageFile | Shown
    size: Size
    """Its own height and width."""
    prefix: Sequence[int] = ()


def each_usable(rows: Sequence[Row], numbers: Callable[[Row], list[int]], refuse: bool) -> Encoded:
    """The numbers of each row; none where the row cannot be used, unless that is an error."""
    found: list[list[int]] = []
    reasons = []
    for row in rows:
        try:
            found.append(numbers(row))
        except TooLongError:  # has a setting of its own
            raise
        except TwofoldError as error:
            if refuse:
                raise
            reasons.append(str(error))
            found.append([])
    if reasons:
        warnings.warn(f"left out: {listed(reasons)}", stacklevel=2)
    return Encoded(found, len(reasons))


@dataclass(frozen=True)
class NameField:
    """The name of an image as bytes, so that a training finds it again."""

    column: str
    dtype: str = "uint8"

    def settings(self) -> list[Any]:
        return [self.column]

    def encode(self, rows: Sequence[Row]) -> Encoded:
        named = [row.values.get(self.column) for row in rows]
        return Encoded(
            [list(one.name.encode(errors="surrogatepass")) if isinstance(one, ImageFile) else [] for one in named], 0
        )


@dataclass(frozen=True)
class ImageField:
    """Reads the images of one column, perhaps with the beginning of a text."""

    column: str
    view: ImageSettings
    prefix: TextField | None = None
    dtype: str = "int32"

    @property
    def vocabulary(self) -> Vocabulary:
        """That of the text which may be read with an image."""
        return self.prefix.vocabulary if self.prefix else Vocabulary.none()

    def settings(self) -> list[Any]:
        return [self.column, self.view.size, self.view.broken]

    def given(self, value: Any, place: str = "") -> Row:
        """What a user gives as a row."""
        return Row(place, {self.column: value})

    def taken(self, row: Row) -> Any:
        """The same out of a row."""
        return self.image(row)

    def encode(self, rows: Sequence[Row]) -> Encoded:
        """The height and width in which each image is read; reading it whole shows whether it can be."""
        return each_usable(rows, lambda row: list(self._read(self.image(row)).shape[:2]), self.refuse)

    @property
    def refuse(self) -> bool:
        """Whether an image that cannot be used is an error."""
        return self.view.broken == "refuse"

    def image(self, row: Row) -> ImageFile | Shown:
        value = row.values.get(self.column)
        if value is None:
            raise ImageError(f"{row.place}: '{self.column}' names no image; this row has {', '.join(row.values)}")
        return as_image(value, row.place)

    def see(self, rows: Sequence[Row]) -> list[Seen]:
        """The images of some rows, whose pixels are not read yet."""
        found = []
        for row in rows:
            image, ids = self.image(row), []
            if self.prefix and row.values.get(self.prefix.column):
                encoded = self.prefix.encode([row])
                ids = encoded.ids[0]
                if self.prefix.tokenizer.unknown in ids:
                    warnings.warn("the beginning holds letters that the model does not know", stacklevel=4)
                if encoded.cut:
                    warnings.warn(f"the beginning is longer than {self.prefix.limit} tokens and was cut", stacklevel=4)
            found.append(Seen(image, image.size(), ids))
        return found

    def pixels(self, seen: Seen) -> NDArray[np.uint8]:
        return self._read(seen.image)

    def _read(self, image: ImageFile | Shown) -> NDArray[np.uint8]:
        return self.view.see(image.image(self.view.near))

    def groups(self, seen: Sequence[Seen]) -> Iterator[list[int]]:
        """Numbers of images that are read in one size, at most so many that they fill a batch."""
        sizes: dict[Size, list[int]] = {}
        for number, one in enumerate(seen):
            sizes.setdefault(self.view.fitted(one.size), []).append(number)
        for (height, width), numbers in sizes.items():
            step = max(1, PREDICT_PIXELS // (height * width))
            yield from (numbers[start : start + step] for start in range(0, len(numbers), step))


@dataclass(frozen=True)
class MaskField:
    """Reads the masks of one column: a class number for each pixel."""

    column: str
    source: ImageField
    classes: Classes
    ignore: int | None = None
    """The number of pixels that do not count."""
    first: int = 0
    """The number of the first class."""
    dtype: str = "int32"

    def settings(self) -> list[Any]:
        return [self.column, list(self.classes.names), self.ignore, self.first, self.source.settings()]

    def encode(self, rows: Sequence[Row]) -> Encoded:
        """Height and width of each mask, if it fits its image and knows no other class."""
        return each_usable(rows, lambda row: list(self.gold(row).shape), self.source.refuse)

    def gold(self, row: Row) -> NDArray[np.uint8]:
        """(height, width) of classes from 0, `UNCOUNTED` where a pixel does not count."""
        value = row.values.get(self.column)
        if value is None:
            raise ImageError(f"{row.place}: no mask '{self.column}' for this image")
        if isinstance(value, str | Path):
            value = ImageFile.at(value)
        place = str(value) if isinstance(value, ImageFile) else row.place
        numbers = value.numbers() if isinstance(value, ImageFile) else np.asarray(value)
        if numbers.dtype.kind not in "biu" or (numbers.size and not 0 <= numbers.min() <= numbers.max() <= 255):
            raise ImageError(f"{place}: a mask holds class numbers from 0 to 255")
        size = self.source.image(row).size()
        if numbers.shape != size:
            shown = " × ".join(map(str, numbers.shape))
            raise ImageError(f"{place}: a mask of {shown} for an image of {size[0]} × {size[1]}")
        return self.classed(numbers, place)

    def classed(self, numbers: NDArray[np.uint8], place: str) -> NDArray[np.uint8]:
        """Classes from 0 of a mask's own numbers."""
        last = self.first + len(self.classes) - 1
        found = np.flatnonzero(counts_of(numbers))
        unknown = [int(one) for one in found if one != self.ignore and not self.first <= one <= last]
        if unknown:
            raise ImageError(
                f"{place}: holds {', '.join(map(str, unknown[:5]))}, but classes go from {self.first} to {last}"
                + ("" if self.ignore is None else f" and {self.ignore} does not count")
                + "; name those of your masks with data.classes=[...], data.first_class=N and data.ignore=N"
            )
        classes = (numbers - self.first).astype(np.uint8)
        if self.ignore is not None:
            classes[numbers == self.ignore] = UNCOUNTED
        return classes


@dataclass(frozen=True)
class CaptionField:
    """Reads the texts of some columns, each of which describes the same image."""

    columns: tuple[str, ...]
    text: TextField
    """How one of them is read."""
    refuse: bool = True
    """Whether an empty one is an error; otherwise its row is left out."""

    @property
    def vocabulary(self) -> Vocabulary:
        return self.text.vocabulary

    @property
    def dtype(self) -> str:
        return self.text.dtype

    def settings(self) -> list[Any]:
        return [list(self.columns), self.refuse, self.text.settings()]

    def texts(self, row: Row) -> list[str]:
        """All texts of a row; a column may hold several."""
        found = [row.text(column) for column in self.columns]
        return [text for one in found for text in ([one] if isinstance(one, str) else one)]

    def encode(self, rows: Sequence[Row]) -> Encoded:
        """The ids of all texts of a row one after another, each with its end symbol."""
        cut = 0

        def numbers(row: Row) -> list[int]:
            nonlocal cut
            encoded = self.each(row)
            cut += encoded.cut
            return [token for ids in encoded.ids for token in (*ids, self.text.tokenizer.end)]

        return Encoded(each_usable(rows, numbers, self.refuse).ids, cut)

    def each(self, row: Row) -> Encoded:
        """The ids of each text of a row."""
        return self.text.encode([Row(row.place, {self.text.column: text}) for text in self.texts(row)])

    def split(self, numbers: NDArray[Any]) -> list[NDArray[Any]]:
        """The ids of each text again."""
        ends = np.flatnonzero(numbers == self.text.tokenizer.end)
        return [one[:-1] for one in np.split(numbers, ends + 1)[:-1]]

    def decode(self, ids: Sequence[int]) -> str:
        return self.text.decode(ids)
