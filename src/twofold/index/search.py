"""Exact top-k search: bounds first, exact scores for what may still be among the best, until nothing else can be."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from twofold.data.passages import Span
from twofold.decoders import RankingDecoder, Vectors
from twofold.errors import NOT_NUMBERS, TwofoldError
from twofold.index.bounds import BLOCK, Bounds, dot_products
from twofold.index.database import Entry
from twofold.index.quantized import Floats, QuantizedDirections, QuantizedProjections, QuantizedVectors, Rows
from twofold.results import Hit, Passage

SCAN_LIMIT = 4096
"""Maximum number of candidates that are all scored at once, because bounds do not pay."""
SEEDS = 96
"""Number of the highest bounds that are scored first; the k-th best of these scores is the floor for all others."""
FEW, MANY = 128, 8192
"""Numbers of rows above the floor from which tight bounds are computed, and from which a sample tells if that pays."""
SAMPLE_SIZE = 256
INTEGER_COST = 1.5
"""Cost of a product of 8-bit integers of a row that is looked up, relative to one of floats in a matrix (measured)."""
SHORTLIST = 2048
"""Number of candidates that an approximate search keeps after its guess."""
CHUNK = 256
"""Number of candidates that are scored at a time after the seeds."""
TIE_TOLERANCE = 1e-6
"""Relative difference up to which scores are ties."""
LOWEST = float(np.finfo(np.float32).min)


class TopK:
    """Best k candidates so far, and ties with the last of them; or the passages that make k documents the best."""

    def __init__(self, k: int, floor: float = -np.inf, documents: Rows | None = None) -> None:
        """documents: document of each key, if keys are rows with passages; `floor` is then that of documents"""
        self.k, self.floor, self.proven = k, floor, True
        self.documents = documents
        self.passages: dict[int, tuple[int, Span]] = {}
        """Best passages by the keys of their documents: each passage's number, and its place."""
        self.keys: Rows = np.empty(0, np.int64)
        self.scores: Floats = np.empty(0, np.float32)

    def add(self, keys: Rows, scores: Floats) -> None:
        """Adds further candidates by key, each once."""
        keys, scores = np.concatenate([self.keys, keys]), np.concatenate([self.scores, scores])
        best = scores
        if self.documents is not None:
            _, place = np.unique(self.documents[keys], return_inverse=True)
            best = np.full(len(scores) and place.max() + 1, -np.inf, np.float32)
            np.maximum.at(best, place, scores)
            level = scores >= (best - TIE_TOLERANCE * (1 + np.abs(best)))[place]
            keys, scores = keys[level], scores[level]
        if len(best) >= self.k:
            last = float(np.partition(best, len(best) - self.k)[len(best) - self.k])
            self.floor = max(self.floor, last - TIE_TOLERANCE * (1 + abs(last)))
        kept = scores >= self.floor
        self.keys, self.scores = keys[kept], scores[kept]

    def group(self) -> Rows:
        """Replaces passages by documents; returns the row of each document's best passage, the first of ties."""
        assert self.documents is not None
        order = np.argsort(self.keys)
        rows, scores = self.keys[order], self.scores[order]
        self.keys, first = np.unique(self.documents[rows], return_index=True)
        self.scores = np.maximum.reduceat(scores, first) if len(first) else scores
        best: Rows = rows[first]
        return best


class Searchable(Protocol):
    """Candidates that can be searched: a shard here, and later perhaps a machine elsewhere."""

    def top_k(self, query: Query, k: int, floor: float) -> TopK:
        """Returns the best k that score at least `floor`: proven, unless the query has a guess."""
        ...


class Query:
    """Context, as a search needs it."""

    def __init__(self, head: RankingDecoder, contexts: Vectors, directions: Floats | None = None) -> None:
        """contexts: a single one; directions: those of the candidates' projections, for an approximate search"""
        self.head, self.contexts = head, contexts
        with torch.no_grad():
            self.groups: Floats = head.ceiling(contexts).cpu().numpy()
        if not np.isfinite(self.groups).all():
            raise TwofoldError(f"the scores are {NOT_NUMBERS}")
        self.guess = None
        if directions is not None:
            projection = (directions @ self.groups.mean(1).sum(0)).astype(np.float64)
            self.guess = QuantizedDirections.of(projection[None]).integers[0]

    @cached_property
    def bounds(self) -> Bounds:
        return Bounds(self.groups)

    @torch.no_grad()
    def score(self, vectors: Floats) -> Floats:
        """Scores candidates: vectors (candidates, width), scores (candidates,)."""
        candidates = Vectors(torch.from_numpy(vectors)[:, None].to(self.contexts.vectors.device))
        scores: Floats = self.head.stored_score(self.contexts, candidates)[0].cpu().numpy()
        return scores


def search(places: Iterable[Searchable], query: Query, k: int) -> TopK:
    """Returns the best k of all places; each place has to reach the floor of those before it."""
    top = TopK(k)
    for place in places:
        further = place.top_k(query, k, top.floor)
        top.add(further.keys, further.scores)
        top.passages |= further.passages
        top.proven &= further.proven
    return top


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
    bounds. What is left is scored from the highest bound down, until no bound reaches the floor.
    """
    seeds = SEEDS + 4 * k
    if len(stored) <= max(SCAN_LIMIT, seeds):
        return _score_all(query, stored, TopK(k, floor, stored.documents))
    bounds = loose_bounds(query.bounds, stored.quantized)
    if stored.excluded is not None:
        bounds[stored.excluded] = -np.inf
    top = TopK(k, floor, stored.documents)
    rows = highest(bounds, seeds, stored.documents)
    top.add(rows, query.score(stored.vectors(rows)))
    bounds[rows] = -np.inf
    rows = np.flatnonzero(bounds >= max(top.floor, LOWEST))
    bounds = bounds[rows]
    if len(rows) > MANY and not _tight_bounds_pay(query.bounds, stored, rows, top.floor):
        return _score_all(query, stored, TopK(k, top.floor, stored.documents))
    if len(rows) > FEW:
        bounds = query.bounds.tight(stored.quantized, rows)
        rows, bounds = rows[bounds >= top.floor], bounds[bounds >= top.floor]
    return score_down(top, rows, bounds, lambda chosen: query.score(stored.vectors(chosen)))


def score_down(top: TopK, rows: Rows, bounds: Floats, score: Callable[[Rows], Floats]) -> TopK:
    """Scores rows from the highest bound down, until no bound reaches the floor."""
    order = np.argsort(-bounds)
    for start in range(0, len(rows), CHUNK):
        chunk = order[start : start + CHUNK]
        chunk = chunk[bounds[chunk] >= top.floor]
        if not len(chunk):
            break
        top.add(rows[chunk], score(rows[chunk]))
    return top


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


def _score_all(query: Query, stored: StoredVectors, top: TopK) -> TopK:
    for start in range(0, len(stored), BLOCK):
        stop = min(start + BLOCK, len(stored))
        scores = query.score(stored.vectors(slice(start, stop)))
        rows = np.flatnonzero(scores >= max(top.floor, LOWEST)) + start
        if stored.excluded is not None:
            rows = rows[~stored.excluded[rows]]
        top.add(rows, scores[rows - start])
    return top


def _tight_bounds_pay(bounds: Bounds, stored: StoredVectors, rows: Rows, floor: float) -> bool:
    """Returns True if tight bounds, and scores of the share that they leave of a sample, cost less than all scores."""
    sample = rows[:: len(rows) // SAMPLE_SIZE]
    share = float((bounds.tight(stored.quantized, sample) >= floor).mean())
    vectors, directions = bounds.vectors[..., 0].size, len(bounds.span.directions.steps)
    # Both sides count products of one vector with one candidate.
    return len(rows) * (INTEGER_COST * directions + share * vectors) <= len(stored) * vectors


def loose_bounds(bounds: Bounds, candidates: QuantizedVectors) -> Floats:
    """Computes the loose bounds of all rows with as many threads as torch uses."""
    result = np.empty(len(candidates), np.float32)

    def fill(start: int) -> None:
        stop = min(start + BLOCK, len(candidates))
        result[start:stop] = bounds.loose(candidates, start, stop)

    starts, threads = range(0, len(candidates), BLOCK), torch.get_num_threads()
    run = map if len(starts) < 4 or threads == 1 else _threads(threads).map
    list(run(fill, starts))
    return result


@cache
def _threads(count: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(count, "twofold-search")


os.register_at_fork(after_in_child=_threads.cache_clear)  # threads do not live on in a forked process


def highest(values: Floats, count: int, documents: Rows | None = None) -> Rows:
    """Returns the rows of about the `count` highest values, and of the best of as many documents, without −inf."""
    rows: Rows = np.flatnonzero(values >= _least(values, count))[: 2 * count]
    if documents is None or not len(values):
        return rows
    first = np.flatnonzero(np.diff(documents, prepend=-1))
    best = np.maximum.reduceat(values, first)
    of_row = np.repeat(best, np.diff(first, append=len(values)))
    return np.union1d(rows, np.flatnonzero((values == of_row) & (of_row >= _least(best, count))))


def _least(values: Floats, count: int) -> float:
    """Returns the least of the `count` highest values that are not −inf."""
    place = max(len(values) - count, 0)
    return max(float(np.partition(values, place)[place]), LOWEST) if len(values) else LOWEST


def ranked_hits(top: TopK, entries: Mapping[int, Entry], k: int) -> list[Hit]:
    """Returns the best k hits; among ties the smaller id comes first, numbers before texts."""
    order = np.argsort(-top.scores, kind="stable")
    ranked: list[tuple[np.float32, Entry, float]] = []
    best = np.float32(0)
    for score, key in zip(top.scores[order], top.keys[order].tolist(), strict=True):
        # A tie is one with the best of its group. Ties with a neighbor could form a chain without end.
        if not ranked or best - score > TIE_TOLERANCE * (1 + abs(best)):
            best = score
        ranked.append((best, entries[key], float(score)))
    ranked.sort(key=lambda hit: (-hit[0], isinstance(hit[1].id, str), hit[1].id))
    return [_hit(entry, score, top.passages.get(entry.key)) for _, entry, score in ranked[:k]]


def _hit(entry: Entry, score: float, best: tuple[int, Span] | None) -> Hit:
    fields = json.loads(entry.fields) if entry.fields else {}
    if best is None:
        return Hit(entry.text, score, entry.id, fields)
    number, span = best
    return Hit(span.passage(entry.text), score, entry.id, fields, Passage(number, span.start, span.stop))
