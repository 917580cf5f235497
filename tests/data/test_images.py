"""Every kind of image is read in red, green and blue and the right way up; what is no image is named."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.images import Pixels, bad_files, encoded, noise, promising, write_files
from twofold.data.images import MOST_PIXELS, GivenImage, ImageFile, as_image
from twofold.data.named_files import FileError, Folder
from twofold.errors import TwofoldError

TURN = Image.Transpose
STORED = {
    2: TURN.FLIP_LEFT_RIGHT,
    3: TURN.ROTATE_180,
    4: TURN.FLIP_TOP_BOTTOM,
    5: TURN.TRANSPOSE,
    6: TURN.ROTATE_90,
    7: TURN.TRANSVERSE,
    8: TURN.ROTATE_270,
}
"""Orientations in which a camera stores an image, by their number in EXIF."""


def saved(folder: Path, content: bytes, name: str = "a.png") -> ImageFile:
    return ImageFile(Folder(write_files(folder, {name: content})), name)


def pixels(source: ImageFile | GivenImage) -> Pixels:
    image = source.image()
    assert image.mode == "RGB"
    return np.asarray(image)


def turned(image: Image.Image, orientation: int, kind: str = "png", **settings: Any) -> bytes:
    """A file whose EXIF says how to turn it so that it is `image`."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = image.transpose(STORED[orientation]) if orientation in STORED else image
    return encoded(stored, kind, exif=exif, **settings)


@pytest.mark.parametrize(("kind", "settings"), [("png", {}), ("webp", {"lossless": True})])
def test_colors_are_read_as_they_are(tmp_path: Path, kind: str, settings: dict[str, Any]) -> None:
    right = noise(5, 7, 1, 3)
    image = saved(tmp_path, encoded(right, kind, **settings))
    assert (pixels(image) == right).all()
    assert image.size() == (5, 7)


@pytest.mark.parametrize("kind", ["jpeg", "webp"])
def test_images_that_lose_a_little_are_nearly_as_they_were(tmp_path: Path, kind: str) -> None:
    right = np.kron(noise(2, 3, 2, 3), np.ones((16, 16, 1), np.uint8))
    decoded = pixels(saved(tmp_path, encoded(right, kind, quality=95), f"a.{kind}")).astype(int)
    assert np.abs(decoded - right)[4:12, 4:12].max() < 12


def test_the_content_says_the_format_whatever_the_name(tmp_path: Path) -> None:
    right = noise(5, 7, 1, 3)
    assert (pixels(saved(tmp_path, encoded(right), "a.jpg")) == right).all()
    assert (pixels(saved(tmp_path, encoded(right), "noend")) == right).all()
    with pytest.raises(FileError, match="not a PNG, JPEG, WEBP image"):
        saved(tmp_path, encoded(right, "bmp"), "b.png").image()


def test_grey_is_the_same_in_all_colors(tmp_path: Path) -> None:
    right = noise(5, 7, 3)
    assert (pixels(saved(tmp_path, encoded(right))) == right[..., None]).all()
    one_bit = Image.fromarray(right > 127)
    assert (pixels(saved(tmp_path, encoded(one_bit)))[..., 0] == (right > 127) * 255).all()


def test_grey_of_16_bits_keeps_its_range(tmp_path: Path) -> None:
    right = noise(5, 7, 4)
    right[0, :2] = 0, 255
    deep = Image.fromarray(right.astype(np.uint16) * 257)
    assert deep.mode == "I;16"
    assert (pixels(saved(tmp_path, encoded(deep))) == right[..., None]).all()


def test_what_is_transparent_lies_on_white(tmp_path: Path) -> None:
    alpha = np.zeros((1, 3, 4), np.uint8)
    alpha[0, :, 0], alpha[0, :, 3] = 200, (0, 51, 255)
    for kind, settings in (("png", {}), ("webp", {"lossless": True, "exact": True})):
        decoded = pixels(saved(tmp_path, encoded(alpha, kind, **settings)))
        assert decoded.tolist() == [[[255, 255, 255], [244, 204, 204], [200, 0, 0]]]
    gray = Image.fromarray(alpha[..., [0, 3]])
    assert gray.mode == "LA"
    assert pixels(saved(tmp_path, encoded(gray))).tolist() == [[[255] * 3, [244] * 3, [200] * 3]]


def test_a_palette_is_looked_up_and_its_transparent_color_is_white(tmp_path: Path) -> None:
    image = Image.fromarray(np.array([[0, 1, 2]], np.uint8), "P")
    image.putpalette([10, 20, 30, 40, 50, 60, 70, 80, 90])
    assert pixels(saved(tmp_path, encoded(image))).tolist() == [[[10, 20, 30], [40, 50, 60], [70, 80, 90]]]
    seen = pixels(saved(tmp_path, encoded(image, transparency=1)))
    assert seen.tolist() == [[[10, 20, 30], [255, 255, 255], [70, 80, 90]]]


def test_inks_become_colors(tmp_path: Path) -> None:
    inks = np.zeros((16, 16, 4), np.uint8)
    inks[..., 1:3] = 255  # magenta and yellow
    decoded = pixels(saved(tmp_path, encoded(Image.fromarray(inks, "CMYK"), "jpeg"), "a.jpg"))
    assert np.abs(decoded.astype(int) - (255, 0, 0)).max() < 8


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize(("kind", "settings"), [("png", {}), ("webp", {"lossless": True}), ("jpeg", {"quality": 95})])
def test_an_image_stands_upright_however_the_camera_was_held(
    tmp_path: Path, orientation: int, kind: str, settings: dict[str, Any]
) -> None:
    right = np.kron(noise(2, 3, 2, 3), np.ones((16, 16, 1), np.uint8))
    image = saved(tmp_path, turned(Image.fromarray(right), orientation, kind, **settings))
    assert image.size() == (32, 48) == pixels(image).shape[:2]
    assert np.abs(pixels(image).astype(int) - right)[4:12, 4:12].max() < (12 if kind == "jpeg" else 1)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_mask_is_turned_as_well(tmp_path: Path, orientation: int) -> None:
    right = noise(4, 6, 3) % 5
    image = saved(tmp_path, turned(Image.fromarray(right), orientation))
    assert (image.numbers() == right).all()
    assert image.size() == (4, 6)


@pytest.mark.parametrize("orientation", [0, 9, 4096])
def test_an_orientation_that_means_nothing_turns_nothing(tmp_path: Path, orientation: int) -> None:
    right = noise(4, 6, 3, 3)
    image = saved(tmp_path, turned(Image.fromarray(right), orientation))
    assert image.size() == (4, 6)
    assert (pixels(image) == right).all()


@pytest.mark.parametrize("size", [(1, 1), (1, 9), (9, 1)])
def test_one_pixel_and_one_row_are_images(tmp_path: Path, size: tuple[int, int]) -> None:
    right = noise(*size, 5, 3)
    image = saved(tmp_path, encoded(right))
    assert (pixels(image) == right).all()
    assert image.size() == size
    assert saved(tmp_path, encoded(right[..., 0])).numbers().shape == size


def test_a_mask_holds_the_numbers_of_its_pixels_not_their_colors(tmp_path: Path) -> None:
    right = noise(4, 6, 3) % 3
    image = Image.fromarray(right, "P")
    image.putpalette([255, 0, 0, 0, 255, 0, 0, 0, 255])
    for content in (encoded(right), encoded(image), encoded(image, transparency=0)):
        assert (saved(tmp_path, content).numbers() == right).all()
    assert (saved(tmp_path, encoded(Image.fromarray(right > 1))).numbers() == (right > 1)).all()


@pytest.mark.parametrize(("channels", "mode"), [((3,), "RGB"), ((4,), "RGBA"), ((2,), "LA"), ((), "I;16")])
def test_a_mask_with_several_numbers_for_a_pixel_is_named(tmp_path: Path, channels: tuple[int], mode: str) -> None:
    array = noise(4, 6, 1, *channels)
    content = encoded(Image.fromarray(array if channels else array.astype(np.uint16)))
    with pytest.raises(FileError, match=f"a.png: a mask has one class number for each pixel, not {mode} values"):
        saved(tmp_path, content).numbers()


@pytest.mark.parametrize("name", bad_files())
def test_what_is_no_image_is_named(tmp_path: Path, name: str) -> None:
    image = saved(tmp_path, bad_files()[name], name)
    for read in (image.image, image.numbers):
        with pytest.raises(FileError) as caught:
            read()
        assert str(caught.value).startswith(f"{tmp_path / name}: ")
        assert "\n" not in str(caught.value)


def test_an_image_of_too_many_pixels_is_refused_by_its_head_alone(tmp_path: Path) -> None:
    side = int(MOST_PIXELS**0.5)
    for content in (promising(30_000, 30_000), promising(side, side + 2), promising(2**31 - 1, 2**31 - 1)):
        assert len(content) < 100
        image = saved(tmp_path, content)
        for read in (image.image, image.numbers, image.size):
            with pytest.raises(FileError, match=r"a.png: .*over 50,000,000 pixels"):
                read()


@pytest.mark.parametrize("seed", range(3))
def test_damage_anywhere_in_a_file_is_one_line(tmp_path: Path, seed: int) -> None:
    draw = np.random.default_rng(seed)
    whole = [turned(Image.fromarray(noise(9, 9, 1, 3)), 6, kind) for kind in ("png", "jpeg", "webp")]
    whole.append(encoded(Image.fromarray(noise(9, 9, 1)).convert("P"), transparency=3))
    for number in range(150):
        content = bytearray(whole[number % len(whole)])
        for place in draw.integers(0, len(content), 3):
            content[place] = draw.integers(256)
        image = saved(tmp_path, bytes(content[: draw.integers(len(content)) if number % 3 else None]))
        for read in (image.image, image.numbers, image.size):
            try:
                read()
            except FileError as error:
                assert str(error).startswith(f"{tmp_path / 'a.png'}: ")  # noqa: PT017


def test_images_at_hand_are_read_like_files(tmp_path: Path) -> None:
    right = noise(4, 6, 1, 3)
    path = tmp_path / "a.png"
    path.write_bytes(encoded(right))
    for given in (str(path), path, Image.fromarray(right), right, as_image(right, "x")):
        image = as_image(given, "input 1")
        assert (pixels(image) == right).all()
        assert image.size() == (4, 6)
    assert (pixels(GivenImage(right[..., 0])) == right[..., :1]).all()
    assert (pixels(GivenImage(np.dstack([right, np.zeros((4, 6), np.uint8)]))) == 255).all()


@pytest.mark.parametrize(
    "given",
    [noise(4, 6, 1, 3) / 255, noise(4, 6, 1, 2), noise(4, 0, 1, 3), np.zeros(3, np.uint8), ["a.png", "b.png"], 7, None],
)
def test_what_is_at_hand_but_no_image_is_named(given: Any) -> None:
    with pytest.raises(FileError, match="input 2: not uint8 of "):
        as_image(given, "input 2").image()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("a dog runs", "a dog runs: cannot be read"),
        ("none/a.png", "none: no such folder or zip archive"),
        ("a" * 400, "cannot be read"),
        ("a" * 400 + "/b.png", "no such folder"),
        ("a\0.png", r"the name 'a\\x00.png' leads outside"),
        ("\ud83d.png", "cannot be read"),
        ("", "not a file"),
        (".", "not a file"),
        ("..", "leads outside"),
        ("/dev/zero", "not a file"),
    ],
)
def test_a_path_that_leads_to_no_image_is_one_line(given: str, said: str) -> None:
    with pytest.raises(TwofoldError, match=said) as caught:
        as_image(given, "input 1").image()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("bits", [1, 2, 4, 8])
def test_a_mask_of_few_bits_holds_the_numbers_that_were_written(tmp_path: Path, bits: int) -> None:
    numbers = np.array([[0, 1], [1, 0]], np.uint8)
    packed = b"".join(b"\0" + np.packbits([int(b) for n in row for b in f"{n:0{bits}b}"]).tobytes() for row in numbers)
    head = struct.pack(">IIBBBBB", 2, 2, bits, 0, 0, 0, 0)
    chunks = b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in ((b"IHDR", head), (b"IDAT", zlib.compress(packed)), (b"IEND", b""))
    )
    (tmp_path / "mask.png").write_bytes(b"\x89PNG\r\n\x1a\n" + chunks)
    assert (ImageFile.at(tmp_path / "mask.png").numbers() == numbers).all()
