"""Scores of one label a row are those of scikit-learn; where it has none, they are 0."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from twofold.metrics.label import label_scores

CLASSES = 6
Labels = npt.NDArray[Any]


def made(seed: int, rows: int = 50, most: int = CLASSES) -> tuple[Labels, Labels]:
    """Labels below `most`, about half of them right."""
    draw = np.random.default_rng(seed)
    right = draw.integers(most, size=rows)
    return np.where(draw.random(rows) < 0.5, right, draw.integers(most, size=rows)), right


@pytest.mark.parametrize("most", [CLASSES, CLASSES - 2, 2, 1])
@pytest.mark.parametrize(("seed", "rows"), [(1, 50), (2, 7), (3, 1), (4, 3)])
def test_label_scores_are_those_of_scikit_learn(seed: int, rows: int, most: int) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    predicted, right = made(seed, rows, most)
    scores = label_scores(predicted, right, CLASSES)
    assert scores.accuracy == pytest.approx(metrics.accuracy_score(right, predicted))
    assert scores.macro_f1 == pytest.approx(metrics.f1_score(right, predicted, average="macro", zero_division=0))
    assert scores.micro_f1 == pytest.approx(metrics.f1_score(right, predicted, average="micro"))
    if most > 1 and rows > 1:  # or scikit-learn warns
        assert scores.matthews == pytest.approx(metrics.matthews_corrcoef(right, predicted))
    expected = metrics.precision_recall_fscore_support(right, predicted, labels=range(CLASSES), zero_division=0)
    by_class = scores.by_class
    for ours, other in zip((by_class.precision, by_class.recall, by_class.f1, by_class.support), expected, strict=True):
        assert ours == pytest.approx(other)


def test_label_scores_by_hand() -> None:
    scores = label_scores(np.array([0, 0, 1, 1]), np.array([0, 1, 1, 1]), 3)
    assert scores.accuracy == scores.micro_f1 == 0.75
    assert scores.by_class.precision.tolist() == [0.5, 1, 0]
    assert scores.by_class.recall == pytest.approx([1, 2 / 3, 0])
    assert scores.by_class.f1 == pytest.approx([2 / 3, 4 / 5, 0])
    assert scores.by_class.support.tolist() == [1, 3, 0]
    assert scores.macro_f1 == pytest.approx(11 / 15)
    assert scores.matthews == pytest.approx(1 / np.sqrt(3))


@pytest.mark.parametrize(("predicted", "right"), [([1, 1, 1], [0, 1, 2]), ([0, 1, 2], [1, 1, 1]), ([0], [0])])
def test_matthews_is_0_where_a_side_has_a_single_class(predicted: list[int], right: list[int]) -> None:
    assert label_scores(np.array(predicted), np.array(right), 3).matthews == 0


def test_matthews_is_exact_for_many_rows() -> None:
    right = np.repeat(np.arange(3, dtype=np.uint8), 100_000)
    assert label_scores(right, right, 3).matthews == 1
    assert label_scores(right % 2, right % 2 ^ 1, 2).matthews == -1


@pytest.mark.parametrize(
    ("predicted", "right", "message"),
    [
        ([2], [0], "the predicted labels are 2 to 2; known are 0 to 1"),
        ([0, 1], [1, -1], "the right labels are -1 to 1"),
        ([0.5], [0], "the predicted labels must be whole numbers, not float64"),
        ([True], [0], "the predicted labels must be whole numbers, not bool"),
    ],
)
def test_what_is_no_label_is_an_error(predicted: Any, right: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        label_scores(np.array(predicted), np.array(right), 2)


@pytest.mark.parametrize(("predicted", "right"), [((3,), (2,)), ((3, 1), (3, 1)), ((0,), (0,)), ((), ())])
def test_other_shapes_are_an_error(predicted: tuple[int, ...], right: tuple[int, ...]) -> None:
    ours, theirs = np.zeros(predicted, int), np.zeros(right, int)
    with pytest.raises(ValueError, match=r"both sides are \(rows,\) of at least one"):
        label_scores(ours, theirs, 2)
