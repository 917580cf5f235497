"""Ranking metrics over scores, larger is better; ties count by expectation, as if broken at random."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from twofold.errors import TwofoldError

Scores = npt.NDArray[Any]


@dataclass(frozen=True)
class Place:
    """Where the one right candidate of a row stands."""

    better: int
    """How many others score strictly higher."""
    tied: int
    """How many others score exactly the same."""
    of: int
    """How many candidates there are, the right one among them."""


def place_of(scores: npt.ArrayLike, right: int, place: str = "this row") -> Place:
    """The place of candidate `right` of one row; `place` names the row in errors."""
    row = _checked(scores, place)
    own = row[_checked_right(right, row, place)]
    return Place(int(np.count_nonzero(row > own)), int(np.count_nonzero(row == own)) - 1, len(row))


def places(rows: Sequence[npt.ArrayLike], right: Sequence[int], names: Sequence[str] | None = None) -> list[Place]:
    """As `place_of` for many rows at once, which may differ in length; holds a copy of all scores meanwhile."""
    names = [f"row {number}" for number in range(1, len(rows) + 1)] if names is None else names
    if not len(rows) == len(right) == len(names):
        raise TwofoldError(f"{len(rows)} rows of scores, but {len(right)} right answers and {len(names)} names")
    if not len(rows):
        return []
    checked = [_checked(row, name) for row, name in zip(rows, names, strict=True)]
    chosen = np.array([_checked_right(*one) for one in zip(right, checked, names, strict=True)])
    lengths = np.array([len(row) for row in checked])
    starts = lengths.cumsum() - lengths
    scores = np.concatenate(checked)  # (candidates of all rows)
    own = scores[starts + chosen].repeat(lengths)
    better = np.add.reduceat(scores > own, starts, dtype=np.int64)
    tied = np.add.reduceat(scores == own, starts, dtype=np.int64) - 1
    return [Place(*counts) for counts in zip(better.tolist(), tied.tolist(), lengths.tolist(), strict=True)]


def recall(place: Place, k: int) -> float:
    """How likely the right candidate is among the first k."""
    return min(max((_checked_k(k) - place.better) / (place.tied + 1), 0.0), 1.0)


def reciprocal(place: Place) -> float:
    """The expected 1 / position of the right candidate."""
    return float(np.mean(1 / _positions(place.better, place.tied + 1)))


def discounted(place: Place, k: int) -> float:
    """The expected 1 / log2(position + 1) of the right candidate, nothing beyond k: its nDCG@k."""
    last = min(place.better + place.tied + 1, _checked_k(k))
    return float(np.sum(_discounts(place.better, last - place.better))) / (place.tied + 1)


def summary(places: Sequence[Place], ks: Sequence[int] = (1, 2, 5, 10)) -> dict[str, float]:
    """Means over rows: recall at each k that leaves some out, MRR and MAP (one right answer: the same), and nDCG@10."""
    if not len(places):
        raise TwofoldError("there is no row to judge a ranking by")
    fewest = min(place.of for place in places)
    metrics = {f"r@{k}": _mean([recall(place, k) for place in places]) for k in ks if k < fewest}
    mrr = _mean([reciprocal(place) for place in places])
    return {**metrics, "mrr": mrr, "map": mrr, "ndcg@10": _mean([discounted(place, 10) for place in places])}


def summary_of_gains(
    rows: Sequence[npt.ArrayLike],
    gains: Sequence[npt.ArrayLike],
    names: Sequence[str] | None = None,
    ks: Sequence[int] = (1, 2, 5, 10),
) -> dict[str, float]:
    """As `summary`, for rows any of whose candidates may be right: those whose gain is above 0."""
    names = [f"row {number}" for number in range(1, len(rows) + 1)] if names is None else names
    if not len(rows) == len(gains) == len(names):
        raise TwofoldError(f"{len(rows)} rows of scores, but {len(gains)} of gains and {len(names)} names")
    if not len(rows):
        raise TwofoldError("there is no row to judge a ranking by")
    values = [_metrics_of(*row, ks) for row in zip(rows, gains, names, strict=True)]
    fewest = min(len(np.asarray(row)) for row in rows)
    shown = [name for name in values[0] if not name.startswith("r@") or int(name[2:]) < fewest]
    return {name: _mean([row[name] for row in values]) for name in shown}


def _metrics_of(scores: npt.ArrayLike, gains: npt.ArrayLike, place: str, ks: Sequence[int]) -> dict[str, float]:
    """The metrics of one row; of one right candidate they follow from its place alone."""
    relevant = _checked_gains(gains, scores, place) > 0
    if np.count_nonzero(relevant) == 1:
        right = place_of(scores, int(relevant.argmax()), place)
        mrr = reciprocal(right)
        recalls = {f"r@{k}": recall(right, k) for k in ks}
        return {**recalls, "mrr": mrr, "map": mrr, "ndcg@10": discounted(right, 10)}
    return {
        **{f"r@{k}": recall_at(scores, relevant, k, place) for k in ks},
        "mrr": reciprocal_rank(scores, relevant, place),
        "map": average_precision(scores, relevant, place),
        "ndcg@10": ndcg(scores, gains, 10, place),
    }


def recall_at(scores: npt.ArrayLike, relevant: npt.ArrayLike, k: int, place: str = "this query") -> float:
    """The expected share of the relevant candidates that is among the first k; `relevant` has a bool a candidate."""
    groups = _groups(scores, relevant, place)
    found = sum(group.relevant * recall(Place(group.before, group.size - 1, 0), k) for group in groups)
    return found / sum(group.relevant for group in groups)


def reciprocal_rank(scores: npt.ArrayLike, relevant: npt.ArrayLike, place: str = "this query") -> float:
    """The expected 1 / position of the first relevant candidate."""
    first = _groups(scores, relevant, place)[0]
    # The chance that the first relevant one is number i of n tied, r of them relevant, is C(n - i, r - 1) / C(n, r):
    # r / n for the first, and (n - i - r + 1) / (n - i) times the one before for each that follows.
    others = np.arange(first.size - 1, first.relevant - 1, -1, dtype=np.float64)  # n - i
    chances = np.concatenate([[first.relevant / first.size], (others - first.relevant + 1) / others]).cumprod()
    return float(np.sum(chances / _positions(first.before, len(chances))))


def average_precision(scores: npt.ArrayLike, relevant: npt.ArrayLike, place: str = "this query") -> float:
    """The expected mean, over relevant candidates, of the precision at their positions."""
    total, found = 0.0, 0
    for group in _groups(scores, relevant, place):
        # Given a relevant one at number i of n tied, each of the i - 1 before it is relevant by (r - 1) / (n - 1).
        among = (group.relevant - 1) / max(group.size - 1, 1)
        hits = found + 1 + np.arange(group.size) * among
        total += group.relevant / group.size * float(np.sum(hits / _positions(group.before, group.size)))
        found += group.relevant
    return total / found


def ndcg(scores: npt.ArrayLike, gains: npt.ArrayLike, k: int, place: str = "this query") -> float:
    """The expected discounted gain of the first k over that of an ideal order, with log2(position + 1) discounts.

    gains: of each candidate how relevant it is, 0 if not at all; a bool counts as 1 or 0
    """
    given = _checked_gains(gains, scores, place)
    groups = _groups(scores, given > 0, place, given)
    best = np.sort(given[given > 0])[::-1]
    expected = np.zeros(min(_checked_k(k), max(groups[-1].before + groups[-1].size, len(best))))
    ideal = np.zeros(len(expected))
    ideal[: len(best)] = best[: len(ideal)]
    for group in groups:  # in whatever order tied ones stand, each position gets their mean gain
        expected[group.before : group.before + group.size] = group.gain / group.size
    discounts = _discounts(0, len(expected))
    # Both sums run over the same positions, so that an ideal order gets exactly 1.
    return float(np.sum(expected * discounts) / np.sum(ideal * discounts))


@dataclass(frozen=True)
class _Group:
    """Candidates of one score, at least one of them relevant."""

    before: int
    size: int
    relevant: int
    gain: float
    """The sum of their gains."""


def _groups(
    scores: npt.ArrayLike, relevant: npt.ArrayLike, place: str, gains: npt.NDArray[np.float64] | None = None
) -> list[_Group]:
    """The groups that hold something relevant, best first; no metric asks about the others."""
    row, marks = _checked(scores, place), np.asarray(relevant)
    if marks.dtype != np.bool_ or marks.shape != row.shape:
        raise TwofoldError(f"{place}: what is relevant is said by {len(row)} bools, one for each candidate")
    if not marks.any():
        raise TwofoldError(f"{place}: no candidate is relevant, so no ranking of them can be judged")
    levels, numbers, counts = np.unique(row[marks], return_inverse=True, return_counts=True)
    sums = counts.astype(np.float64) if gains is None else np.bincount(numbers, weights=gains[marks])
    ordered = np.sort(row)
    low, high = np.searchsorted(ordered, levels, "left"), np.searchsorted(ordered, levels, "right")
    rising = zip((len(row) - high).tolist(), (high - low).tolist(), counts.tolist(), sums.tolist(), strict=True)
    return [_Group(*one) for one in rising][::-1]


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


def _checked_right(right: int, row: Scores, place: str) -> int:
    if not 0 <= right < len(row):
        raise TwofoldError(f"{place}: the right candidate is {right}, counted from 0, but there are {len(row)}")
    return int(right)


def _checked_k(k: int) -> int:
    if k < 1:
        raise TwofoldError(f"k counts the first candidates and is at least 1, not {k}")
    return k


def _positions(before: int, count: int) -> npt.NDArray[np.int64]:
    """The `count` positions after `before` others, from 1."""
    return np.arange(before + 1, before + max(count, 0) + 1)


def _discounts(before: int, count: int) -> npt.NDArray[np.float64]:
    discounts: npt.NDArray[np.float64] = 1 / np.log2(_positions(before, count) + 1)
    return discounts


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
