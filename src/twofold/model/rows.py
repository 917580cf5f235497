"""The rows of a cache as the batches of a training, step by step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twofold.data.batches import Draw, Moment, Plan
from twofold.data.cache import Cache
from twofold.inputs import BatchSizes, Input
from twofold.outputs import BatchRows, Output
from twofold.types import Batch


@dataclass(frozen=True)
class TrainingRows:
    """Which rows of a cache to learn from, and how to cut them into batches."""

    cache: Cache
    rows: NDArray[np.int64]
    input: Input[Any]
    outputs: Sequence[Output[Any]]
    sizes: BatchSizes

    def plan(self, epoch: int) -> Plan:
        """The batches of an epoch, the same whenever asked."""
        for output in self.outputs:
            if output.whole:
                return output.plan(self.rows, self.sizes, epoch)
        written = [output.lengths(self.cache) for output in self.outputs if output.counted]
        return self.input.plan(self.cache, self.rows, written, self.sizes, epoch)

    def batch(self, rows: NDArray[np.int64], moment: Moment) -> Batch | None:
        """The share of one process in a batch as tensors; none where there are more processes than rows."""
        for output in self.outputs:
            if output.whole:
                return output.whole_batch(self.cache, rows, moment, self.sizes)
        # Each batch is shared by the processes, so that their number changes nothing but the time.
        share = rows[moment.rank :: moment.world]
        if not len(share):
            return None
        numbers = share.tolist()
        items = [self.input.cached(self.cache, row) for row in numbers]
        values = {output.name: [output.cached(self.cache, row) for row in numbers] for output in self.outputs}
        draws = [np.random.default_rng([self.sizes.seed, moment.epoch, row]) for row in numbers]
        return BatchRows(items, values, draws, self._other).batch(self.input, self.outputs, moment.progress, True)

    def _other(self, draw: Draw) -> Any:
        return self.input.cached(self.cache, int(self.rows[draw.integers(len(self.rows))]))
