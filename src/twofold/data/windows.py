"""Cuts sentences that are longer than a model may read into overlapping windows of whole words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from twofold.types import Movable

Span = tuple[int, int]
"""Where a window begins and where it ends, counted in tokens."""


@dataclass(frozen=True)
class Windows(Movable):
    """Rows that are read in overlapping windows, because some are longer than a model may read at once."""

    rows: Tensor
    """(windows,): the row of the batch that each window is of."""
    places: Tensor
    """(windows, positions): which tokens of its row a window reads."""
    mask: Tensor
    """(windows, positions), true where real."""
    window: Tensor
    """(rows, tokens): the window that the state of each token comes from."""
    position: Tensor
    """(rows, tokens): and the position in that window."""

    def mean(self, summaries: Tensor, mask: Tensor) -> Tensor:
        """(rows, width): the mean of each row's windows, weighted by how many tokens take their state from a window."""
        taken = torch.bincount(self.window[mask], minlength=len(summaries))
        weights = (taken / mask.sum(1)[self.rows])[:, None].to(summaries)
        return summaries.new_zeros(len(mask), summaries.shape[1]).index_add(0, self.rows, summaries * weights)


def window_spans(sizes: Sequence[int], room: int) -> list[Span]:
    """The windows of a sentence whose words have so many tokens each, none of which has more than `room`.

    A window holds as many words as fit. The next one goes back over half the room, where its new word leaves that much.
    """
    ends = [0, *accumulate(sizes)]  # word n has the tokens from ends[n] to ends[n + 1]
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
    """The windows of a batch.

    rows: the number of tokens of each row with its frame, and its windows among the tokens inside the frame
    before, after: the sizes of the frame, which stands around every window
    """
    owners: list[int] = []
    places: list[NDArray[np.int64]] = []
    origin = np.zeros((2, len(rows), max(length for length, _ in rows)), np.int64)
    for row, (length, spans) in enumerate(rows):
        origin[:, row, :length] = _origin(spans, length, before, after)
        origin[0, row, :length] += len(places)
        owners += [row] * len(spans)
        end = np.arange(length - after, length)
        places += [np.concatenate([np.arange(before + stop - start), end]) for start, stop in spans]
        for place, (start, _) in zip(places[-len(spans) :], spans, strict=True):
            place[before : len(place) - after] += start
    inside = np.full((len(places), max(map(len, places))), -1)
    for line, place in zip(inside, places, strict=True):
        line[: len(place)] = place
    mask = torch.from_numpy(inside >= 0)
    window, position = torch.from_numpy(origin)
    return Windows(torch.tensor(owners), torch.from_numpy(inside.clip(0)), mask, window, position)


def _origin(spans: Sequence[Span], length: int, before: int, after: int) -> NDArray[np.int64]:
    """(2, tokens): for each token of a row the window in which it stands furthest from where one was cut, and its
    position there; the frame is that of the first and of the last window."""
    inner, last = length - before - after, len(spans) - 1
    windows, deepest = np.zeros(inner, np.int64), np.full(inner, -1)
    for window, (start, stop) in enumerate(spans):
        tokens = np.arange(start, stop)
        left = tokens - start if window else np.full(stop - start, inner)
        right = stop - 1 - tokens if window < last else np.full(stop - start, inner)
        depth = np.minimum(left, right)
        deeper = start + np.flatnonzero(depth > deepest[start:stop])
        windows[deeper], deepest[deeper] = window, depth[deeper - start]
    starts = np.array([start for start, _ in spans])
    positions = before + np.arange(inner) - starts[windows]
    size = before + spans[-1][1] - spans[-1][0]
    whole = [
        np.concatenate([np.zeros(before, np.int64), windows, np.full(after, last)]),
        np.concatenate([np.arange(before), positions, np.arange(size, size + after)]),
    ]
    return np.stack(whole)
