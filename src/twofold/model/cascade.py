"""A cascade: a quick first stage chooses some candidates, more exact rankers put them in order."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence

from twofold.model.candidates import Text
from twofold.model.ranker import Ranker
from twofold.results import Hits


def cascade(
    first: Callable[[int], Hits], among: int, then: Sequence[tuple[Ranker, int]], context: Text, k: int = 10
) -> Hits:
    """The best k by the last ranker, each of which sees the best few of the one before it.

    first: gives the best so many of `among` candidates
    """
    start = time.perf_counter()
    depths = [*(depth for _, depth in then), k]
    hits = first(depths[0])
    proven = hits.exact
    fields = {hit.id: hit.fields for hit in hits}
    for (ranker, _), depth in zip(then, depths[1:], strict=True):
        if not hits:
            break
        hits = ranker.rank(context, ranker.prepare([hit.text for hit in hits], [hit.id for hit in hits]), depth)
    # What an earlier stage left out was never seen by the last: nothing is proven unless all of them saw all.
    exact = proven and all(depth >= among for depth in depths[:-1])
    kept = [dataclasses.replace(hit, fields=fields[hit.id]) for hit in hits]
    return Hits(kept, exact, (time.perf_counter() - start) * 1000)
