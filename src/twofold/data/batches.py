"""Which rows make which batch, computed from the lengths and (seed, epoch) alone, and rows as tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

Draw = np.random.Generator
POOL = 1 << 17
"""Rows sorted by length together: enough that padding is rare, few enough that an epoch stays shuffled."""


@dataclass(frozen=True)
class Moment:
    """Where a training stands when a batch is made, and whose batch it is."""

    epoch: int = 0
    progress: float = 0.0
    """How much of the training is done, from 0 to 1."""
    rank: int = 0
    world: int = 1


@dataclass(frozen=True)
class Plan:
    """The batches of one epoch."""

    order: NDArray[np.int64]
    """Row numbers, those of one batch side by side."""
    starts: NDArray[np.int64]
    """Where in `order` each batch starts, in the order of the epoch."""
    stops: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts)

    def rows(self, batch: int) -> NDArray[np.int64]:
        """The row numbers of one batch."""
        return self.order[self.starts[batch] : self.stops[batch]]


def plan_by_length(
    lengths: Sequence[NDArray[np.int64]], rows: NDArray[np.int64], batch_tokens: int, seed: int, epoch: int
) -> Plan:
    """Batches of rows of like length, rows × longest at most `batch_tokens`; a longer row is a batch of its own."""
    draw = np.random.default_rng([seed, epoch])
    order = draw.permutation(rows)
    for start in range(0, len(order), POOL):
        pool = order[start : start + POOL]
        # Rows of equal lengths keep their random order, so that batches differ from epoch to epoch.
        order[start : start + POOL] = pool[np.lexsort([side[pool] for side in lengths])]
    longest = np.max([side[order] for side in lengths], axis=0)
    starts = []
    start = 0
    while start < len(order):
        starts.append(start)
        pool_end = min(len(order), (start // POOL + 1) * POOL)
        window = longest[start : min(pool_end, start + max(1, batch_tokens // int(longest[start])))]
        cost = np.maximum.accumulate(window) * np.arange(1, len(window) + 1)
        start += max(1, int(np.searchsorted(cost, batch_tokens, side="right")))
    return _shuffled(order, starts, draw)


def plan_at_random(rows: NDArray[np.int64], batch_rows: int, seed: int, epoch: int) -> Plan:
    """Batches of a fixed number of rows drawn at random, whatever their lengths."""
    draw = np.random.default_rng([seed, epoch])
    return _shuffled(draw.permutation(rows), range(0, len(rows), batch_rows), draw)


def plan_evenly(rows: NDArray[np.int64], batch_rows: int, seed: int, epoch: int) -> Plan:
    """Batches drawn at random of at most `batch_rows` rows, all as large as each other but for one row."""
    draw = np.random.default_rng([seed, epoch])
    count = -(-len(rows) // batch_rows)
    return _shuffled(draw.permutation(rows), [len(rows) * number // count for number in range(count)], draw)


def plan_by_size(sizes: NDArray[np.int32], rows: NDArray[np.int64], batch_rows: int, seed: int, epoch: int) -> Plan:
    """Batches drawn at random, each of rows of one size; `sizes` is (rows, 2), one for each of `rows`."""
    draw = np.random.default_rng([seed, epoch])
    drawn = draw.permutation(len(rows))
    _, groups = np.unique(sizes, axis=0, return_inverse=True)
    group = groups.reshape(-1)[drawn]
    place = np.argsort(group, kind="stable")
    order, group = rows[drawn[place]], group[place]
    begins = np.flatnonzero(np.append(True, group[1:] != group[:-1]))
    starts = [
        start
        for begin, end in zip(begins, [*begins[1:], len(order)], strict=True)
        for start in range(begin, end, batch_rows)
    ]
    return _shuffled(order, starts, draw)


def hold_out(rows: int, held: int, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Row numbers to train on, and `held` others drawn by seed to judge by, both in order."""
    order = np.random.default_rng([seed, rows]).permutation(rows)
    return np.sort(order[held:]), np.sort(order[:held])


def by_length(lengths: Sequence[int], tokens: int) -> Iterator[list[int]]:
    """Numbers of rows, longest first, in batches of at most `tokens` padded tokens."""
    order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    start = 0
    while start < len(order):
        size = max(1, tokens // max(1, lengths[order[start]]))
        yield order[start : start + size]
        start += size


def _shuffled(order: NDArray[np.int64], starts: Sequence[int], draw: np.random.Generator) -> Plan:
    begins = np.asarray(starts, np.int64)
    stops = np.append(begins[1:], len(order))
    shuffled = draw.permutation(len(begins))
    return Plan(order, begins[shuffled], stops[shuffled])


def pad_ids(
    rows: Sequence[ArrayLike], pad: int, start: int | None = None, end: int | None = None
) -> tuple[Tensor, Tensor]:
    """(rows, longest) of ids, each between `start` and `end` where they are given, and true where real."""
    before, after = start is not None, end is not None
    lengths = np.array([len(row) for row in rows], np.int64) + before + after  # type: ignore[arg-type]
    tokens = np.full((len(rows), lengths.max()), pad, np.int64)
    for line, row, length in zip(tokens, rows, lengths, strict=True):
        line[int(before) : length - after] = row
        if after:
            line[length - 1] = end
    if before:
        tokens[:, 0] = start
    mask = np.arange(tokens.shape[1]) < lengths[:, None]
    return torch.from_numpy(tokens), torch.from_numpy(mask)
