"""Label scores are those of scikit-learn, and the correlations those of scipy; where these have none, they are 0."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from twofold.metrics.label_scores import label_scores, pearson, set_scores, spearman

CLASSES = 6
Labels = npt.NDArray[Any]


def made(seed: int, rows: int = 50, most: int = CLASSES) -> tuple[Labels, Labels]:
    """Labels below `most`, about half of them right."""
    draw = np.random.default_rng(seed)
    right = draw.integers(most, size=rows)
    return np.where(draw.random(rows) < 0.5, right, draw.integers(most, size=rows)), right


def made_sets(seed: int, share: float) -> tuple[Labels, Labels]:
    draw = np.random.default_rng(seed)
    right = draw.random((40, CLASSES)) < share
    predicted = right ^ (draw.random(right.shape) < 0.15)
    predicted[:, 0] = right[:, 1] = False  # a class that is only right, and one that is only predicted
    return predicted, right


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
    for own, other in zip((by_class.precision, by_class.recall, by_class.f1, by_class.support), expected, strict=True):
        assert own == pytest.approx(other)


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


@pytest.mark.parametrize("share", [0.0, 0.2, 0.6, 1.0])
@pytest.mark.parametrize("seed", [1, 2])
def test_set_scores_are_those_of_scikit_learn(seed: int, share: float) -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    predicted, right = made_sets(seed, share)
    scores = set_scores(predicted, right)
    assert scores.micro_f1 == pytest.approx(metrics.f1_score(right, predicted, average="micro", zero_division=0))
    assert scores.macro_f1 == pytest.approx(metrics.f1_score(right, predicted, average="macro", zero_division=0))
    assert scores.exact_match == pytest.approx(metrics.accuracy_score(right, predicted))


def test_set_scores_by_hand() -> None:
    right = np.array([[1, 0, 0], [1, 1, 0], [0, 0, 0]], bool)
    predicted = np.array([[1, 0, 0], [1, 0, 1], [0, 0, 0]], bool)
    scores = set_scores(predicted, right)
    assert scores.micro_f1 == pytest.approx(4 / 6)
    assert scores.macro_f1 == pytest.approx(1 / 3)
    assert scores.exact_match == pytest.approx(2 / 3)


def test_no_label_at_all_scores_0_but_matches() -> None:
    scores = set_scores(np.zeros((2, 3), bool), np.zeros((2, 3), bool))
    assert (scores.micro_f1, scores.macro_f1, scores.exact_match) == (0, 0, 1)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("levels", [3, 10_000])
@pytest.mark.parametrize("size", [1e-200, 1.0, 1e100])
def test_correlations_are_those_of_scipy(seed: int, levels: int, size: float) -> None:
    stats = pytest.importorskip("scipy.stats")
    draw = np.random.default_rng(seed)
    right = draw.integers(levels, size=30) / levels
    predicted = draw.integers(levels, size=30) / levels + right
    # scipy's squares of tiny numbers would vanish; no scale changes a correlation.
    assert pearson(predicted * size, right) == pytest.approx(stats.pearsonr(predicted, right).statistic)
    assert spearman(predicted * size, -right) == pytest.approx(stats.spearmanr(predicted, -right).statistic)


def test_correlations_by_hand() -> None:
    numbers = np.array([1.0, 2, 3])
    assert pearson(numbers, 7 - 2 * numbers) == pytest.approx(-1)
    assert -1 <= pearson(numbers, 7 - 2 * numbers) <= pearson(numbers, numbers) <= 1
    assert spearman(numbers, np.exp(10 * numbers)) == pytest.approx(1)
    # Ranks 1.5, 1.5, 3 against 1, 2, 3.
    assert spearman(np.array([5, 5, 9]), numbers) == pytest.approx(np.sqrt(3) / 2)


@pytest.mark.parametrize("correlation", [pearson, spearman])
def test_a_side_of_equal_numbers_correlates_by_0(correlation: Any) -> None:
    equal, rising = np.full(3, 0.1, np.float32), np.arange(3)
    assert correlation(equal, rising) == correlation(rising, equal) == correlation(equal, equal) == 0
    assert correlation(rising[:1], rising[:1]) == 0


@pytest.mark.parametrize("correlation", [pearson, spearman])
def test_correlations_of_what_is_no_number_are_an_error(correlation: Any) -> None:
    with pytest.raises(ValueError, match="one here is"):
        correlation(np.array([1, np.nan]), np.array([1, 2]))


@pytest.mark.parametrize(("predicted", "right"), [((3,), (2,)), ((3, 1), (3, 1)), ((0,), (0,)), ((), ())])
def test_other_shapes_are_an_error(predicted: tuple[int, ...], right: tuple[int, ...]) -> None:
    ours, theirs = np.zeros(predicted, int), np.zeros(right, int)
    for score in (pearson, spearman, lambda a, b: label_scores(a, b, 2)):
        with pytest.raises(ValueError, match=r"both sides are \(rows,\) of at least one"):
            score(ours, theirs)
    with pytest.raises(ValueError, match=r"both sides are \(rows, classes\)"):
        set_scores(ours.astype(bool)[..., None], theirs.astype(bool))


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


def test_sets_that_are_not_bool_are_an_error() -> None:
    with pytest.raises(ValueError, match="said by bool, not int64 and bool"):
        set_scores(np.zeros((2, 2), int), np.zeros((2, 2), bool))
