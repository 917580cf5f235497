"""Exact top-k search: bounds first, exact scores for what may still be among the best, until nothing else can be."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from twofold.errors import NOT_NUMBERS, TwofoldError
from twofold.index.bounds import BLOCK, Bounds, Directions, Floats, Heads, Rows, Small
from twofold.index.kernels import products
from twofold.types import Contexts, RankingHead

SCANNED = 4096
"""So many candidates are all scored at once: bounds would not pay."""
SEEDS = 96
"""How many of the highest bounds are scored first; the k-th best of them is what others must reach."""
FEW, MANY = 128, 8192
"""More than a few above the floor get tighter bounds; if they are many, a sample says whether that pays."""
TRIED = 256
"""Rows of that sample."""
DEARER = 1.5
"""What a product of 8-bit integers of a row that is looked up costs, against one of floats in a matrix (measured)."""
LIKELY = 2048
"""How many a guess leaves."""
CHUNK = 256
"""How many are scored at a time after that."""
LEVEL = 1e-6
"""Scores this close, as a share of one, are level."""
LOWEST = float(np.finfo(np.float32).min)


class Best:
    """The best k so far, and whatever is level with the last of them."""

    def __init__(self, k: int, floor: float = -np.inf) -> None:
        self.k, self.floor, self.proven = k, floor, True
        self.keys: Rows = np.empty(0, np.int64)
        self.scores: Floats = np.empty(0, np.float32)

    def add(self, keys: Rows, scores: Floats) -> None:
        """keys and scores of further candidates, each seen once"""
        keys, scores = np.concatenate([self.keys, keys]), np.concatenate([self.scores, scores])
        if len(scores) >= self.k:
            least = float(np.partition(scores, len(scores) - self.k)[len(scores) - self.k])
            self.floor = max(self.floor, least - LEVEL * (1 + abs(least)))
        kept = scores >= self.floor
        self.keys, self.scores = keys[kept], scores[kept]


class Shelf(Protocol):
    """Candidates that can be searched: a shard here, and later perhaps a machine elsewhere."""

    def best(self, query: Query, k: int, floor: float) -> Best:
        """The best k that score at least `floor`: proven, unless the query has a guess."""
        ...


class Query:
    """One context, as a search needs it."""

    def __init__(self, head: RankingHead, contexts: Contexts, directions: Floats | None = None) -> None:
        """contexts: one; directions: those of the candidates' heads, where guesses are wanted"""
        self.head, self.contexts = head, contexts
        with torch.no_grad():
            groups = head.ceiling(contexts).cpu().numpy()
        if not np.isfinite(groups).all():
            raise TwofoldError(f"the scores are {NOT_NUMBERS}")
        self.bounds = Bounds(groups)
        self.guess = None
        if directions is not None:
            self.guess = Directions.of((directions @ groups.mean(1).sum(0)).astype(np.float64)[None]).integers[0]

    @torch.no_grad()
    def score(self, vectors: Floats) -> Floats:
        """vectors (candidates, width) → (candidates,)"""
        candidates = torch.from_numpy(vectors).to(self.contexts.vectors.device)
        scores: Floats = self.head.stored_score(self.contexts, candidates)[0].cpu().numpy()
        return scores


def search(shelves: Iterable[Shelf], query: Query, k: int) -> Best:
    """The best k of all shelves; each has to reach what the ones before it gave."""
    found = Best(k)
    for shelf in shelves:
        own = shelf.best(query, k, found.floor)
        found.add(own.keys, own.scores)
        found.proven &= own.proven
    return found


@dataclass(frozen=True)
class Stored:
    """Candidates as one place keeps them."""

    small: Small
    vectors: Callable[[Rows | slice], Floats]
    """Of some rows: (rows, width)."""
    out: NDArray[np.bool_] | None = None
    """(rows,): those that do not count."""
    heads: Heads | None = None
    """For guesses."""

    def __len__(self) -> int:
        return len(self.small)


def best_rows(query: Query, stored: Stored, k: int, floor: float = -np.inf) -> Best:
    """The rows that score best, at least `floor`.

    The highest bounds are scored, which raises the floor; if much is still above it, that gets tighter bounds; what is
    left is scored from the highest bound down, until no bound reaches the floor.
    """
    seeds = SEEDS + 4 * k
    if len(stored) <= max(SCANNED, seeds):
        return _scan(query, stored, Best(k, floor))
    bounds = first_bounds(query.bounds, stored.small)
    if stored.out is not None:
        bounds[stored.out] = -np.inf
    found = Best(k, floor)
    rows = _highest(bounds, seeds)
    found.add(rows, query.score(stored.vectors(rows)))
    bounds[rows] = -np.inf
    rows = np.flatnonzero(bounds >= max(found.floor, LOWEST))
    left = bounds[rows]
    if len(rows) > MANY:
        sample = rows[:: len(rows) // TRIED]
        share = float((query.bounds.closer(stored.small, sample) >= found.floor).mean())
        vectors, directions = query.bounds.sizes
        # In products of one vector with one candidate, of which one of integers is worth some more.
        if len(rows) * (DEARER * directions + share * vectors) > len(stored) * vectors:
            return _scan(query, stored, Best(k, found.floor))
    if len(rows) > FEW:
        left = query.bounds.closer(stored.small, rows)
        rows, left = rows[left >= found.floor], left[left >= found.floor]
    order = np.argsort(-left)
    for start in range(0, len(rows), CHUNK):
        some = order[start : start + CHUNK]
        some = some[left[some] >= found.floor]
        if not len(some):
            break
        found.add(rows[some], query.score(stored.vectors(rows[some])))
    return found


def likely_rows(query: Query, stored: Stored, k: int, floor: float = -np.inf) -> Best:
    """The rows that probably score best: a guess from a few directions, then bounds, then scores."""
    count = LIKELY + 4 * k
    if stored.heads is None or query.guess is None or len(stored) <= max(SCANNED, count):
        return best_rows(query, stored, k, floor)
    guesses = np.empty(len(stored), np.float32)
    for start in range(0, len(stored), BLOCK):
        dots = np.empty(min(BLOCK, len(stored) - start), np.int32)
        some = slice(start, start + len(dots))
        products(stored.heads.integers[some], query.guess, dots)
        np.multiply(dots, stored.heads.steps[some], out=guesses[some])
    if stored.out is not None:
        guesses[stored.out] = -np.inf
    rows = _highest(guesses, count)
    bounds = query.bounds.closer(stored.small, rows)
    found = Best(k, floor)
    found.proven = False
    rows = rows[np.argsort(-bounds)[: SEEDS + 4 * k]]
    found.add(rows, query.score(stored.vectors(rows)))
    return found


def _scan(query: Query, stored: Stored, found: Best) -> Best:
    """Score every row."""
    for start in range(0, len(stored), BLOCK):
        stop = min(start + BLOCK, len(stored))
        scores = query.score(stored.vectors(slice(start, stop)))
        rows = np.flatnonzero(scores >= max(found.floor, LOWEST)) + start
        if stored.out is not None:
            rows = rows[~stored.out[rows]]
        found.add(rows, scores[rows - start])
    return found


def first_bounds(bounds: Bounds, small: Small) -> Floats:
    """Bounds of all rows, by as many threads as torch uses."""
    total = np.empty(len(small), np.float32)

    def fill(start: int) -> None:
        stop = min(start + BLOCK, len(small))
        total[start:stop] = bounds.of(small, start, stop)

    starts = range(0, len(small), BLOCK)
    if len(starts) < 4 or torch.get_num_threads() == 1:
        for start in starts:
            fill(start)
    else:
        list(_threads(torch.get_num_threads()).map(fill, starts))
    return total


@cache
def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, "twofold-search")


os.register_at_fork(after_in_child=_threads.cache_clear)  # threads do not live on in a forked process


def _highest(values: Floats, count: int) -> Rows:
    """Rows of about the `count` highest values, those that are −inf left out."""
    least = np.partition(values, len(values) - count)[len(values) - count]
    return np.flatnonzero(values >= max(least, LOWEST))[: 2 * count]
