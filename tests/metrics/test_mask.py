"""Mask scores are those of a plain loop over pixels; a model is judged in the size of its images, some at a time."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch

import twofold
from tests.conftest import CLASSES, VOID, decoder, encoder, small_image_model, some_image, some_mask
from tests.images import Pixels
from twofold.data.files import Row
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.metrics import evaluate, mask, metric_directions
from twofold.metrics.mask import Confusion
from twofold.model import Model
from twofold.types import Example

COUNTED_CLASSES = 5
SIZES = [(10, 13), (7, 5), (1, 1), (10, 13), (12, 3)]
Numbers = npt.NDArray[Any]


def made(seed: int, most: int = COUNTED_CLASSES) -> tuple[Numbers, Numbers, npt.NDArray[np.bool_]]:
    """Three masks of 6 by 7 pixels with classes below `most`; 255 is right where a pixel does not count."""
    draw = np.random.default_rng(seed)
    right = draw.integers(most, size=(3, 6, 7)).astype(np.uint8)
    written = np.where(draw.random(right.shape) < 0.6, right, draw.integers(most, size=right.shape))
    counts = draw.random(right.shape) < 0.8
    return written, np.where(counts, right, np.uint8(255)), counts


def plain(pixels: list[tuple[int, int]]) -> dict[str, Any]:
    """Every score from pairs of a written and a right class, by a loop over classes and pixels."""
    iou, dice = [], []
    for kind in range(COUNTED_CLASSES):
        hits = either = sizes = 0
        for written, right in pixels:
            hits += written == kind and right == kind
            either += written == kind or right == kind
            sizes += (written == kind) + (right == kind)
        iou.append(hits / either if either else math.nan)
        dice.append(2 * hits / sizes if sizes else math.nan)
    occurring = [one for one in range(COUNTED_CLASSES) if not math.isnan(iou[one])]
    return {
        "pixel_accuracy": sum(written == right for written, right in pixels) / len(pixels),
        "iou": iou,
        "mean_iou": sum(iou[one] for one in occurring) / len(occurring),
        "dice": dice,
        "mean_dice": sum(dice[one] for one in occurring) / len(occurring),
    }


@pytest.mark.parametrize("most", [COUNTED_CLASSES, COUNTED_CLASSES - 2])
def test_scores_are_those_of_a_plain_loop(most: int) -> None:
    confusion, pixels = Confusion(COUNTED_CLASSES), []
    for seed in (1, 2):
        written, right, counts = made(seed, most)
        confusion.add(written, right, counts)
        for place in zip(*np.nonzero(counts), strict=True):
            pixels.append((int(written[place]), int(right[place])))
    for name, expected in plain(pixels).items():
        assert getattr(confusion, name) == pytest.approx(expected, abs=1e-12, nan_ok=True), name
    assert np.isnan(confusion.iou).sum() == np.isnan(confusion.dice).sum() == COUNTED_CLASSES - most


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
    whole, divided = Confusion(COUNTED_CLASSES), Confusion(COUNTED_CLASSES)
    masks = made(4)
    whole.add(*masks)
    for number in range(3):
        divided.add(*(part[number] for part in masks))
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
        ([0], [0], [1], "must be an array of bool, not int64"),
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


def painter(tokenizer: TextTokenizer, **settings: Any) -> Model:
    return small_image_model(tokenizer, encoder("convnet"), decoder("unet"), **settings).eval()


def examples() -> list[Example]:
    return [
        {"image": some_image(*size, seed=seed), "mask": some_mask(*size, seed=seed)} for seed, size in enumerate(SIZES)
    ]


def rows(given: list[Example]) -> list[Row]:
    return [Row(f"row {number}", values) for number, values in enumerate(given)]


def scores(painted: list[Pixels], right: list[Pixels]) -> Confusion:
    confusion = Confusion(len(CLASSES))
    for first, other in zip(painted, right, strict=True):
        confusion.add(first, other, other != VOID)
    return confusion


@pytest.mark.parametrize("image", [{}, {"size": [6, 9]}, {"size": [6, 9], "fit": "crop"}])
def test_a_painter_is_judged_by_what_it_paints(tokenizer: TextTokenizer, image: dict[str, Any]) -> None:
    model, given = painter(tokenizer, input=image), examples()
    report = twofold.evaluate(model, given)
    painted = [one.output.pixels for one in model.predict([one["image"] for one in given])]
    right = scores(painted, [one["mask"] for one in given])
    assert report.metrics["pixel_accuracy"] == right.pixel_accuracy
    assert report.metrics["miou"] == right.mean_iou
    assert report.metrics["dice"] == right.mean_dice
    assert [line["iou"] for line in report.tables["classes"]] == pytest.approx(right.iou.tolist(), nan_ok=True)
    assert [line["dice"] for line in report.tables["classes"]] == pytest.approx(right.dice.tolist(), nan_ok=True)
    assert [line["class"] for line in report.tables["classes"]] == list(CLASSES)
    assert report.examples == len(given)
    assert list(report.metrics) == list(metric_directions(model))


def test_what_a_model_paints_is_perfect_in_its_own_eyes(tokenizer: TextTokenizer) -> None:
    model = painter(tokenizer)
    given = [{"image": one["image"], "mask": model.predict([one["image"]])[0].output.pixels} for one in examples()]
    report = twofold.evaluate(model, given)
    assert report.metrics["miou"] == report.metrics["dice"] == report.metrics["pixel_accuracy"] == 1


def test_scores_do_not_depend_on_how_many_are_painted_at_a_time(
    tokenizer: TextTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = painter(tokenizer)
    whole = evaluate(model, rows(examples()), families=["mask"])
    seen: list[int] = []
    for size in (1, 2):
        monkeypatch.setattr(mask, "ROWS", size)
        assert evaluate(model, rows(examples()), families=["mask"], progress=seen.append).metrics == whole.metrics
    assert seen == [1, 2, 3, 4, 5, 2, 4, 5]


def test_the_loss_is_the_mean_over_the_pixels_that_count(tokenizer: TextTokenizer) -> None:
    model, total, count = painter(tokenizer), 0.0, 0
    for example in examples():
        with torch.no_grad():
            chances = model.decoder()(model.encoder(model.batch([example]))).logits.double().log_softmax(1)[0].numpy()
        counts = example["mask"] != VOID
        right = np.where(counts, example["mask"], 0)
        total -= np.take_along_axis(chances, right[None], 0)[0][counts].sum()
        count += counts.sum()
    measured = evaluate(model.train(), rows(examples()), families=["loss"]).metrics
    assert model.training
    assert measured["loss"] == pytest.approx(total / count, rel=1e-4)


def test_masks_of_which_no_pixel_counts_have_no_scores(tokenizer: TextTokenizer) -> None:
    given = [{"image": some_image(), "mask": np.full((10, 13), VOID, np.uint8)}]
    report = twofold.evaluate(painter(tokenizer), given)
    assert np.isnan([report.metrics[name] for name in mask.METRICS]).all()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (some_mask(9, 13), r"data\[0\]: a mask of 9 × 13 for an image of 10 × 13"),
        (some_mask() + 1, r"data\[0\]: holds 3, 10, but classes go from 0 to 2 and 9 does not count"),
        (some_image(), r"data\[0\]: a mask of 10 × 13 × 3 for an image of 10 × 13"),
        (None, r"data\[0\]: no mask 'mask' for this image"),
    ],
)
def test_a_mask_that_cannot_judge_is_named(tokenizer: TextTokenizer, given: Pixels | None, said: str) -> None:
    with pytest.raises(TwofoldError, match=said):
        twofold.evaluate(painter(tokenizer), [{"image": some_image(), "mask": given}])
