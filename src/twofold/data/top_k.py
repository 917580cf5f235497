"""Top-k of scores, and the checks of `k`."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twofold.errors import TwofoldError


def as_k(k: Any) -> int:
    """Checks `k`: a whole number, at least 1."""
    try:
        wanted = operator.index(k)
    except TypeError:
        raise TwofoldError(f"k must be a whole number, not {k!r:.40}") from None
    if isinstance(k, bool) or wanted < 1:
        raise TwofoldError(f"k must be at least 1, not {k}")
    return wanted


def best(scores: NDArray[Any], k: int) -> list[int]:
    """Indices of the k largest scores, best first; equal scores keep their order."""
    place = max(len(scores) - k, 0)
    numbers = np.flatnonzero(scores >= np.partition(scores, place)[place])
    order: list[int] = numbers[np.argsort(-scores[numbers], kind="stable")][:k].tolist()
    return order


def first_of_equal(texts: Sequence[str]) -> NDArray[np.int64]:
    """Index of the first candidate with the same text, for each candidate."""
    seen: dict[str, int] = {}
    return np.array([seen.setdefault(text, number) for number, text in enumerate(texts)])
