"""Exact top-k search among candidates of several vectors each: all are scored, in blocks that bound the memory.

A score is the sum, over the groups of `RankingDecoder.ceiling`, of the largest dot product of a vector in the group
with a vector of the candidate: Σ_t max_j q_t·c_j of late interaction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from twofold.index.bounds import compiled
from twofold.index.places import Places
from twofold.index.quantized import Floats, Rows
from twofold.index.search import LOWEST, Query, TopK

BLOCK_VECTORS = 4096
"""Vectors that are compared at a time: they, and their dot products with a context's, stay in the processor's cache."""


@dataclass(frozen=True)
class SeveralVectors:
    """Candidates as they are stored in one place, several vectors of each."""

    places: Places
    vectors: Callable[[Rows | slice], Floats]
    """Gives the vectors of some rows, one row after another: (vectors, width)."""
    excluded: NDArray[np.bool_] | None = None
    """(rows,): rows that are no candidates."""


def scan(query: Query, stored: SeveralVectors, k: int, floor: float = -np.inf) -> TopK:
    """The rows that score best, at least `floor`, of all rows."""
    top = TopK(k, floor)
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
    """The scores of some rows: (rows,)."""
    _, size, width = query.groups.shape
    products = torch.from_numpy(stored.vectors(rows)) @ torch.from_numpy(query.groups.reshape(-1, width)).T
    counts = stored.places.counts[rows]
    scores = np.empty(len(counts), np.float32)
    sums_of_maxima(products.numpy(), counts, size, scores)
    return scores


@compiled(fastmath={"reassoc", "contract", "nsz", "nnan"})
def sums_of_maxima(products: NDArray[Any], counts: NDArray[Any], size: int, out: NDArray[Any]) -> None:
    """products (vectors, groups × size), those of one row after another; counts and out (rows,)."""
    columns = products.shape[1]
    best = np.empty(columns, np.float32)
    place = 0
    for row in range(len(counts)):
        best[:] = -np.inf
        for vector in range(place, place + counts[row]):
            for column in range(columns):
                best[column] = max(best[column], products[vector, column])
        place += counts[row]
        total = np.float32(0.0)
        for start in range(0, columns, size):
            largest = best[start]
            for column in range(start + 1, start + size):
                largest = max(largest, best[column])
            total += largest
        out[row] = total
