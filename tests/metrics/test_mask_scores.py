"""Mask scores are those of a plain loop over pixels, however the masks are divided."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from twofold.metrics.mask_scores import Confusion

CLASSES = 5
Mask = npt.NDArray[Any]


def made(seed: int, most: int = CLASSES) -> tuple[Mask, Mask, npt.NDArray[np.bool_]]:
    """Three masks of 6 by 7 pixels with classes below `most`; 255 is right where a pixel does not count."""
    draw = np.random.default_rng(seed)
    right = draw.integers(most, size=(3, 6, 7)).astype(np.uint8)
    written = np.where(draw.random(right.shape) < 0.6, right, draw.integers(most, size=right.shape))
    counts = draw.random(right.shape) < 0.8
    return written, np.where(counts, right, np.uint8(255)), counts


def plain(pixels: list[tuple[int, int]]) -> dict[str, Any]:
    """Every score from pairs of a written and a right class, by a loop over classes and pixels."""
    iou, dice = [], []
    for one in range(CLASSES):
        hits = either = sizes = 0
        for written, right in pixels:
            hits += written == one and right == one
            either += written == one or right == one
            sizes += (written == one) + (right == one)
        iou.append(hits / either if either else math.nan)
        dice.append(2 * hits / sizes if sizes else math.nan)
    occurring = [one for one in range(CLASSES) if not math.isnan(iou[one])]
    return {
        "pixel_accuracy": sum(written == right for written, right in pixels) / len(pixels),
        "iou": iou,
        "mean_iou": sum(iou[one] for one in occurring) / len(occurring),
        "dice": dice,
        "mean_dice": sum(dice[one] for one in occurring) / len(occurring),
    }


@pytest.mark.parametrize("most", [CLASSES, CLASSES - 2])
def test_scores_are_those_of_a_plain_loop(most: int) -> None:
    confusion, pixels = Confusion(CLASSES), []
    for seed in (1, 2):
        written, right, counts = made(seed, most)
        confusion.add(written, right, counts)
        for place in zip(*np.nonzero(counts), strict=True):
            pixels.append((int(written[place]), int(right[place])))
    for name, expected in plain(pixels).items():
        assert getattr(confusion, name) == pytest.approx(expected, abs=1e-12, nan_ok=True), name
    assert np.isnan(confusion.iou).sum() == np.isnan(confusion.dice).sum() == CLASSES - most


def test_scores_by_hand() -> None:
    confusion = Confusion(3)
    confusion.add(np.array([[0, 0], [1, 1]]), np.array([[0, 1], [1, 1]]), np.ones((2, 2), bool))
    assert confusion.matrix.tolist() == [[1, 0, 0], [1, 2, 0], [0, 0, 0]]
    assert confusion.pixel_accuracy == 0.75
    assert confusion.iou == pytest.approx([1 / 2, 2 / 3, math.nan], nan_ok=True)
    assert confusion.mean_iou == pytest.approx(7 / 12)
    assert confusion.dice == pytest.approx([2 / 3, 4 / 5, math.nan], nan_ok=True)
    assert confusion.mean_dice == pytest.approx(11 / 15)


def test_a_class_that_is_only_written_scores_0() -> None:
    confusion = Confusion(2)
    confusion.add(np.array([1]), np.array([0]), np.array([True]))
    assert confusion.iou.tolist() == confusion.dice.tolist() == [0, 0]


def test_masks_add_up_however_they_are_divided() -> None:
    whole, divided = Confusion(CLASSES), Confusion(CLASSES)
    masks = made(4)
    whole.add(*masks)
    for number in range(3):
        divided.add(*(mask[number] for mask in masks))
    assert (whole.matrix == divided.matrix).all()
    assert whole.matrix.dtype == np.int64
    assert whole.matrix.sum() == masks[2].sum()


def test_many_classes_fit_small_integers() -> None:
    every = np.arange(200, dtype=np.uint8)
    confusion = Confusion(200)
    confusion.add(every, every, np.ones(200, bool))
    assert confusion.mean_iou == confusion.mean_dice == confusion.pixel_accuracy == 1


def test_without_a_pixel_that_counts_everything_is_nan() -> None:
    confusion = Confusion(2)
    confusion.add(np.array([7, 7]), np.array([255, 255]), np.zeros(2, bool))
    for value in (confusion.pixel_accuracy, confusion.mean_iou, confusion.mean_dice, *confusion.iou, *confusion.dice):
        assert math.isnan(value)


@pytest.mark.parametrize(("written", "counts"), [((2, 3), (3, 2)), ((3, 2), (2, 3)), ((6,), (3, 2)), ((3, 1), (3, 2))])
def test_masks_of_other_shapes_are_an_error(written: tuple[int, ...], counts: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="shapes differ"):
        Confusion(2).add(np.zeros(written, int), np.zeros((3, 2), int), np.ones(counts, bool))


@pytest.mark.parametrize(
    ("written", "right", "counts", "message"),
    [
        ([2], [0], [True], "the written mask holds classes 2 to 2; known are 0 to 1"),
        ([0], [-1], [True], "the right mask holds classes -1 to -1"),
        ([0.5], [0], [True], "the written mask must hold whole numbers, not float64"),
        ([0], [0], [1], "said by bool, not int64"),
    ],
)
def test_what_is_no_mask_is_an_error(written: Any, right: Any, counts: Any, message: str) -> None:
    confusion = Confusion(2)
    with pytest.raises(ValueError, match=message):
        confusion.add(np.array(written), np.array(right), np.array(counts))
    assert not confusion.matrix.any()


def test_masks_need_a_class() -> None:
    with pytest.raises(ValueError, match="at least 1 class"):
        Confusion(0)
