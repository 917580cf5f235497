"""Candidates with their stored vectors, the best of their scores, and cascades."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from twofold.data.candidates import Text, as_context
from twofold.data.tokenizer import Ids
from twofold.data.top_k import first_of_equal
from twofold.decoders import Vectors
from twofold.errors import TwofoldError, as_list, check_text
from twofold.inputs import Input
from twofold.results import Hits
from twofold.results.shown import short

if TYPE_CHECKING:
    from twofold.model.ranker import Ranker


@dataclass(frozen=True)
class Candidates:
    """Candidates to rank, with their vectors."""

    texts: Sequence[str]
    """Texts, or names of images."""
    ids: Sequence[Any]
    vectors: Vectors | None
    """None for a cross-encoder without `compare`, which stores no vectors."""

    def __len__(self) -> int:
        return len(self.texts)

    def __repr__(self) -> str:
        kept = "no vectors" if self.vectors is None else f"vectors {tuple(self.vectors.vectors.shape)}"
        return f"Candidates({len(self):,} texts, {kept}; the first is {short(next(iter(self.texts), None))})"

    @cached_property
    def first(self) -> np.ndarray[Any, Any]:
        """Index of the first candidate with the same text, for each candidate."""
        return first_of_equal(self.texts)


def cascade(
    first: Callable[[int], Hits], among: int, then: Sequence[tuple[Ranker, int]], context: Text, k: int = 10
) -> Hits:
    """Ranks by a cascade: a fast first stage chooses candidates, slower and more exact rankers re-rank them.

    first: returns the given number of best candidates, out of `among`
    then: rankers, each with the number of candidates that it re-ranks
    """
    start = time.perf_counter()
    depths = [*(depth for _, depth in then), k]
    hits = first(depths[0])
    proven = hits.exact and not (then and any(hit.passage for hit in hits))  # the last sees one passage of a document
    stored = {hit.id: hit for hit in hits}
    for (ranker, _), depth in zip(then, depths[1:], strict=True):
        if not hits:
            break
        hits = ranker.rank(context, ranker.prepare([hit.text for hit in hits], [hit.id for hit in hits]), depth)
    # What an earlier stage left out was never seen by the last: nothing is proven unless all of them saw all.
    exact = proven and all(depth >= among for depth in depths[:-1])
    kept = [replace(hit, fields=stored[hit.id].fields, passage=stored[hit.id].passage) for hit in hits]
    return Hits(kept, exact, (time.perf_counter() - start) * 1000)


def as_pairs(pairs: Any) -> list[tuple[Text, str]]:
    """Checks pairs of a context and a candidate; at least one."""
    given = []
    for number, pair in enumerate(as_list(pairs, "pairs")):
        if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
            raise TwofoldError(f"pairs[{number}]: not a pair; give (context, candidate)")
        check_text(pair[1], f"pairs[{number}][1]")
        given.append((as_context(pair[0], f"pairs[{number}][0]"), pair[1]))
    if not given:
        raise TwofoldError("pairs: empty; give at least one pair of context and candidate")
    return given


def different(texts: Sequence[Text]) -> tuple[list[Text], list[int]]:
    """Returns each distinct text once, and for each given text its index among them."""
    numbers: dict[str | tuple[str, ...], int] = {}
    keys = [text if isinstance(text, str) else tuple(text) for text in texts]
    places = [numbers.setdefault(key, len(numbers)) for key in keys]
    return [key if isinstance(key, str) else list(key) for key in numbers], places


def encoded_once(side: Input[Any], texts: Sequence[Text]) -> list[Ids]:
    """Token ids of each text; a repeated text, such as a context with many candidates, is tokenized once."""
    once, places = different(texts)
    ids = side.items_of(once)
    return [ids[place] for place in places]
