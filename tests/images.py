"""Colored shapes with their masks and captions, recipes for them, and bad files, for all tests of images."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

Pixels = NDArray[np.uint8]
COLORS = {"red": (220, 30, 30), "green": (30, 200, 40), "blue": (30, 40, 220), "white": (240, 240, 240)}
SHAPES = ("square", "cross", "bar")
CLASSES = ["ground", "red", "blue"]
SIDE = 16


def encoded(image: Image.Image | Pixels, kind: str = "png", **settings: Any) -> bytes:
    """The file of an image."""
    content = io.BytesIO()
    (image if isinstance(image, Image.Image) else Image.fromarray(image)).save(content, kind, **settings)
    return content.getvalue()


def noise(height: int, width: int, seed: int = 0, *channels: int) -> Pixels:
    """(height, width, channels) of any bytes."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, *channels)).astype(np.uint8)


def promising(width: int, height: int) -> bytes:
    """A png of a few bytes whose head promises an image of any size."""
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(bytes(9))), (b"IEND", b""))
    made = [
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(made)


def write_files(folder: Path, files: Mapping[str, bytes]) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def write_zip(path: Path, files: Mapping[str, bytes], packing: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", packing) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def bad_files() -> dict[str, bytes]:
    """Files that are no images, by what is wrong with them."""
    image = Image.fromarray(noise(SIDE, SIDE, 1, 3))
    return {
        "text.jpg": b"this is no image\n",
        "empty.png": b"",
        "cut.jpg": encoded(image, "jpeg")[:-200],
        "cut.png": encoded(image)[:-200],
        "huge.png": promising(30_000, 30_000),
        "large.png": promising(10_000, 10_000),
    }


def squares(seed: int, side: int = SIDE) -> tuple[Pixels, Pixels]:
    """A dark image with a red and a blue square that may overlap, and its mask of `CLASSES`."""
    draw = np.random.default_rng(seed)
    pixels = draw.integers(40, 90, (side, side, 3)).astype(np.uint8)
    mask = np.zeros((side, side), np.uint8)
    for number, color in enumerate(("red", "blue"), start=1):
        top, left = draw.integers(0, side * 5 // 8, 2)
        place = slice(top, top + side * 3 // 8), slice(left, left + side * 3 // 8)
        pixels[place], mask[place] = COLORS[color], number
    return pixels, mask


def squares_files(rows: int, first: int = 0, side: int = SIDE) -> dict[str, bytes]:
    """Images in `images/`, their masks in `masks/`."""
    files = {}
    for number in range(first, first + rows):
        pixels, mask = squares(number, side)
        files[f"images/{number:03}.png"], files[f"masks/{number:03}.png"] = encoded(pixels), encoded(mask)
    return files


def shape(seed: int) -> tuple[Pixels, str]:
    """An image of one shape in one color, somewhere, and what it shows."""
    draw = np.random.default_rng(seed)
    pixels = draw.integers(40, 90, (SIDE, SIDE, 3)).astype(np.uint8)
    color, kind = list(COLORS)[seed % len(COLORS)], SHAPES[seed // len(COLORS) % len(SHAPES)]
    drawn = np.zeros((9, 9), bool)
    drawn[{"square": np.s_[:, :], "cross": np.s_[3:6, :], "bar": np.s_[:, 3:6]}[kind]] = True
    if kind == "cross":
        drawn[:, 3:6] = True
    top, left = draw.integers(0, SIDE - 8, 2)
    pixels[top : top + 9, left : left + 9][drawn] = COLORS[color]
    return pixels, f"a {color} {kind}"


def write_shapes(folder: Path, rows: int, first: int = 0, name: str = "rows.tsv") -> Path:
    """Images, and a table that names them with two captions each."""
    lines, files = ["image\tcaption\tother"], {}
    for number in range(first, first + rows):
        pixels, caption = shape(number)
        files[f"{number:03}.png"] = encoded(pixels)
        lines.append(f"{number:03}.png\t{caption}\t{caption}")
    write_files(folder, files)
    (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / name


ENCODERS: dict[str, dict[str, Any]] = {
    "convnet": {"widths": [8, 16], "blocks": 1, "stem": 1},
    "vit": {"patch": 4, "width": 32, "layers": 2, "heads": 2, "dropout": 0.0},
}
DECODERS: dict[str, dict[str, Any]] = {
    "unet": {},
    "attention_rnn": {"embedding": 16, "width": 32, "dropout": 0.0},
    "transformer": {"width": 32, "layers": 1, "heads": 2, "dropout": 0.0},
    "rnn": {"embedding": 16, "width": 32, "dropout": 0.0},
}


def segmenting(train: str | Path, /, **changes: Any) -> dict[str, Any]:
    """A recipe, as plain values, of a small U-Net; changes are merged section by section."""
    return _recipe({"train": str(train)}, {"classes": CLASSES}, "convnet", "unet", changes)


def captioning(
    train: str | Path, /, reads: str = "convnet", writes: str = "attention_rnn", **changes: Any
) -> dict[str, Any]:
    """A recipe, as plain values, of a small model that describes images; changes are merged section by section."""
    output = {"kind": "captions", "column": ["caption", "other"], "max_tokens": 8, "tokenizer": {"size": 60}}
    return _recipe({"train": str(train)}, output, reads, writes, changes)


def _recipe(
    data: dict[str, Any], output: dict[str, Any], reads: str, writes: str, changes: Mapping[str, Any]
) -> dict[str, Any]:
    content: dict[str, Any] = {
        "data": data,
        "encoder": {"kind": reads, **ENCODERS[reads]},
        "decoder": {"kind": writes, **DECODERS[writes]},
        "output": output,
        "train": {"max_steps": 3, "batch_rows": 4, "log_every": 1, "device": "cpu"},
    }
    for section, values in changes.items():
        content[section] = {**content.get(section, {}), **values} if isinstance(values, dict) else values
    return content
