"""Image and mask files: decoding within limits. Broken, oversized or hostile files raise an error."""

from __future__ import annotations

import io
import itertools
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from twofold.data.files import Row
from twofold.data.named_files import FileError, Files, NamedFile, find_files, open_files, read_named_table
from twofold.errors import TwofoldError

ENDINGS = (".png", ".jpg", ".jpeg", ".webp")
"""File name suffixes of images."""
FORMATS = ("PNG", "JPEG", "WEBP")
MOST_PIXELS = 50_000_000
"""Maximum number of pixels of one image."""
PIXEL_BYTES = 16
"""Peak memory of decoding, in bytes for each pixel: WebP keeps two frames, its output and the image; other formats take
half."""
STRIP = 1 << 20
"""Pixels converted to another color mode at a time."""
IMAGES, MASKS, MASK = "images", "masks", "mask"
"""Folders of images and masks, where no table names them, and the column of the masks."""


@dataclass(frozen=True)
class ImageFile(NamedFile):
    """Image file."""

    def image(self, near: tuple[int, int] | None = None) -> Image.Image:
        """Decodes to upright RGB, with transparent areas on white.

        near: minimum height and width; a much larger JPEG is decoded at 1/2, 1/4 or 1/8 of its size, never below these
        """
        return _finished(_opened(self.content(), self.place), self.place, near)

    def numbers(self) -> NDArray[np.uint8]:
        """Class ids (height, width) of an image with one number for each pixel, such as a mask."""
        image = _opened(self.content(), self.place)
        if image.mode not in ("L", "P", "1"):
            raise FileError(f"{self.place}: a mask has one class number for each pixel, not {image.mode} values")
        tile: Any = getattr(image, "tile", None)
        spread = _SPREAD.get(str(tile[0][3]), 1) if tile else 1
        numbers = np.asarray(_upright(*_loaded(image, self.place)))
        return numbers if numbers.dtype == np.uint8 and spread == 1 else (numbers // spread).astype(np.uint8)

    def size(self) -> tuple[int, int]:
        """Height and width from the file header."""
        return _size(_opened(self.content(), self.place), self.place)


@dataclass(frozen=True)
class GivenImage:
    """Image in memory."""

    pixels: Any = field(repr=False)
    """Pillow image, or uint8 array (height, width) or (height, width, 3 or 4)."""
    place: str = "image"

    def image(self, near: tuple[int, int] | None = None) -> Image.Image:
        """Converts to RGB. Reduced decoding does not apply, because the image is already decoded."""
        return _finished(self._given(), self.place)

    def size(self) -> tuple[int, int]:
        return _size(self._given(), self.place)

    def _given(self) -> Image.Image:
        """Returns the image as it was given."""
        image = self.pixels
        if not isinstance(image, Image.Image):
            array = np.asarray(image)
            if array.dtype != np.uint8 or array.ndim < 2 or array.shape[2:] not in ((), (3,), (4,)) or not array.size:
                given = f"{array.dtype} of {array.shape}"
                raise FileError(f"{self.place}: not uint8 of (height, width), (…, 3) or (…, 4), but {given}")
            image = Image.fromarray(array)
        if not 0 < image.width * image.height <= MOST_PIXELS:
            raise FileError(f"{self.place}: {image.width} × {image.height} pixels; {MOST_PIXELS:,} at most")
        return image


_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
"""Transpositions that make an image upright, by EXIF orientation."""
_SPREAD = {"L;2": 85, "L;4": 17}
"""Factors by which Pillow multiplies the values of gray images with two or four bits."""


def as_image(given: Any, place: str) -> ImageFile | GivenImage:
    """Accepts a path, a Pillow image or an array."""
    if isinstance(given, ImageFile | GivenImage):
        return given
    if isinstance(given, str | Path):
        return ImageFile.at(given)
    return GivenImage(given, place)


def read_images(where: str, folder: str | None, column: str) -> Iterator[Row]:
    """Reads rows with images: from a table that names them, or from a folder.

    folder: folder or archive of the files that a table names; by default the table's own folder

    In a folder that contains `images/`, only those are read; files of the same name in `masks/` are their `mask`.
    """
    files = find_files(where)
    if files is None:
        yield from read_named_table(where, open_files(folder or Path(where).parent), column, ImageFile, ENDINGS)
        return
    names = [name for name in files.names() if name.lower().endswith(ENDINGS)]
    shown = [name for name in names if name.startswith(f"{IMAGES}/")]
    masks = {_stem(name, MASKS): ImageFile(files, name) for name in names if name.startswith(f"{MASKS}/")}
    for name in shown or names:
        mask = masks.get(_stem(name, IMAGES)) if shown else None
        yield Row(files.place(name), {column: ImageFile(files, name), **({MASK: mask} if mask else {})})
    if not names:
        raise TwofoldError(f"{where}: holds no images ({', '.join(ENDINGS)})")


def find_image(files: Files, name: str) -> ImageFile:
    """Finds an image by name; the suffix may be omitted."""
    return ImageFile(files, files.named(name, ENDINGS))


def _stem(name: str, folder: str) -> str:
    return str(PurePosixPath(name).relative_to(folder).with_suffix(""))


@contextmanager
def _decoding(place: str) -> Iterator[None]:
    """Names the image in Pillow's errors; Pillow's warnings are irrelevant here or handled as errors."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except FileError:
        raise
    except UnidentifiedImageError:
        raise FileError(f"{place}: not a {', '.join(FORMATS)} image") from None
    except Image.DecompressionBombError:
        raise FileError(f"{place}: an image of over {MOST_PIXELS:,} pixels") from None
    except Exception as error:  # Pillow raises various exceptions for damaged files
        raise FileError(f"{place}: not a whole image ({error})") from None


def _opened(content: bytes, place: str) -> Image.Image:
    """Opens an image and checks the pixel count in its header."""
    with _decoding(place):
        image = Image.open(io.BytesIO(content), formats=FORMATS)
    if image.width * image.height > MOST_PIXELS:
        raise FileError(f"{place}: {image.width} × {image.height} are over {MOST_PIXELS:,} pixels")
    return image


def _orientation(image: Image.Image, place: str) -> int:
    """Returns the EXIF orientation; 1 is upright."""
    with _decoding(place):
        orientation = image.getexif().get(0x0112)
    return orientation if orientation in _TURNS else 1


def _size(image: Image.Image, place: str) -> tuple[int, int]:
    """Returns height and width after rotation."""
    return (image.width, image.height) if _orientation(image, place) >= 5 else (image.height, image.width)


def _upright(image: Image.Image, orientation: int) -> Image.Image:
    return image if orientation == 1 else image.transpose(_TURNS[orientation])


def _loaded(image: Image.Image, place: str, near: tuple[int, int] | None = None) -> tuple[Image.Image, int]:
    """Decodes an image; also returns its EXIF orientation."""
    with _decoding(place):
        if near is not None and image.format == "JPEG":
            image.draft(None, near if _orientation(image, place) >= 5 else (near[1], near[0]))
        image.load()
    orientation = _orientation(image, place)
    return (image.copy() if image.format == "WEBP" else image), orientation  # the WebP decoder keeps two more frames


def _finished(image: Image.Image, place: str, near: tuple[int, int] | None = None) -> Image.Image:
    """Decodes an image to upright RGB, freeing each intermediate copy."""
    image, orientation = _loaded(image, place, near)
    image = _in_colors(image)
    return _upright(image, orientation)


def _in_colors(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I;16") or image.mode in ("I", "F"):  # 16-bit gray
        return _by_strips(image, _eight_bits)
    if "A" in image.mode or "transparency" in image.info:
        return _by_strips(image, _on_white)
    return image if image.mode == "RGB" else image.convert("RGB")


def _by_strips(image: Image.Image, change: Callable[[Image.Image], Image.Image]) -> Image.Image:
    """Converts to RGB in strips, because the conversion needs several copies of the pixels."""
    changed = Image.new("RGB", image.size)
    wide = min(image.width, STRIP)
    high = max(1, STRIP // wide)
    for top, left in itertools.product(range(0, image.height, high), range(0, image.width, wide)):
        box = (left, top, min(left + wide, image.width), min(top + high, image.height))
        changed.paste(change(image.crop(box)).convert("RGB"), box)
    return changed


def _eight_bits(image: Image.Image) -> Image.Image:
    return Image.fromarray((np.asarray(image).clip(0, 65_535) / 257).astype(np.uint8))


def _on_white(image: Image.Image) -> Image.Image:
    image = image.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
