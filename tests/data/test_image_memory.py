"""A large image takes no more memory than the docs say, and is the same as if it had been read in one piece."""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.images import encoded, noise, write_files
from twofold.data import images
from twofold.data.images import MOST_PIXELS, PIXEL_BYTES, GivenImage, ImageFile
from twofold.data.named_files import Folder
from twofold.data.views import ImageSettings

READ = """
import resource, sys
from twofold.data.images import ImageFile
from twofold.data.views import ImageSettings

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

view = ImageSettings(size=(224, 224))
before = peak()
for path in sys.argv[1:]:
    view.see(ImageFile.at(path).image(view.near))
    print(peak() - before)
"""
ONCE = 24 << 20
"""Bytes that are taken once, whatever is read: what Pillow loads, the file, the strip that is changed."""
SIDE = 4000
MODES: dict[str, tuple[str, dict[str, Any], float]] = {
    "small.png": ("RGB", {}, 0.0),
    "a.jpg": ("RGB", {}, 0.2),
    "palette.png": ("P", {"transparency": 0}, 5.0),
    "gray16.png": ("I;16", {}, 6.0),
    "rgba.png": ("RGBA", {}, 8.0),
    "a.webp": ("RGB", {"method": 0}, PIXEL_BYTES),
}
"""For each file its mode, how it is written, and the bytes that each of its pixels may take, fewest first."""


def test_a_large_image_takes_no_more_memory_than_stated(tmp_path: Path) -> None:
    for name, (mode, settings, _) in MODES.items():
        side = 8 if name == "small.png" else SIDE
        Image.new(mode, (side, side)).save(tmp_path / name, **settings)
    Image.new("RGB", (7000, 7000), "red").save(tmp_path / "49.png", compress_level=1)
    command = [sys.executable, "-c", READ, *(str(tmp_path / name) for name in [*MODES, "49.png"])]
    *sizes, largest = map(int, subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())
    for name, taken in zip(MODES, sizes, strict=True):
        assert taken <= ONCE + MODES[name][2] * SIDE * SIDE, name
    assert largest <= max(sizes[-1], ONCE + 8 * 7000 * 7000)


def test_the_docs_say_how_much_memory_an_image_takes() -> None:
    said = (Path(__file__).parents[2] / "docs/images.md").read_text(encoding="utf-8")
    assert f"{MOST_PIXELS // 1_000_000} million pixels" in said
    assert f"{MOST_PIXELS * PIXEL_BYTES // 1_000_000} MB" in said


def test_a_jpeg_is_read_in_the_smallest_of_its_sizes_that_is_not_too_small(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    smooth = Image.fromarray(noise(8, 16, 1, 3)).resize((1600, 800), Image.Resampling.BICUBIC)
    for settings, (height, width) in (({}, (800, 1600)), ({"exif": exif}, (1600, 800))):
        folder = Folder(write_files(tmp_path, {"a.jpg": encoded(smooth, "jpeg", quality=95, **settings)}))
        image = ImageFile(folder, "a.jpg")
        assert image.size() == (height, width)
        for near, parts in (((height, width), 1), ((height // 2, width // 2), 2), ((height // 5, 9), 4), ((9, 9), 8)):
            assert image.image(near).size == (width // parts, height // parts)
        for fit in ("stretch", "crop"):
            view = ImageSettings(size=(20, 20), fit=fit)
            whole, reduced = view.see(image.image()), view.see(image.image(view.near))
            assert image.image(view.near).width < width
            assert np.abs(whole.astype(int) - reduced).max() <= 6


def test_an_image_that_is_not_far_larger_is_read_as_ever(tmp_path: Path) -> None:
    for kind in ("jpeg", "png", "webp"):
        folder = Folder(write_files(tmp_path, {"a": encoded(noise(50, 60, 1, 3), kind)}))
        image, view = ImageFile(folder, "a"), ImageSettings(size=(12, 12))
        assert (view.see(image.image()) == view.see(image.image(view.near))).all()


@pytest.mark.parametrize("strip", [1, 7, 60, 1000])
@pytest.mark.parametrize("mode", ["RGBA", "LA", "P", "I;16", "L"])
def test_strips_change_nothing(mode: str, strip: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if mode == "I;16":
        image = Image.fromarray(noise(9, 13, 1).astype(np.uint16) * 201)
    else:
        image = Image.fromarray(noise(9, 13, 1, 4)).convert(mode)
    content = io.BytesIO()
    image.save(content, "png", **({"transparency": 3} if mode in ("P", "L") else {}))
    given = Image.open(content)
    whole = np.asarray(GivenImage(given).image())
    monkeypatch.setattr(images, "STRIP", strip)
    assert (np.asarray(GivenImage(given).image()) == whole).all()


def test_an_image_at_hand_is_left_as_it_is() -> None:
    image = Image.fromarray(noise(9, 13, 1, 4))
    image.getexif()[0x0112] = 6
    assert GivenImage(image).image().size == (9, 13)
    assert GivenImage(image).size() == (13, 9)
    assert image.size == (13, 9)
    assert image.mode == "RGBA"
