"""Best candidates so far, and what ranks them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

import numpy as np

from twofold.data.passages import Span
from twofold.index.database import Entry
from twofold.index.quantized import Floats, Rows
from twofold.results import Hit, Passage

CHUNK, LARGEST_CHUNK = 256, 4096
"""Numbers of candidates that are scored at a time after the seeds: at first, and at most."""
GROUPS = 8
"""Groups of values for each of the highest: these seldom share a group, and maxima cost less than an order."""
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


def score_down(top: TopK, rows: Rows, bounds: Floats, score: Callable[[Rows], Floats]) -> TopK:
    """Scores rows from the highest bound down, until no bound reaches the floor."""
    chunk = CHUNK
    while True:
        left = bounds >= max(top.floor, LOWEST)
        rows, bounds = rows[left], bounds[left]
        if not len(rows):
            return top
        best = np.argpartition(-bounds, chunk)[:chunk] if chunk < len(rows) else np.arange(len(rows))
        top.add(rows[best], score(rows[best]))
        bounds[best] = -np.inf
        chunk = min(2 * chunk, LARGEST_CHUNK)


def highest(values: Floats, count: int, documents: Rows | None = None) -> Rows:
    """Returns the rows of about the `count` highest values, and of the best of as many documents, without −inf."""
    rows: Rows = np.flatnonzero(values >= _about_least(values, count))
    if len(rows) > 2 * count:
        rows = np.flatnonzero(values >= _least(values, count))[: 2 * count]
    if documents is None or not len(values):
        return rows
    first = np.flatnonzero(np.diff(documents, prepend=-1))
    best = np.maximum.reduceat(values, first)
    of_row = np.repeat(best, np.diff(first, append=len(values)))
    return np.union1d(rows, np.flatnonzero((values == of_row) & (of_row >= _least(best, count))))


def _about_least(values: Floats, count: int) -> float:
    """Returns a number that about the `count` highest values reach: the same of the maxima of many groups of values."""
    groups = GROUPS * count
    whole = len(values) - len(values) % groups
    if whole <= groups:
        return _least(values, count)
    maxima = values[:whole].reshape(-1, groups).max(0)
    return _least(np.concatenate([maxima, values[whole:]]), count)


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
