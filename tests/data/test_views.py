"""An image and its mask are moved together, and a view follows from seed, epoch and row alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from tests.images import Pixels, noise
from twofold.data.views import UNCOUNTED, Augment, ImageSettings, Size, View

BLOCK, CLASSES = 12, 5
GRAY = (124, 116, 104)
HUES = np.array([[250, 10, 10], [10, 250, 10], [10, 10, 250], [240, 240, 20], [20, 240, 240]], np.uint8)
"""A color for each class; all are far apart, and from gray."""


def blocks(rows: int = 5, columns: int = 6, seed: int = 1) -> tuple[Pixels, Pixels]:
    """An image of large blocks whose colors say their classes, and its mask."""
    mask = np.kron(np.random.default_rng(seed).integers(0, CLASSES, (rows, columns)), np.ones((BLOCK, BLOCK), int))
    return HUES[mask], mask.astype(np.uint8)


def classes(pixels: Pixels) -> Pixels:
    """The class that each pixel's color says, `UNCOUNTED` for gray."""
    known = np.vstack([HUES, GRAY]).astype(int)
    nearest = np.abs(pixels[:, :, None].astype(int) - known).sum(-1).argmin(-1)
    nearest_class: Pixels = np.append(np.arange(CLASSES), UNCOUNTED)[nearest].astype(np.uint8)
    return nearest_class


def away_from_edges(mask: Pixels, width: int = 2) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """Pixels around which all pixels within `width` exist and have one class."""
    padded = np.pad(mask, width, constant_values=UNCOUNTED - 1)
    height, side = mask.shape
    steps = range(2 * width + 1)
    around = np.stack([padded[y : y + height, x : x + side] for y in steps for x in steps])
    same: np.ndarray[tuple[int, int], np.dtype[np.bool_]] = (around == mask).all(0)
    return same


def draws(seed: int) -> np.random.Generator:
    return np.random.default_rng([1, 0, seed])


@pytest.mark.parametrize(
    "augment",
    [
        Augment(flip=True),
        Augment(scale=(0.5, 2.0)),
        Augment(crop=(24, 30)),
        Augment(crop=(90, 50)),
        Augment(flip=True, scale=(0.6, 1.7), crop=(32, 32)),
    ],
    ids=["flip", "scale", "crop", "beyond", "all"],
)
def test_image_and_mask_move_together(augment: Augment) -> None:
    pixels, mask = blocks()
    views = [augment.draw((60, 72), draws(seed)) for seed in range(20)]
    assert len(set(views)) >= (2 if augment == Augment(flip=True) else 20)
    for view in views:
        moved, follows = view.of(pixels), view.of_mask(mask)
        assert moved.shape == (*follows.shape, 3) == (*(augment.crop or (60, 72)), 3)
        inner = away_from_edges(follows)
        assert inner.mean() > 0.2
        assert (classes(moved) == follows)[inner].all()


def test_colors_change_the_image_but_not_the_mask() -> None:
    pixels, mask = noise(20, 30, 1, 3), noise(20, 30, 2)
    for seed in range(5):
        view = Augment(flip=True, scale=(0.8, 1.3), color=0.4).draw((20, 30), draws(seed))
        plain = replace(view, colors=(1.0, 1.0, 1.0))
        assert (view.of_mask(mask) == plain.of_mask(mask)).all()
        assert (view.of(pixels) != plain.of(pixels)).any()
        assert view.of(pixels).dtype == np.uint8


@pytest.mark.parametrize(
    ("colors", "right"),
    [((0.5, 1, 1), [50, 100, 25]), ((2, 1, 1), [200, 255, 100]), ((1, 1, 0), [153, 153, 153]), ((1, 0, 1), None)],
)
def test_brightness_contrast_and_color_are_multiplied(colors: tuple[float, ...], right: list[int] | None) -> None:
    pixels = np.full((2, 2, 3), [100, 200, 50], np.uint8)
    changed = View((0, 0, 2, 2), (2, 2), colors=colors).of(pixels)
    assert np.abs(changed.astype(int) - (right or [153, 153, 153])).max() <= 1


def test_what_lies_outside_is_grey_and_does_not_count() -> None:
    pixels, mask = blocks(2, 2)
    view = View((-10, -6, 14, 18), (24, 24))
    outside = np.ones((24, 24), bool)
    outside[6:, 10:] = False
    assert (view.of(pixels)[outside] == GRAY).all()
    assert ((view.of_mask(mask) == UNCOUNTED) == outside).all()
    assert (view.of(pixels)[6:, 10:] == pixels[:18, :14]).all()
    assert (view.of_mask(mask)[6:, 10:] == mask[:18, :14]).all()


def test_a_smaller_image_is_shown_whole() -> None:
    pixels, mask = blocks()
    for seed in range(10):
        view = Augment(scale=(0.5, 0.5)).draw((60, 72), draws(seed))
        assert (view.of_mask(mask) != UNCOUNTED).sum() == pytest.approx(60 * 72 / 4, rel=0.07)
        assert ((view.of(pixels) == GRAY).all(-1) == (view.of_mask(mask) == UNCOUNTED)).all()


def test_a_larger_image_fills_the_view() -> None:
    _, mask = blocks()
    for seed in range(10):
        assert (Augment(scale=(1.0, 3.0), crop=(40, 50)).draw((60, 72), draws(seed)).of_mask(mask) != UNCOUNTED).all()


def test_a_image_that_nothing_changes_stays_as_it_is() -> None:
    pixels, mask = noise(7, 9, 1, 3), noise(7, 9, 2)
    view = Augment().draw((7, 9), draws(1))
    assert view.of(pixels) is pixels
    assert view.of_mask(mask) is mask
    flipped = replace(view, flip=True)
    assert (flipped.of(pixels) == pixels[:, ::-1]).all()
    assert (flipped.of_mask(mask) == mask[:, ::-1]).all()


def test_about_half_of_the_views_are_mirrored_and_sizes_are_spread() -> None:
    views = [Augment(flip=True, scale=(0.5, 2.0)).draw((60, 72), draws(seed)) for seed in range(400)]
    assert 160 < sum(view.flip for view in views) < 240
    scales = np.array([60 / (view.box[3] - view.box[1]) for view in views])
    assert 0.5 <= scales.min() < 0.55
    assert 1.8 < scales.max() <= 2.0
    assert 160 < (scales < 1).sum() < 240  # as often smaller as larger


@pytest.mark.parametrize("size", [(1, 1), (1, 9), (9, 1), (3, 200)])
def test_one_pixel_and_one_row_can_be_seen_and_moved(size: Size) -> None:
    pixels, mask = noise(*size, 1, 3), noise(*size, 2)
    for settings in (ImageSettings((8, 8)), ImageSettings((8, 8), "crop"), ImageSettings()):
        wanted = settings.fitted(size)
        assert settings.see(Image.fromarray(pixels)).shape == (*wanted, 3)
        assert settings.see_mask(mask).shape == wanted
    for seed in range(10):
        view = Augment(flip=True, scale=(0.3, 3), color=0.2, crop=(5, 4)).draw(size, draws(seed))
        assert view.of(pixels).shape == (5, 4, 3)
        assert view.of_mask(mask).shape == (5, 4)


def test_stretching_shows_the_whole_image_and_cropping_its_middle() -> None:
    pixels, mask = blocks(4, 8)
    for settings, middle in ((ImageSettings((48, 48)), False), (ImageSettings((48, 48), "crop"), True)):
        right = mask[:, 24:72] if middle else mask[:, ::2]
        seen = settings.see_mask(mask)
        assert (seen == right).all()
        inner = away_from_edges(seen)
        assert (classes(settings.see(Image.fromarray(pixels))) == seen)[inner].all()


@pytest.mark.parametrize("fit", ["stretch", "crop"])
def test_what_is_read_of_a_image_lies_within_it_and_has_the_right_shape(fit: str) -> None:
    for height in range(1, 60):
        for side in range(1, 60, 7):
            for size in ((height, 2 * height), (height, 37), (41, height)):
                settings = ImageSettings((side, 9), fit)  # type: ignore[arg-type]
                left, top, right, bottom = settings.box(size)
                assert 0 <= left < right <= size[1]
                assert 0 <= top < bottom <= size[0]
                if fit == "crop":
                    assert (bottom - top) / (right - left) == pytest.approx(side / 9)
                    assert (bottom - top == pytest.approx(size[0])) or (right - left == pytest.approx(size[1]))
                    assert (left + right, top + bottom) == pytest.approx((size[1], size[0]))
                    settings.see(Image.new("RGB", (size[1], size[0])))


def test_images_become_normalized_numbers() -> None:
    pixels = np.stack([noise(2, 3, 1, 3), noise(2, 3, 2, 3)])
    settings = ImageSettings(mean=(0.1, 0.2, 0.3), deviation=(0.5, 0.25, 2.0))
    numbers = settings.tensor(list(pixels)).numpy()
    assert numbers.shape == (2, 3, 2, 3)
    right = (pixels / 255 - [0.1, 0.2, 0.3]) / [0.5, 0.25, 2.0]
    assert numbers == pytest.approx(right.transpose(0, 3, 1, 2), abs=1e-5)


@pytest.mark.parametrize(
    "wrong",
    [
        {"scale": (1.5, 1.0)},
        {"scale": (0.0, 1.0)},
        {"scale": (1.0, float("nan"))},
        {"color": 1.0},
        {"color": -0.1},
        {"crop": (0, 4)},
        {"crop": (4, 20_000)},
    ],
)
def test_changes_that_cannot_be_are_an_error(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError):
        Augment(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [{"size": (0, 4)}, {"size": (4, 10_001)}, {"deviation": (1.0, 0.0, 1.0)}])
def test_settings_that_cannot_be_are_an_error(wrong: dict[str, tuple[int, ...]]) -> None:
    with pytest.raises(ValueError):
        ImageSettings(**wrong)  # type: ignore[arg-type]
