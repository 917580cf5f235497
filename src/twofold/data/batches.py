"""Plans the batches of an epoch from lengths and (seed, epoch) alone; turns rows and windows of rows into tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from twofold.types import Movable

if TYPE_CHECKING:
    from torch import Tensor

Draw = np.random.Generator
Integers = NDArray[np.int64]
"""Row numbers or token positions."""
POOL = 1 << 17
"""Number of rows sorted by length together: large enough for little padding, small enough to keep the epoch
shuffled."""
CHUNK_TOKENS = 1024
"""Maximum number of tokens (rows × longest) that are encoded at a time, unless a training sets another number."""
CHUNK_COST = 64
"""Time that the reading of a chunk takes beside its tokens, in tokens: about this for six layers of width 384."""
Span = tuple[int, int]
"""Start and end of a window, in tokens."""


@dataclass(frozen=True)
class Moment:
    """State of a training when a batch is made: epoch, progress, and the process that makes it."""

    epoch: int = 0
    progress: float = 0.0
    """Fraction of the training that is done, from 0 to 1."""
    rank: int = 0
    world: int = 1


@dataclass(frozen=True)
class Plan:
    """Batches of one epoch."""

    order: Integers
    """Row numbers; the rows of one batch are adjacent."""
    starts: Integers
    """Start of each batch in `order`, in the order of the epoch."""
    stops: Integers

    def __len__(self) -> int:
        return len(self.starts)

    def rows(self, batch: int) -> Integers:
        """Row numbers of one batch."""
        return self.order[self.starts[batch] : self.stops[batch]]


def plan_by_length(lengths: Sequence[Integers], rows: Integers, batch_tokens: int, seed: int, epoch: int) -> Plan:
    """Groups rows of similar length; rows × longest is at most `batch_tokens`, and a longer row is a batch of its
    own."""
    draw = np.random.default_rng([seed, epoch])
    order = draw.permutation(rows)
    for start in range(0, len(order), POOL):
        pool = order[start : start + POOL]
        # Rows of equal length keep their random order, so that batches differ between epochs.
        order[start : start + POOL] = pool[np.lexsort([side[pool] for side in lengths])]
    longest = np.max([side[order] for side in lengths], axis=0)
    starts, start = [], 0
    while start < len(order):
        starts.append(start)
        pool_end = min(len(order), (start // POOL + 1) * POOL)
        window = longest[start : min(pool_end, start + max(1, batch_tokens // int(longest[start])))]
        cost = np.maximum.accumulate(window) * np.arange(1, len(window) + 1)
        start += max(1, int(np.searchsorted(cost, batch_tokens, side="right")))
    return _shuffled(order, starts, draw)


def plan_at_random(rows: Integers, batch_rows: int, seed: int, epoch: int) -> Plan:
    """Draws batches of a fixed number of rows at random, regardless of length."""
    draw = np.random.default_rng([seed, epoch])
    return _shuffled(draw.permutation(rows), range(0, len(rows), batch_rows), draw)


def plan_evenly(rows: Integers, batch_rows: int, seed: int, epoch: int) -> Plan:
    """Draws batches of at most `batch_rows` rows at random; their sizes differ by at most one row."""
    draw = np.random.default_rng([seed, epoch])
    count = -(-len(rows) // batch_rows)
    return _shuffled(draw.permutation(rows), [len(rows) * number // count for number in range(count)], draw)


def plan_by_size(sizes: NDArray[np.int32], rows: Integers, batch_rows: int, seed: int, epoch: int) -> Plan:
    """Draws batches at random, each of images of one size; `sizes` (rows, 2) has one entry for each of `rows`."""
    draw = np.random.default_rng([seed, epoch])
    drawn = draw.permutation(len(rows))
    _, groups = np.unique(sizes, axis=0, return_inverse=True)
    group = groups.reshape(-1)[drawn]
    place = np.argsort(group, kind="stable")
    order, group = rows[drawn[place]], group[place]
    begins = np.flatnonzero(np.append(True, group[1:] != group[:-1]))
    starts = [start for begin, end in pairwise([*begins, len(order)]) for start in range(begin, end, batch_rows)]
    return _shuffled(order, starts, draw)


def hold_out(rows: int, held: int, seed: int) -> tuple[Integers, Integers]:
    """Splits row numbers into training rows and `held` random validation rows, both sorted."""
    order = np.random.default_rng([seed, rows]).permutation(rows)
    return np.sort(order[held:]), np.sort(order[:held])


def by_length(lengths: Sequence[int], tokens: int) -> Iterator[list[int]]:
    """Groups row numbers, longest first, into batches of at most `tokens` padded tokens."""
    order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    start = 0
    while start < len(order):
        size = max(1, tokens // max(1, lengths[order[start]]))
        yield order[start : start + size]
        start += size


def least_padded(lengths: Sequence[int], tokens: int, cost: int = CHUNK_COST) -> Iterator[list[int]]:
    """Groups row numbers, longest first, into chunks of at most `tokens` padded tokens, so that the padded tokens and
    the `cost` of each chunk are fewest."""
    order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    longest = [max(1, lengths[number]) for number in order]
    stops, costs = [0] * len(order), np.zeros(len(order) + 1)  # of the best chunks from each row on
    for start in reversed(range(len(order))):
        size = min(max(1, tokens // longest[start]), len(order) - start)
        totals = longest[start] * np.arange(1, size + 1) + costs[start + 1 : start + 1 + size]
        stops[start] = start + 1 + int(totals.argmin())
        costs[start] = totals.min() + cost
    start = 0
    while start < len(order):
        yield order[start : stops[start]]
        start = stops[start]


def _shuffled(order: Integers, starts: Sequence[int], draw: Draw) -> Plan:
    begins = np.asarray(starts, np.int64)
    stops = np.append(begins[1:], len(order))
    shuffled = draw.permutation(len(begins))
    return Plan(order, begins[shuffled], stops[shuffled])


def pad_ids(
    rows: Sequence[ArrayLike], pad: int, start: int | None = None, end: int | None = None
) -> tuple[Tensor, Tensor]:
    """Pads rows of ids to the longest, between `start` and `end` if given. Returns ids and padding mask, (rows,
    longest)."""
    import torch

    tokens, mask = pad_arrays(rows, pad, start, end)
    return torch.from_numpy(tokens), torch.from_numpy(mask)


def pad_arrays(
    rows: Sequence[ArrayLike], pad: int, start: int | None = None, end: int | None = None
) -> tuple[Integers, NDArray[np.bool_]]:
    """Returns what `pad_ids` returns, as arrays."""
    before, after = (np.array([] if symbol is None else [symbol], np.int64) for symbol in (start, end))
    framed = [np.concatenate([before, row, after]) for row in rows]
    lengths = np.array([len(row) for row in framed])
    mask = np.arange(lengths.max()) < lengths[:, None]
    tokens = np.full(mask.shape, pad, np.int64)
    tokens[mask] = np.concatenate(framed)
    return tokens, mask


@dataclass(frozen=True)
class Windows(Movable):
    """Overlapping windows of rows that are longer than the encoder can read at once."""

    rows: Tensor
    """Batch row of each window, (windows,)."""
    places: Tensor
    """Token positions that each window reads, (windows, positions)."""
    mask: Tensor
    """Padding mask (windows, positions); true where real."""
    window: Tensor
    """Window that provides the state of each token, (rows, tokens)."""
    position: Tensor
    """Position of each token in that window, (rows, tokens)."""

    def mean(self, summaries: Tensor, mask: Tensor) -> Tensor:
        """Averages the summaries of each row's windows, weighted by the tokens that each window provides; (rows,
        width)."""
        import torch

        taken = torch.bincount(self.window[mask], minlength=len(summaries))
        weights = (taken / mask.sum(1)[self.rows])[:, None].to(summaries)
        return summaries.new_zeros(len(mask), summaries.shape[1]).index_add(0, self.rows, summaries * weights)


def window_spans(sizes: Sequence[int], room: int) -> list[Span]:
    """Splits a sentence into windows of at most `room` tokens; `sizes` are the token counts of its words.

    A window holds as many whole words as fit. The next window goes back over half the room, if its new word leaves that
    much.
    """
    ends = [0, *accumulate(sizes)]  # word n covers the tokens from ends[n] to ends[n + 1]
    spans, first = [], 0
    while True:
        last = first + 1
        while last < len(sizes) and ends[last + 1] - ends[first] <= room:
            last += 1
        spans.append((ends[first], ends[last]))
        if last == len(sizes):
            return spans
        first += 1
        while ends[last] - ends[first] > room // 2 or ends[last + 1] - ends[first] > room:
            first += 1


def make_windows(rows: Sequence[tuple[int, Sequence[Span]]], before: int, after: int) -> Windows:
    """Builds the windows of a batch. A token takes its state from the window where it is furthest from a cut.

    rows: number of tokens of each row with its frame, and its windows among the tokens inside the frame
    before, after: sizes of the frame, which is added to every window
    """
    import torch

    owners: list[int] = []
    places: list[Integers] = []
    window, position = np.zeros((2, len(rows), max(length for length, _ in rows)), np.int64)
    for row, (length, spans) in enumerate(rows):
        deepest = np.full(length, -length)
        for number, (start, stop) in enumerate(spans):
            first, end = before + start, before + stop
            place = np.concatenate([np.arange(before), np.arange(first, end), np.arange(length - after, length)])
            # The start and the end of a row are not cuts, so the first and last window also provide the frame.
            left = place - first if number else np.full_like(place, length)
            right = end - 1 - place if number < len(spans) - 1 else np.full_like(place, length)
            depth = np.minimum(left, right)
            deeper = np.flatnonzero(depth > deepest[place])
            deepest[place[deeper]] = depth[deeper]
            window[row, place[deeper]], position[row, place[deeper]] = len(places), deeper
            owners.append(row)
            places.append(place)
    return Windows(torch.tensor(owners), *pad_ids(places, 0), torch.from_numpy(window), torch.from_numpy(position))
