"""Scores of any number of labels a row are those of scikit-learn; where it has none, they are 0."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from twofold.metrics.labels import set_scores

CLASSES = 6
Labels = npt.NDArray[Any]


def made_sets(seed: int, share: float) -> tuple[Labels, Labels]:
    draw = np.random.default_rng(seed)
    right = draw.random((40, CLASSES)) < share
    predicted = right ^ (draw.random(right.shape) < 0.15)
    predicted[:, 0] = right[:, 1] = False  # a class that is only right, and one that is only predicted
    return predicted, right


@pytest.mark.parametrize("share", [0.0, 0.2, 0.6, 1.0])
@pytest.mark.parametrize("seed", [1, 2])
def test_set_scores_are_those_of_scikit_learn(seed: int, share: float) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    predicted, right = made_sets(seed, share)
    scores = set_scores(predicted, right)
    assert scores["micro_f1"] == pytest.approx(metrics.f1_score(right, predicted, average="micro", zero_division=0))
    assert scores["macro_f1"] == pytest.approx(metrics.f1_score(right, predicted, average="macro", zero_division=0))
    assert scores["accuracy"] == pytest.approx(metrics.accuracy_score(right, predicted))


def test_set_scores_by_hand() -> None:
    right = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 0]], bool)
    predicted = np.array([[1, 0, 0], [1, 0, 1], [0, 0, 0]], bool)
    scores = set_scores(predicted, right)
    assert scores["micro_f1"] == pytest.approx(4 / 6)
    assert scores["macro_f1"] == pytest.approx(1 / 3)
    assert scores["accuracy"] == pytest.approx(2 / 3)


def test_no_label_at_all_scores_0_but_matches() -> None:
    scores = set_scores(np.zeros((2, 3), bool), np.zeros((2, 3), bool))
    assert (scores["micro_f1"], scores["macro_f1"], scores["accuracy"]) == (0, 0, 1)


def test_sets_that_are_not_bool_are_an_error() -> None:
    with pytest.raises(ValueError, match="must be arrays of bool, not int64 and bool"):
        set_scores(np.zeros((2, 2), int), np.zeros((2, 2), bool))


@pytest.mark.parametrize(("predicted", "right"), [((3,), (2,)), ((3, 1), (3, 1)), ((0,), (0,)), ((), ())])
def test_other_shapes_are_an_error(predicted: tuple[int, ...], right: tuple[int, ...]) -> None:
    ours, theirs = np.zeros(predicted, int), np.zeros(right, int)
    with pytest.raises(ValueError, match=r"both sides are \(rows, classes\)"):
        set_scores(ours.astype(bool)[..., None], theirs.astype(bool))
