"""Where the vectors of each row stand, if rows hold several: those of one row after those of another."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from twofold.index.quantized import Rows


class Places:
    """The places of each row's vectors in an array of all vectors."""

    def __init__(self, counts: NDArray[Any]) -> None:
        """counts (rows,): how many vectors each row has"""
        self.counts = counts
        self.bounds: Rows = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        """(rows + 1,): where each row begins, and last where all end."""

    def of(self, rows: Rows | slice) -> Rows | slice:
        """The places of the vectors of some rows, in the order of the rows."""
        if isinstance(rows, slice):
            return slice(int(self.bounds[rows.start]), int(self.bounds[min(rows.stop, len(self.counts))]))
        return self.of_rows(rows)

    def of_rows(self, rows: Rows) -> Rows:
        """The places of the vectors of these rows."""
        counts = self.counts[rows]
        before = np.cumsum(counts, dtype=np.int64) - counts  # vectors of the rows before, among these rows
        return np.asarray(np.repeat(self.bounds[rows] - before, counts) + np.arange(counts.sum()))

    def blocks(self, most: int) -> list[tuple[int, int]]:
        """First and last + 1 of rows that have at most so many vectors, or of one row that has more."""
        blocks, start = [], 0
        while start < len(self.counts):
            stop = int(np.searchsorted(self.bounds, self.bounds[start] + most, side="right")) - 1
            blocks.append((start, max(stop, start + 1)))
            start = blocks[-1][1]
        return blocks
