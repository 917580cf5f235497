"""The rows that are scored first are about the highest bounds, however these lie."""

from __future__ import annotations

import numpy as np
import pytest

from twofold.index.top_k import GROUPS, highest


@pytest.mark.parametrize("count", [1, 10, 64])
@pytest.mark.parametrize("rows", [1, 63, 5000, 5123, 100_000])
def test_the_highest_are_among_them_and_few_others(rows: int, count: int) -> None:
    values = np.random.default_rng(rows).normal(size=rows).astype(np.float32)
    found = highest(values, count)
    assert set(np.argsort(-values)[:count]) <= set(found)
    assert len(found) <= min(rows, 2 * count)


@pytest.mark.parametrize("count", [1, 44])
def test_the_highest_are_found_where_all_lie_in_the_same_group(count: int) -> None:
    values = np.full(400 * GROUPS * count, -1, np.float32)
    values[3 :: GROUPS * count] = np.arange(400)
    assert set(np.argsort(-values)[:count]) <= set(highest(values, count))
    assert len(highest(values, count)) <= 2 * count


def test_of_a_few_that_count_all_are_found() -> None:
    values = np.full(100_000, -np.inf, np.float32)
    values[[5, 700, 99_999]] = 1.0, 2.0, 3.0
    assert highest(values, 10).tolist() == [5, 700, 99_999]
    values[5 :: GROUPS * 10] = np.arange(len(values[5 :: GROUPS * 10]))  # the groups of a few rows hold all that count
    assert set(np.argsort(-values)[:10]) <= set(highest(values, 10))
    assert len(highest(np.full(50_000, -np.inf, np.float32), 10)) == 0


def test_level_values_are_cut_off() -> None:
    assert len(highest(np.ones(50_000, np.float32), 10)) == 20
