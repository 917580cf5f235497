"""Masks are judged pixel by pixel in the size of their images, however many are painted at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import twofold
from tests.conftest import CLASSES, VOID, decoder, encoder, small_image_model, some_image, some_mask
from tests.images import Pixels
from twofold.data.files import Row
from twofold.data.tokenizer import TextTokenizer
from twofold.data.views import ImageSettings
from twofold.errors import TwofoldError
from twofold.metrics import evaluate, masks
from twofold.metrics.judge import metric_names
from twofold.metrics.mask_scores import Confusion
from twofold.model import Model
from twofold.types import Example

SIZES = [(10, 13), (7, 5), (1, 1), (10, 13), (12, 3)]


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
    for one, other in zip(painted, right, strict=True):
        confusion.add(one, other, other != VOID)
    return confusion


@pytest.mark.parametrize("image", [ImageSettings(), ImageSettings((6, 9)), ImageSettings((6, 9), "crop")])
def test_a_painter_is_judged_by_what_it_paints(tokenizer: TextTokenizer, image: ImageSettings) -> None:
    model, given = painter(tokenizer, image=image), examples()
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
    assert list(report.metrics) == metric_names(model)


def test_what_a_model_paints_is_perfect_in_its_own_eyes(tokenizer: TextTokenizer) -> None:
    model = painter(tokenizer)
    given = [{"image": one["image"], "mask": model.predict([one["image"]])[0].output.pixels} for one in examples()]
    report = twofold.evaluate(model, given)
    assert report.metrics["miou"] == report.metrics["dice"] == report.metrics["pixel_accuracy"] == 1


def test_scores_do_not_depend_on_how_many_are_painted_at_a_time(
    tokenizer: TextTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = painter(tokenizer)
    whole = evaluate(model, rows(examples()), families=["masks"])
    seen: list[int] = []
    for size in (1, 2):
        monkeypatch.setattr(masks, "ROWS", size)
        assert evaluate(model, rows(examples()), families=["masks"], progress=seen.append).metrics == whole.metrics
    assert seen == [1, 2, 3, 4, 5, 2, 4, 5]


def test_the_loss_is_the_mean_over_the_pixels_that_count(tokenizer: TextTokenizer) -> None:
    model, total, count = painter(tokenizer), 0.0, 0
    for one in examples():
        with torch.no_grad():
            chances = model.decoder()(model.encoder(model.batch([one]))).double().log_softmax(1)[0].numpy()
        counts = one["mask"] != VOID
        right = np.where(counts, one["mask"], 0)
        total -= np.take_along_axis(chances, right[None], 0)[0][counts].sum()
        count += counts.sum()
    measured = evaluate(model.train(), rows(examples()), families=["loss"]).metrics
    assert model.training
    assert measured["loss"] == pytest.approx(total / count, rel=1e-4)


def test_masks_of_which_no_pixel_counts_have_no_scores(tokenizer: TextTokenizer) -> None:
    given = [{"image": some_image(), "mask": np.full((10, 13), VOID, np.uint8)}]
    report = twofold.evaluate(painter(tokenizer), given)
    assert np.isnan([report.metrics[name] for name in masks.METRICS]).all()


@pytest.mark.parametrize(
    ("mask", "said"),
    [
        (some_mask(9, 13), "example 1: a mask of 9 × 13 for an image of 10 × 13"),
        (some_mask() + 1, "example 1: holds 3, 10, but classes go from 0 to 2 and 9 does not count"),
        (some_image(), "example 1: a mask of 10 × 13 × 3 for an image of 10 × 13"),
        (None, "example 1: no mask 'mask' for this image"),
    ],
)
def test_a_mask_that_cannot_judge_is_named(tokenizer: TextTokenizer, mask: Pixels | None, said: str) -> None:
    with pytest.raises(TwofoldError, match=said):
        twofold.evaluate(painter(tokenizer), [{"image": some_image(), "mask": mask}])
