"""Exact top-k search among candidates of several vectors each, in blocks that bound the memory.

A score is the sum, over the groups of `RankingDecoder.ceiling`, of the largest dot product of a vector in the group
with a vector of the candidate: Σ_t max_j q_t·c_j of late interaction. All are scored; but where vectors are stored as
8-bit integers, and the processor multiplies these faster than floats, integers bound every score first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twofold.index.kernels import compiled
from twofold.index.places import Places
from twofold.index.products import float_products, integer_products, integers_pay
from twofold.index.quantized import Floats, QuantizedVectors, Rows
from twofold.index.search import SEEDS, Query
from twofold.index.top_k import LOWEST, TopK, highest, score_down

BLOCK_VECTORS = 4096
"""Number of vectors that are compared at a time, so that their dot products stay in the processor's cache."""
MANY = 4
"""Share of the rows, as 1/MANY, above which all rows are scored."""


@dataclass(frozen=True)
class SeveralVectors:
    """Candidates as they are stored in one place, several vectors of each."""

    places: Places
    vectors: Callable[[Rows | slice], Floats]
    """Gives the vectors of some rows, one row after another: (vectors, width)."""
    excluded: NDArray[np.bool_] | None = None
    """(rows,): rows that are no candidates."""
    integers: Callable[[slice], tuple[NDArray[Any], Floats]] | None = None
    """Gives the vectors as integers from −127 to 127 and a scale for each, if they are stored so."""
    norms: Floats | None = None
    """(rows,): length of each row's longest vector, rounded up, if integers are stored."""
    documents: Rows | None = None
    """(rows,): document of each row, ascending, if rows are passages of documents."""

    def __len__(self) -> int:
        return len(self.places.counts)


def scan(query: Query, stored: SeveralVectors, k: int, floor: float = -np.inf) -> TopK:
    """Returns the rows that score best, at least `floor`."""
    seeds, width = SEEDS + 4 * k, query.groups.shape[2]
    if stored.norms is None or len(stored) <= seeds or not integers_pay(width):
        return _score_all(query, stored, TopK(k, floor, stored.documents))
    bounds = upper_bounds(query, stored)
    if stored.excluded is not None:
        bounds[stored.excluded] = -np.inf
    top = TopK(k, floor, stored.documents)
    rows = highest(bounds, seeds, stored.documents)
    top.add(rows, scores_of(query, stored, rows))
    bounds[rows] = -np.inf
    rows = np.flatnonzero(bounds >= max(top.floor, LOWEST))
    if MANY * len(rows) > len(stored):
        return _score_all(query, stored, TopK(k, top.floor, stored.documents))
    return score_down(top, rows, bounds[rows], lambda chosen: scores_of(query, stored, chosen))


def _score_all(query: Query, stored: SeveralVectors, top: TopK) -> TopK:
    for start, stop in stored.places.blocks(BLOCK_VECTORS):
        rows = np.arange(start, stop)
        if stored.excluded is not None:
            rows = rows[~stored.excluded[start:stop]]
        if not len(rows):
            continue
        if 2 * len(rows) > stop - start:  # to read a few rows more costs less than to look up each
            scores = scores_of(query, stored, slice(start, stop))[rows - start]
        else:
            scores = scores_of(query, stored, rows)
        reached = scores >= max(top.floor, LOWEST)
        top.add(rows[reached], scores[reached])
    return top


def scores_of(query: Query, stored: SeveralVectors, rows: Rows | slice) -> Floats:
    """Computes the scores of some rows: (rows,)."""
    _, size, width = query.groups.shape
    products = float_products(stored.vectors(rows), query.groups.reshape(-1, width).T)
    counts, unscaled = stored.places.counts[rows], np.ones(max(products.shape), np.float32)
    scores = np.empty(len(counts), np.float32)
    sums_of_maxima(products, unscaled, unscaled, counts, size, scores)
    return scores


def upper_bounds(query: Query, stored: SeveralVectors) -> Floats:
    """Bounds the score of each row: q = step·p + r, so q·c ≤ step·p·c + ‖r‖·‖c‖, where p·c is one of integers."""
    assert stored.integers is not None
    assert stored.norms is not None
    groups, size, width = query.groups.shape
    quantized = QuantizedVectors.of(query.groups.reshape(-1, width))
    directions = np.ascontiguousarray(quantized.integers.T)
    lost, longest = (values.reshape(groups, size).max(1).sum() for values in (quantized.errors, quantized.norms))
    # What float32 can lose in a dot product of this width, in the sum over the groups, and here.
    slack = np.float32(lost + (width + groups + 64) * 2.0**-23 * longest)
    bounds = np.empty(len(stored), np.float32)
    for start, stop in stored.places.blocks(BLOCK_VECTORS):
        vectors, scales = stored.integers(slice(start, stop))
        products, counts = integer_products(vectors, directions), stored.places.counts[start:stop]
        sums_of_maxima(products, scales, quantized.steps, counts, size, bounds[start:stop])
    return bounds + slack * stored.norms


@compiled(fastmath={"reassoc", "contract", "nsz", "nnan"})
def sums_of_maxima(products: Any, scales: Any, steps: Any, counts: Any, size: int, out: Any) -> None:
    """Adds up the largest product of each group, for each row.

    products (vectors, groups × size), those of one row after another, each times its vector's scale and its column's
    step; counts and out (rows,).
    """
    columns = products.shape[1]
    best = np.empty(columns, np.float32)
    place = 0
    for row in range(len(counts)):
        best[:] = -np.inf
        for vector in range(place, place + counts[row]):
            for column in range(columns):
                best[column] = max(best[column], scales[vector] * np.float32(products[vector, column]))
        place += counts[row]
        total = np.float32(0.0)
        for start in range(0, columns, size):
            largest = steps[start] * best[start]
            for column in range(start + 1, start + size):
                largest = max(largest, steps[column] * best[column])
            total += largest
        out[row] = total
