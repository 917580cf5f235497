"""Batches: items and targets of rows, with all that is random about them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twofold.data.batches import Draw, Moment, Plan
from twofold.data.cache import Cache
from twofold.data.files import Row
from twofold.errors import TwofoldError, as_list, kind_of_value
from twofold.inputs import INPUT, BatchSizes, Input
from twofold.outputs import Output
from twofold.types import Batch, Example, Hidden, Target


@dataclass(frozen=True)
class BatchRows:
    """Items and targets of the rows of a batch, and their random generators."""

    items: Sequence[Any]
    values: Mapping[str, Sequence[Any]]
    """Targets of the rows, by output name."""
    draws: Sequence[Draw]
    """Random generator of each row; nothing else about the row is random."""
    other: Callable[[Draw], Any]
    """Draws the item of any row."""

    def batch(self, input: Input[Any], outputs: Iterable[Output[Any]], progress: float, training: bool) -> Batch:
        """Turns the rows into tensors; `training` applies noise and augmentation."""
        items, values, outputs = self.items, dict(self.values), list(outputs)
        for output in outputs:
            items, values[output.name] = output.change(items, values[output.name], self.draws, self.other)
        batch = Batch({INPUT: input.batch(items, self.draws if training else None)}, {}, progress)
        for output in outputs:
            batch = output.add_target(batch, values[output.name], self.draws, training)
        return batch


@dataclass(frozen=True)
class TrainingRows:
    """Rows of a cache to learn from, and the size of their batches."""

    cache: Cache
    rows: NDArray[np.int64]
    input: Input[Any]
    outputs: Sequence[Output[Any]]
    sizes: BatchSizes

    def plan(self, epoch: int) -> Plan:
        """Plans the batches of an epoch, deterministically."""
        for output in self.outputs:
            if output.whole:
                return output.plan(self.rows, self.sizes, epoch)
        written = [output.lengths(self.cache) for output in self.outputs if output.counted]
        return self.input.plan(self.cache, self.rows, written, self.sizes, epoch)

    def batch(self, rows: NDArray[np.int64], moment: Moment) -> Batch | None:
        """Builds one process's share of a batch as tensors; None if there are more processes than rows."""
        for output in self.outputs:
            if output.whole:
                return output.whole_batch(self.cache, rows, moment, self.sizes)
        # Each batch is shared by the processes, so that their number changes nothing but the time.
        numbers: list[int] = rows[moment.rank :: moment.world].tolist()
        if not numbers:
            return None
        items = [self.input.cached(self.cache, row) for row in numbers]
        values = {output.name: [output.cached(self.cache, row) for row in numbers] for output in self.outputs}
        draws = [np.random.default_rng([self.sizes.seed, moment.epoch, row]) for row in numbers]
        other = lambda draw: self.input.cached(self.cache, int(self.rows[draw.integers(len(self.rows))]))  # noqa: E731
        return BatchRows(items, values, draws, other).batch(self.input, self.outputs, moment.progress, True)


def checked(batch: Any) -> Batch:
    """Refuses rows that were not turned into a batch."""
    if not isinstance(batch, Batch):
        raise TwofoldError(f"{kind_of_value(batch)}, where a batch is wanted; give model.batch(rows)")
    return batch


def repeated(hidden: Hidden, target: Target | None) -> Hidden:
    """Repeats the rows of inputs that have several targets, one row for each target."""
    return hidden if target is None or target.rows is None else hidden.select(target.rows)


def as_rows(examples: Sequence[Example]) -> list[Row]:
    """Turns examples into rows, named by their positions from 1."""
    rows = [Row(f"example {number}", row) for number, row in enumerate(as_list(examples, "examples"), start=1)]
    if not rows:
        raise TwofoldError("a batch needs at least one example")
    for row in rows:
        if not isinstance(row.values, Mapping):
            raise TwofoldError(f"{row.place}: {kind_of_value(row.values)}, where a dict of columns is wanted")
    return rows
