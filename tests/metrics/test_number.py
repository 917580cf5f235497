"""Correlations are those of scipy; where it has none, they are 0."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from twofold.metrics.number import pearson, spearman


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
    with pytest.raises(ValueError, match="numbers must"):
        correlation(np.array([1, np.nan]), np.array([1, 2]))


@pytest.mark.parametrize(("predicted", "right"), [((3,), (2,)), ((3, 1), (3, 1)), ((0,), (0,)), ((), ())])
def test_other_shapes_are_an_error(predicted: tuple[int, ...], right: tuple[int, ...]) -> None:
    ours, theirs = np.zeros(predicted, int), np.zeros(right, int)
    for correlation in (pearson, spearman):
        with pytest.raises(ValueError, match=r"both sides are \(rows,\) of at least one"):
            correlation(ours, theirs)
