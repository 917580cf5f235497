"""Exact top-k search: bounds first, exact scores for what may still be among the best, until nothing else can be."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from twofold.errors import NOT_NUMBERS, TwofoldError
from twofold.index.bounds import BLOCK, Bounds, loose_together
from twofold.index.kernels import are_loaded, dot_products
from twofold.index.products import integers_pay
from twofold.index.quantized import Floats, QuantizedDirections, QuantizedProjections, QuantizedVectors, Rows
from twofold.index.top_k import LOWEST, TopK, highest, score_down
from twofold.precision import thread_count
from twofold.types.searching import SearchHead

SCAN_LIMIT = 4096
"""Maximum number of candidates that are all scored at once, because bounds do not pay."""
SCAN_PRODUCTS = 1 << 15
"""Maximum number of dot products that this may take."""
COLD_LIMIT, COLD_PRODUCTS = 1 << 15, 1 << 21
"""Both maxima before the first kernel of a process is loaded, which takes half a second (measured)."""
SCAN_BLOCK = 2048
"""Rows that are scored at a time, if all are: their products stay in the processor's cache."""
SEEDS = 24
"""Number of the highest bounds that are scored first; the k-th best of these scores is the floor for all others."""
FEW, MANY = 128, 8192
"""Numbers of rows above the floor from which tight bounds are computed, and from which a sample tells if that pays."""
SAMPLE_SIZE, SAMPLE_SHARE = 256, 40
"""Number of rows of a sample, or one of so many rows if that are more."""
INTEGER_COST = 1.5
"""Cost of a product of 8-bit integers of a row that is looked up, relative to one of floats in a matrix (measured)."""
MATRIX_COST, LOOKUP_COST = 0.2, 1.05
"""Cost of the products of a row in a matrix of 8-bit integers, and of the score of a row that a sample says is left,
relative to its score in a matrix of floats (measured; a sample's floor is lower, so it says that more are left)."""
TOGETHER = 4
"""Number of queries from which these share the first pass."""
SHORTLIST = 2048
"""Number of candidates that an approximate search keeps after its guess."""


class Searchable(Protocol):
    """Candidates that can be searched: a shard here, and later perhaps a machine elsewhere."""

    def top_k(self, query: Query, k: int, floor: float) -> TopK:
        """Returns the best k that score at least `floor`: proven, unless the query has a guess."""
        ...


class Query:
    """Context, as a search needs it."""

    def __init__(self, head: SearchHead, contexts: Any, directions: Floats | None = None) -> None:
        """contexts: a single one; directions: those of the candidates' projections, for an approximate search"""
        self.head, self.contexts = head, contexts
        self.groups = head.bounding_vectors(contexts)
        if not np.isfinite(self.groups).all():
            raise TwofoldError(f"the scores are {NOT_NUMBERS}")
        self.shared: SharedPass | None = None
        """First pass that this query shares with others."""
        self.guess = None
        if directions is not None:
            projection = (directions @ self.groups.mean(1).sum(0)).astype(np.float64)
            self.guess = QuantizedDirections.of(projection[None]).integers[0]

    @cached_property
    def bounds(self) -> Bounds:
        return Bounds(self.groups)

    def loose_bounds(self, candidates: QuantizedVectors) -> Floats:
        """Computes the loose bounds of all rows."""
        return self.shared.bounds(self, candidates) if self.shared else loose_bounds(self.bounds, candidates)

    def score(self, vectors: Floats) -> Floats:
        """Scores candidates: vectors (candidates, width), scores (candidates,)."""
        return self.head.scores_of_stored(self.contexts, vectors)


_spare: list[Floats] = []
"""Memory for the bounds of a shared pass, used again: to get it from the system takes longer than to fill it."""


class SharedPass:
    """First pass of several queries over the same candidates, made when the first of them asks."""

    def __init__(self, queries: Sequence[Query]) -> None:
        self._queries = queries
        self._candidates: QuantizedVectors | None = None
        self._bounds: dict[Query, Floats] = {}
        try:
            self._memory = _spare.pop()
        except IndexError:  # the first pass, or another thread has it
            self._memory = np.empty(0, np.float32)

    def close(self) -> None:
        """Leaves the memory to the next pass."""
        for query in self._queries:
            query.shared = None
        _spare[:] = [self._memory]

    def bounds(self, query: Query, candidates: QuantizedVectors) -> Floats:
        """Returns the loose bounds of all rows, which the caller may change until those of another place are made."""
        if self._candidates is not candidates:
            size = len(self._queries) * len(candidates)
            if size > len(self._memory):
                self._memory = np.empty(size, np.float32)
            together = self._memory[:size].reshape(len(self._queries), -1)
            loose_together([query.bounds for query in self._queries], candidates, together)
            self._candidates, self._bounds = candidates, dict(zip(self._queries, together, strict=True))
        bounds = self._bounds.pop(query, None)
        return loose_bounds(query.bounds, candidates) if bounds is None else bounds


def search(places: Iterable[Searchable], queries: Sequence[Query], k: int) -> list[TopK]:
    """Returns each query's best k of all places; each place has to reach the floor of those before it."""
    tops = [TopK(k) for _ in queries]
    shared = share_pass(queries)
    for place in places:
        for query, top in zip(queries, tops, strict=True):
            further = place.top_k(query, k, top.floor)
            top.add(further.keys, further.scores)
            top.passages |= further.passages
            top.proven &= further.proven
    if shared is not None:
        shared.close()
    return tops


def share_pass(queries: Sequence[Query]) -> SharedPass | None:
    """Lets queries read candidates together, where that pays."""
    if len(queries) < TOGETHER or not integers_pay(queries[0].groups.shape[2]):
        return None
    narrow = [query for query in queries if not query.bounds.wide]
    shared = SharedPass(narrow)
    for query in narrow:
        query.shared = shared
    return shared


@dataclass(frozen=True)
class StoredVectors:
    """Candidate vectors as they are stored in one place."""

    quantized: QuantizedVectors
    vectors: Callable[[Rows | slice], Floats]
    """Gives the vectors of some rows: (rows, width)."""
    excluded: NDArray[np.bool_] | None = None
    """(rows,): rows that are no candidates."""
    projections: QuantizedProjections | None = None
    """Projections for guesses."""
    documents: Rows | None = None
    """(rows,): document of each row, ascending, if rows are passages of documents."""

    def __len__(self) -> int:
        return len(self.quantized)


def exact_top_k(query: Query, stored: StoredVectors, k: int, floor: float = -np.inf) -> TopK:
    """Returns the rows that score best, at least `floor`.

    Rows with the highest bounds are scored, which raises the floor. If many others are still above it, they get tight
    bounds. What is left is scored from the highest bound down, until no bound reaches the floor. Vectors that lie far
    apart get tight bounds at once; and where bounds do not pay, all rows are scored.
    """
    seeds, top = SEEDS + 2 * k, TopK(k, floor, stored.documents)
    vectors = query.groups[..., 0].size
    if len(stored) <= max(_scan_limit(vectors), seeds):
        return _score_all(query, stored, top)
    if query.bounds.wide:
        return _directly(query, stored, seeds, top)
    bounds = query.loose_bounds(stored.quantized)
    if stored.excluded is not None:
        bounds[stored.excluded] = -np.inf
    rows = _seeded(query, stored, bounds, seeds, top)
    bounds = bounds[rows]
    if len(rows) > min(MANY, len(stored) // 2) and not _tight_bounds_pay(query, stored, rows, top):
        return _score_all(query, stored, TopK(k, top.floor, stored.documents))
    if len(rows) > FEW:
        bounds = query.bounds.tight(stored.quantized, rows)
    return score_down(top, rows, bounds, lambda chosen: query.score(stored.vectors(chosen)))


def _directly(query: Query, stored: StoredVectors, seeds: int, top: TopK) -> TopK:
    """Computes tight bounds of all rows, or scores all rows if a sample says that this costs less."""
    rows = np.arange(len(stored)) if stored.excluded is None else np.flatnonzero(~stored.excluded)
    if not len(rows) or not _tight_bounds_pay(query, stored, rows, top):
        return _score_all(query, stored, top)
    bounds = np.full(len(stored), -np.inf, np.float32)
    bounds[rows] = query.bounds.tight(stored.quantized, rows)
    rows = _seeded(query, stored, bounds, seeds, top)
    return score_down(top, rows, bounds[rows], lambda chosen: query.score(stored.vectors(chosen)))


def _seeded(query: Query, stored: StoredVectors, bounds: Floats, seeds: int, top: TopK) -> Rows:
    """Scores the rows with the highest bounds; returns the others whose bounds reach the floor then."""
    rows = highest(bounds, seeds, stored.documents)
    top.add(rows, query.score(stored.vectors(rows)))
    bounds[rows] = -np.inf
    return np.flatnonzero(bounds >= max(top.floor, LOWEST))


def approximate_top_k(query: Query, stored: StoredVectors, k: int, floor: float = -np.inf) -> TopK:
    """Returns the rows that probably score best: a guess from a few directions, then bounds, then scores."""
    count = SHORTLIST + 4 * k
    if stored.projections is None or query.guess is None or len(stored) <= max(SCAN_LIMIT, count):
        return exact_top_k(query, stored, k, floor)
    guesses = np.empty(len(stored), np.float32)
    for start in range(0, len(stored), BLOCK):
        dots = np.empty(min(BLOCK, len(stored) - start), np.int32)
        block = slice(start, start + len(dots))
        dot_products(stored.projections.integers[block], query.guess, dots)
        np.multiply(dots, stored.projections.steps[block], out=guesses[block])
    if stored.excluded is not None:
        guesses[stored.excluded] = -np.inf
    rows = highest(guesses, count, stored.documents)
    bounds = query.bounds.tight(stored.quantized, rows)
    rows = rows[highest(bounds, SEEDS + 4 * k, None if stored.documents is None else stored.documents[rows])]
    top = TopK(k, floor, stored.documents)
    top.proven = False
    top.add(rows, query.score(stored.vectors(rows)))
    return top


def _scan_limit(vectors: int) -> int:
    """Number of candidates up to which all are scored at once, for a context of so many vectors."""
    limit, most = (SCAN_LIMIT, SCAN_PRODUCTS) if are_loaded() else (COLD_LIMIT, COLD_PRODUCTS)
    return min(limit, most // vectors)


def _score_all(query: Query, stored: StoredVectors, top: TopK) -> TopK:
    for start in range(0, len(stored), SCAN_BLOCK):
        stop = min(start + SCAN_BLOCK, len(stored))
        scores = query.score(stored.vectors(slice(start, stop)))
        rows = np.flatnonzero(scores >= max(top.floor, LOWEST)) + start
        if stored.excluded is not None:
            rows = rows[~stored.excluded[rows]]
        top.add(rows, scores[rows - start])
    return top


def _tight_bounds_pay(query: Query, stored: StoredVectors, rows: Rows, top: TopK) -> bool:
    """Returns True if tight bounds, and scores of the share that they leave of a sample, cost less than all scores."""
    bounds = query.bounds
    sample = rows[:: min(max(1, len(rows) // SAMPLE_SIZE), SAMPLE_SHARE)]
    tight = bounds.tight(stored.quantized, sample)
    if not bounds.by_products:
        vectors, directions = bounds.groups[..., 0].size, len(bounds.span.directions.steps)
        # Both sides count products of one vector with one candidate.
        costs = INTEGER_COST * directions + float((tight >= top.floor).mean()) * vectors
        return len(rows) * costs <= len(stored) * vectors
    if 2 * len(rows) <= len(stored):
        return True
    # The best of the sample tells more of the floor that will be reached than seeds that were no better than others.
    best = query.score(stored.vectors(sample[highest(tight, SEEDS)])).max()
    share = float((tight >= max(float(best), top.floor)).mean())
    return len(rows) * (MATRIX_COST + LOOKUP_COST * share) <= len(stored)


def loose_bounds(bounds: Bounds, candidates: QuantizedVectors) -> Floats:
    """Computes the loose bounds of all rows, with threads."""
    result = np.empty(len(candidates), np.float32)

    def fill(start: int) -> None:
        stop = min(start + BLOCK, len(candidates))
        result[start:stop] = bounds.loose(candidates, start, stop)

    starts, threads = range(0, len(candidates), BLOCK), thread_count()
    run = map if len(starts) < 4 or threads == 1 else _threads(threads).map
    list(run(fill, starts))
    return result


@cache
def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, "twofold-search")


os.register_at_fork(after_in_child=_threads.cache_clear)  # threads do not live on in a forked process
