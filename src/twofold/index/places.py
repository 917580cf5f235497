"""Places of the vectors of each row, if rows hold several: those of one row after those of another."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from twofold.index.quantized import Rows


class Places:
    """Places of each row's vectors in an array of all vectors."""

    def __init__(self, counts: NDArray[Any]) -> None:
        """counts (rows,): number of vectors of each row"""
        self.counts = counts
        self.bounds: Rows = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        """(rows + 1,): beginning of each row, and the end of the last."""

    def of(self, rows: Rows | slice) -> Rows | slice:
        """Places of the vectors of some rows, in the order of the rows."""
        if isinstance(rows, slice):
            return slice(int(self.bounds[rows.start]), int(self.bounds[min(rows.stop, len(self.counts))]))
        return self.of_rows(rows)

    def of_rows(self, rows: Rows) -> Rows:
        """Places of the vectors of some rows that are given by their numbers."""
        counts = self.counts[rows]
        before = np.cumsum(counts, dtype=np.int64) - counts  # vectors of the rows before, among these rows
        return np.asarray(np.repeat(self.bounds[rows] - before, counts) + np.arange(counts.sum()))

    def blocks(self, most: int) -> list[tuple[int, int]]:
        """Ranges of rows, first and last + 1, that have at most `most` vectors, or of a row that has more."""
        blocks, start = [], 0
        while start < len(self.counts):
            stop = int(np.searchsorted(self.bounds, self.bounds[start] + most, side="right")) - 1
            blocks.append((start, max(stop, start + 1)))
            start = blocks[-1][1]
        return blocks
