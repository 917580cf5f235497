"""Turns the result of a search into hits: best first, ties in the order of their ids."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np

from twofold.index.catalog_tables import Entry
from twofold.index.search import TIE_TOLERANCE, TopK
from twofold.results import Hit


def ranked_hits(top: TopK, entries: Mapping[int, Entry], k: int) -> list[Hit]:
    """The best k; among ties the smaller id comes first, numbers before texts."""
    order = np.argsort(-top.scores, kind="stable")
    ranked: list[tuple[np.float32, Entry, float]] = []
    best = np.float32(0)
    for score, key in zip(top.scores[order], top.keys[order].tolist(), strict=True):
        # A tie is one with the best of its group. Ties with a neighbor could form a chain without end.
        if not ranked or best - score > TIE_TOLERANCE * (1 + abs(best)):
            best = score
        ranked.append((best, entries[key], float(score)))
    ranked.sort(key=lambda hit: (-hit[0], isinstance(hit[1].id, str), hit[1].id))
    return [
        Hit(entry.text, score, entry.id, json.loads(entry.fields) if entry.fields else {})
        for _, entry, score in ranked[:k]
    ]
