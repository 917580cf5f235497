"""The rows of a cache as the batches of a training, step by step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from twofold.data.batches import Moment, Plan, plan_at_random, plan_by_length
from twofold.data.cache import Cache
from twofold.data.corruption import Corruption, Draw
from twofold.data.fields import SourceField, TargetField
from twofold.types import Batch


@dataclass(frozen=True)
class TrainingRows:
    """Which rows of a cache to learn from, and how to cut them into batches."""

    cache: Cache
    rows: NDArray[np.int64]
    source: SourceField
    targets: Mapping[str, TargetField]
    """For each decoder the field it writes; the cache's columns bear the same names."""
    batch_tokens: int
    batch_rows: int | None
    seed: int
    corruption: Corruption | None = None

    @cached_property
    def _lengths(self) -> list[NDArray[np.int64]]:
        # The targets come last: rows are sorted by what is written first, by what is read second.
        written = [self.cache.columns[name].lengths for name, field in self.targets.items() if field.counted]
        return [self.source.lengths(self.cache), *written]

    def plan(self, epoch: int) -> Plan:
        """The batches of an epoch, the same whenever asked."""
        if self.batch_rows:
            return plan_at_random(self.rows, self.batch_rows, self.seed, epoch)
        return plan_by_length(self._lengths, self.rows, self.batch_tokens, self.seed, epoch)

    def batch(self, rows: NDArray[np.int64], moment: Moment) -> Batch | None:
        """The share of one process in a batch as tensors; none where there are more processes than rows."""
        # Each batch is shared by the processes, so that their number changes nothing but the time.
        share = rows[moment.rank :: moment.world]
        if not len(share):
            return None
        items = [self.source.cached(self.cache, row) for row in share]
        if self.corruption:
            draws = [np.random.default_rng([self.seed, moment.epoch, int(row)]) for row in share]
            batch = self.corruption.batch(self.source, items, draws, self._other, moment.progress)
        else:
            batch = self.source.batch(items, moment.progress)
        written = {
            name: field.target([self.cache.columns[name].row(row) for row in share])
            for name, field in self.targets.items()
        }
        return replace(batch, targets={**batch.targets, **written})

    def _other(self, draw: Draw) -> object:
        return self.source.cached(self.cache, int(self.rows[draw.integers(len(self.rows))]))
