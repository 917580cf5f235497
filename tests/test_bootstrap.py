"""The paired bootstrap of the benchmarks."""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import pytest

from twofold.errors import TwofoldError

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import _bootstrap
from _bootstrap import Interval, paired_bootstrap


def test_equal_systems_do_not_differ() -> None:
    draw = np.random.default_rng(4)
    values = draw.random(200)
    assert paired_bootstrap(values, values) == Interval(0.0, 0.0, 0.0)
    noisy = paired_bootstrap(values, draw.permutation(values))
    assert noisy.low < 0 < noisy.high
    assert noisy.difference == pytest.approx(0)


def test_a_clearly_better_system_differs_and_the_order_gives_the_sign() -> None:
    draw = np.random.default_rng(5)
    worse = draw.random(300)
    better = worse + draw.normal(0.1, 0.2, size=300)
    difference = paired_bootstrap(better, worse)
    assert 0 < difference.low < difference.difference < difference.high
    half = 1.96 * float(np.std(better - worse)) / math.sqrt(300)
    assert [difference.low, difference.high] == pytest.approx(
        [difference.difference - half, difference.difference + half], abs=half / 10
    )
    turned = paired_bootstrap(worse, better)
    assert turned.high < 0
    assert turned.difference == -difference.difference


def test_a_bootstrap_depends_on_the_seed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(6)
    ours, other = draw.random(101), draw.random(101)
    first = paired_bootstrap(ours, other, rounds=500, seed=7)
    assert paired_bootstrap(ours, other, rounds=500, seed=7) == first
    assert paired_bootstrap(ours, other, rounds=500, seed=8) != first
    for block in (1, 1_000):
        monkeypatch.setattr(_bootstrap, "BLOCK", block)
        assert paired_bootstrap(ours, other, rounds=500, seed=7) == first


def test_systems_that_cannot_be_compared_are_one_line() -> None:
    for first, other in (([1.0], [1.0, 2.0]), ([], []), ([[1.0]], [[1.0]])):
        with pytest.raises(TwofoldError, match="one value a row each"):
            paired_bootstrap(first, other)
    with pytest.raises(TwofoldError, match="finite"):
        paired_bootstrap([1.0, math.nan], [1.0, 2.0])
    with pytest.raises(TwofoldError, match="at least 1 round"):
        paired_bootstrap([1.0], [1.0], rounds=0)
