"""A cascade: a quick ranker chooses some candidates, a more exact one puts them in order."""

from __future__ import annotations

import time
from collections.abc import Sequence

from twofold.model.ranker import Candidates, Ranker, Text
from twofold.types import Hits


def cascade(
    first: Ranker, then: Sequence[tuple[Ranker, int]], context: Text, candidates: Candidates, k: int = 10
) -> Hits:
    """The best k by the last ranker, each of which sees the best few of the one before it."""
    start = time.perf_counter()
    depths = [*(depth for _, depth in then), k]
    hits = first.rank(context, candidates, depths[0])
    for (ranker, _), depth in zip(then, depths[1:], strict=True):
        hits = ranker.rank(context, ranker.prepare([hit.text for hit in hits], [hit.id for hit in hits]), depth)
    # What an earlier stage left out was never seen by the last: nothing is proven unless all of them saw all.
    exact = all(depth >= len(candidates) for depth in depths[:-1])
    return Hits(hits, exact, (time.perf_counter() - start) * 1000)
