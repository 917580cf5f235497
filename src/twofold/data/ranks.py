"""Ranking metrics over scores (larger is better). Ties count by expectation, as if broken at random."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from twofold.errors import TwofoldError

Scores = npt.NDArray[Any]
Rows = Sequence[npt.ArrayLike]
"""Scores or gains of each row's candidates."""
KS = (1, 2, 5, 10)
"""Default k of recall@k."""


@dataclass(frozen=True)
class Place:
    """Position of the right candidate of a row, or of several right candidates with the same score."""

    better: int
    """Number of other candidates with a strictly higher score."""
    tied: int
    """Number of other candidates with exactly the same score."""
    of: int
    """Number of candidates, including the right one."""
    relevant: int = 1
    """Number of right candidates with this score."""
    gain: float = 1.0
    """Sum of the gains of these right candidates."""

    @property
    def size(self) -> int:
        """Number of candidates with this score."""
        return self.tied + 1


def place_of(scores: npt.ArrayLike, right: int, place: str = "this row") -> Place:
    """Place of candidate `right` in one row; `place` names the row in errors."""
    row = _checked(scores, place)
    if not 0 <= right < len(row):
        raise TwofoldError(f"{place}: the right candidate is {right}, counted from 0, but there are {len(row)}")
    better, same = np.count_nonzero(row > row[right]), np.count_nonzero(row == row[right])
    return Place(int(better), int(same) - 1, len(row))


def places(rows: Rows, right: Sequence[int], names: Sequence[str] | None = None) -> list[Place]:
    """Places of the right candidates of many rows, which may differ in length."""
    names = _row_names(names, rows, right, "right answers")
    return [place_of(*row) for row in zip(rows, right, names, strict=True)]


def recall(place: Place, k: int) -> float:
    """Expected recall@k: probability that the right candidate is among the first k."""
    return min(max((_checked_k(k) - place.better) / place.size, 0.0), 1.0)


def reciprocal(place: Place) -> float:
    """Expected reciprocal rank: 1 / position of the right candidate."""
    return float(np.mean(1 / _positions(place.better, place.size)))


def discounted(place: Place, k: int) -> float:
    """Expected nDCG@k for one right candidate: 1 / log2(position + 1), 0 beyond k."""
    last = min(place.better + place.size, _checked_k(k))
    return float(np.sum(1 / np.log2(_positions(place.better, last - place.better) + 1))) / place.size


def summary(places: Sequence[Place], ks: Sequence[int] = KS) -> dict[str, float]:
    """Means over rows: recall at each k below the number of candidates, MRR, MAP (equal for one right answer) and
    nDCG@10."""
    return _means([_metrics_of_place(place, ks) for place in places], [place.of for place in places])


def summary_of_gains(
    rows: Rows, gains: Rows, names: Sequence[str] | None = None, ks: Sequence[int] = KS
) -> dict[str, float]:
    """Computes `summary` for rows with several right candidates: those with a gain above 0."""
    values = []
    for scores, row_gains, name in zip(rows, gains, _row_names(names, rows, gains, "of gains"), strict=True):
        relevant = _checked_gains(row_gains, scores, name) > 0
        if np.count_nonzero(relevant) == 1:  # the metrics follow from the right candidate's place
            values.append(_metrics_of_place(place_of(scores, int(relevant.argmax()), name), ks))
        else:
            values.append(metrics_of_gains(scores, row_gains, name, ks))
    return _means(values, [len(np.asarray(row)) for row in rows])


def metrics_of_gains(scores: npt.ArrayLike, gains: npt.ArrayLike, place: str, ks: Sequence[int]) -> dict[str, float]:
    """Metrics of one row with any number of right candidates."""
    relevant = np.asarray(gains) > 0
    return {
        **{f"r@{k}": recall_at(scores, relevant, k, place) for k in ks},
        "mrr": reciprocal_rank(scores, relevant, place),
        "map": average_precision(scores, relevant, place),
        "ndcg@10": ndcg(scores, gains, 10, place),
    }


def _metrics_of_place(place: Place, ks: Sequence[int]) -> dict[str, float]:
    mrr = reciprocal(place)
    return {**{f"r@{k}": recall(place, k) for k in ks}, "mrr": mrr, "map": mrr, "ndcg@10": discounted(place, 10)}


def _means(rows: Sequence[dict[str, float]], candidates: Sequence[int]) -> dict[str, float]:
    """Means over rows; recall@k is left out if k covers all candidates."""
    if not rows:
        raise TwofoldError("there are no rows to evaluate; give at least one")
    shown = [name for name in rows[0] if not name.startswith("r@") or int(name[2:]) < min(candidates)]
    return {name: math.fsum(row[name] for row in rows) / len(rows) for name in shown}


def recall_at(scores: npt.ArrayLike, relevant: npt.ArrayLike, k: int, place: str = "this query") -> float:
    """Expected share of the relevant candidates among the first k; `relevant` has a bool for each candidate."""
    groups = _groups(scores, relevant, place)
    return sum(group.relevant * recall(group, k) for group in groups) / sum(group.relevant for group in groups)


def reciprocal_rank(scores: npt.ArrayLike, relevant: npt.ArrayLike, place: str = "this query") -> float:
    """Expected reciprocal rank of the first relevant candidate."""
    first = _groups(scores, relevant, place)[0]
    # The chance that the first relevant one is number i of n tied, r of them relevant, is C(n - i, r - 1) / C(n, r):
    # r / n for the first, and (n - i - r + 1) / (n - i) times the one before for each that follows.
    others = np.arange(first.size - 1, first.relevant - 1, -1, dtype=np.float64)  # n - i
    chances = np.concatenate([[first.relevant / first.size], (others - first.relevant + 1) / others]).cumprod()
    return float(np.sum(chances / _positions(first.better, len(chances))))


def average_precision(scores: npt.ArrayLike, relevant: npt.ArrayLike, place: str = "this query") -> float:
    """Expected average precision: the mean of the precisions at the positions of the relevant candidates."""
    total, counted = 0.0, 0
    for group in _groups(scores, relevant, place):
        # Given a relevant candidate at position i of n tied, each of the i - 1 before it is relevant by (r - 1) / (n -
        # 1).
        among = (group.relevant - 1) / max(group.size - 1, 1)
        hits = counted + 1 + np.arange(group.size) * among
        total += group.relevant / group.size * float(np.sum(hits / _positions(group.better, group.size)))
        counted += group.relevant
    return total / counted


def ndcg(scores: npt.ArrayLike, gains: npt.ArrayLike, k: int, place: str = "this query") -> float:
    """Expected nDCG@k: discounted gain of the first k over that of the ideal order, with log2(position + 1) discounts.

    gains: graded relevance of each candidate, 0 if irrelevant; a bool counts as 1 or 0
    """
    given = _checked_gains(gains, scores, place)
    groups = _groups(scores, given > 0, place, given)
    best = np.sort(given[given > 0])[::-1]
    expected = np.zeros(min(_checked_k(k), max(groups[-1].better + groups[-1].size, len(best))))
    ideal = np.zeros(len(expected))
    ideal[: len(best)] = best[: len(ideal)]
    for group in groups:  # each tied position gets the mean gain, whatever the order
        expected[group.better : group.better + group.size] = group.gain / group.size
    discounts = 1 / np.log2(_positions(0, len(expected)) + 1)
    # Both sums use the same positions, so that an ideal order gets exactly 1.
    return float(np.sum(expected * discounts) / np.sum(ideal * discounts))


def _groups(scores: npt.ArrayLike, relevant: npt.ArrayLike, place: str, gains: Scores | None = None) -> list[Place]:
    """Groups the relevant candidates by score, best first."""
    row, marks = _checked(scores, place), np.asarray(relevant)
    if marks.dtype != np.bool_ or marks.shape != row.shape:
        raise TwofoldError(f"{place}: relevance must be {len(row)} bools, one for each candidate")
    if not marks.any():
        raise TwofoldError(f"{place}: no candidate is relevant, so no ranking of them can be judged")
    levels, numbers, counts = np.unique(row[marks], return_inverse=True, return_counts=True)
    sums = np.bincount(numbers, None if gains is None else gains[marks])
    ordered = np.sort(row)
    low, high = np.searchsorted(ordered, levels, "left"), np.searchsorted(ordered, levels, "right")
    rising = zip((len(row) - high).tolist(), (high - low - 1).tolist(), counts.tolist(), sums.tolist(), strict=True)
    return [Place(better, tied, len(row), *right) for better, tied, *right in rising][::-1]


def _checked(scores: npt.ArrayLike, place: str) -> Scores:
    row = np.asarray(scores)
    if row.ndim != 1 or not len(row):
        raise TwofoldError(f"{place}: scores are one number for each candidate, not of shape {row.shape}")
    wrong = np.isnan(row)
    if wrong.any():
        raise TwofoldError(f"{place}: the score of candidate {int(wrong.argmax()) + 1} of {len(row)} is not a number")
    return row


def _checked_gains(gains: npt.ArrayLike, scores: npt.ArrayLike, place: str) -> npt.NDArray[np.float64]:
    given = np.asarray(gains)
    fits = given.dtype.kind in "biuf" and given.shape == np.shape(scores)
    if not fits or not np.isfinite(given).all() or (given < 0).any():
        raise TwofoldError(f"{place}: gains are numbers from 0 up, one for each candidate")
    return given.astype(np.float64)


def _row_names(names: Sequence[str] | None, rows: Rows, answers: Sequence[Any], what: str) -> Sequence[str]:
    """Returns the names of the rows for errors, after checking that every row has an answer."""
    names = [f"row {number}" for number in range(1, len(rows) + 1)] if names is None else names
    if not len(rows) == len(answers) == len(names):
        raise TwofoldError(f"{len(rows)} rows of scores, but {len(answers)} {what} and {len(names)} names")
    return names


def _checked_k(k: int) -> int:
    if k < 1:
        raise TwofoldError(f"k counts the first candidates and is at least 1, not {k}")
    return k


def _positions(before: int, count: int) -> npt.NDArray[np.int64]:
    """Returns the `count` positions after `before` others, from 1."""
    return np.arange(before + 1, before + max(count, 0) + 1)
