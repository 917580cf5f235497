"""Explains a search: the bounds of all candidates, the floor, and what was scored exactly; together the certificate."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from twofold.index.database import Entry
from twofold.index.quantized import Floats, Rows
from twofold.index.search import Query, StoredVectors, exact_top_k, loose_bounds, search
from twofold.index.snapshot import MaskedShard
from twofold.index.top_k import TopK, ranked_hits
from twofold.results import Hit
from twofold.results.explanation import BoundCurve, ScoredCandidate, SearchExplanation

HEAD, MOST_POINTS = 100, 200
"""Numbers of points of a curve: of the highest bounds, each of them, and of the whole curve."""


@dataclass(frozen=True)
class RecordedShard(MaskedShard):
    """Shard that keeps which rows a search has scored."""

    rows: list[Rows] = field(default_factory=list)

    def _bounded(self, query: Query, k: int, floor: float) -> TopK:
        def vectors(rows: Rows | slice) -> Floats:
            self.rows.append(np.arange(len(self.shard))[rows])
            return self.shard.vectors(rows)

        stored = StoredVectors(self.shard.quantized, vectors, self.excluded, None, self.shard.documents)
        return exact_top_k(query, stored, k, floor)

    @property
    def present(self) -> Rows:
        """Rows that are candidates."""
        return np.arange(len(self.shard)) if self.excluded is None else np.flatnonzero(~self.excluded)

    @property
    def scored(self) -> NDArray[np.bool_]:
        """(present rows,): true for those that were scored; a scan of several vectors scores all."""
        if self.shard.places is not None:
            return np.ones(len(self.present), bool)
        return np.isin(self.present, np.concatenate([np.empty(0, np.int64), *self.rows]))

    def bounds(self, query: Query, floor: float) -> Floats | None:
        """Upper bounds of the scores of `present`: loose ones, and tight ones where these reach the floor."""
        if self.shard.places is not None:
            return None
        bounds = loose_bounds(query.bounds, self.shard.quantized)[self.present]
        near = np.flatnonzero(bounds >= floor)
        if len(near):
            tight = query.bounds.tight(self.shard.quantized, self.present[near])
            bounds[near] = np.minimum(bounds[near], tight)
        return bounds


def explained(
    places: Sequence[MaskedShard], query: Query, k: int, entries: Callable[[Sequence[int]], Mapping[int, Entry]]
) -> tuple[list[Hit], SearchExplanation]:
    """Searches shards; returns the hits, and what proves them.

    entries: reads candidates by their keys
    """
    shards = [RecordedShard(place.shard, place.excluded) for place in places]
    (top,) = search(shards, [query], k)
    hits = ranked_hits(top, entries(top.keys.tolist()), k)
    floor = min((hit.score for hit in hits), default=-np.inf)
    bounds = [shard.bounds(query, floor) for shard in shards]
    known = [values for values in bounds if values is not None]
    scored = [shard.scored for shard in shards]
    curve = gap = None
    if known and len(known) == len(shards):
        whole = np.concatenate(known)
        left = whole[~np.concatenate(scored)]
        curve, gap = _curve(whole), floor - float(left.max()) if len(left) else None
    candidates, exact = sum(map(len, scored)), sum(int(mask.sum()) for mask in scored)
    best = _scored(shards, query, bounds, entries) or [ScoredCandidate(hit.id, None, hit.score) for hit in hits]
    return hits, SearchExplanation(candidates, exact, floor, gap, curve, tuple(best))


def _scored(
    shards: Sequence[RecordedShard],
    query: Query,
    bounds: Sequence[Floats | None],
    entries: Callable[[Sequence[int]], Mapping[int, Entry]],
) -> list[ScoredCandidate]:
    """Candidates that were scored exactly: those of the highest bounds, best first."""
    best: list[tuple[float, float, int]] = []
    for shard, known in zip(shards, bounds, strict=True):
        if known is None:
            continue
        places = np.flatnonzero(shard.scored)
        places = places[np.argsort(-known[places], kind="stable")[:MOST_POINTS]]
        rows = shard.present[places]
        scores = query.score(shard.shard.vectors(rows)) if len(rows) else np.empty(0, np.float32)
        best += zip(scores.tolist(), known[places].tolist(), shard.shard.keys[rows].tolist(), strict=True)
    best = sorted(best, reverse=True)[:MOST_POINTS]
    by_key = entries(sorted({key for _, _, key in best}))
    return [ScoredCandidate(by_key[key].id, bound, score) for score, bound, key in best]


def _curve(bounds: Floats) -> BoundCurve:
    """Bounds from the highest down: the head whole, the rest at places that grow evenly on a logarithmic scale."""
    ordered = np.sort(bounds)[::-1]
    count = len(ordered)
    places = np.arange(min(count, HEAD))
    if count > HEAD:
        places = np.union1d(places, np.geomspace(HEAD, count - 1, MOST_POINTS - HEAD).round().astype(np.int64))
    return BoundCurve((places + 1).astype(np.float64), places / max(count - 1, 1), ordered[places])
