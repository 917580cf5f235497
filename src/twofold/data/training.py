"""The rows of a cache as the batches of a training, step by step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from twofold.data.batches import Moment, Plan, cached_batch, plan_at_random, plan_by_length
from twofold.data.cache import Cache
from twofold.data.fields import TextField
from twofold.types import Batch


@dataclass(frozen=True)
class TrainingRows:
    """Which rows of a cache to learn from, and how to cut them into batches."""

    cache: Cache
    rows: NDArray[np.int64]
    source: TextField
    targets: Mapping[str, TextField]
    """For each decoder the field it writes; the cache's columns bear the same names, the source is 'source'."""
    batch_tokens: int
    batch_rows: int | None
    seed: int

    @cached_property
    def _lengths(self) -> list[NDArray[np.int64]]:
        # The targets come last: rows are sorted by what is written first, by what is read second.
        return [self.cache.columns[name].lengths for name in ("source", *self.targets)]

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
        targets = {name: (name, field.vocabulary) for name, field in self.targets.items()}
        return cached_batch(self.cache, share, ("source", self.source.vocabulary), targets, moment.progress)
