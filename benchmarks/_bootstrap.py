"""The paired bootstrap: whether one system is better than another on the same rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from twofold.errors import TwofoldError

BLOCK = 4_000_000
"""Rows drawn at a time: 8 bytes each for the draw and for the value."""


@dataclass(frozen=True)
class Interval:
    """A difference of two means, and the ends of its 95 % confidence interval."""

    difference: float
    low: float
    high: float


def paired_bootstrap(a: npt.ArrayLike, b: npt.ArrayLike, rounds: int = 10_000, seed: int = 1) -> Interval:
    """Difference of the means of a and b, two systems' values for the same rows, by resampling the rows."""
    ours, theirs = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if ours.ndim != 1 or ours.shape != theirs.shape or not len(ours):
        raise TwofoldError(f"systems are compared by one value a row each, not by {ours.shape} and {theirs.shape}")
    if not (np.isfinite(ours).all() and np.isfinite(theirs).all()):
        raise TwofoldError("systems are compared by finite values, and one here is not")
    if rounds < 1:
        raise TwofoldError(f"a bootstrap takes at least 1 round, not {rounds}")
    above, draw = ours - theirs, np.random.default_rng(seed)
    means, step = np.empty(rounds), max(1, BLOCK // len(above))
    for start in range(0, rounds, step):
        block = means[start : start + step]
        block[:] = above[draw.integers(len(above), size=(len(block), len(above)))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    return Interval(float(above.mean()), float(low), float(high))
