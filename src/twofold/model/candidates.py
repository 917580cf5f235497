"""What a ranker chooses from: candidates with what is kept of them, the best of their scores, and cascades."""

from __future__ import annotations

import operator
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from twofold.data.candidates import Text, as_context
from twofold.data.tokenizer import Ids
from twofold.decoders import Vectors
from twofold.errors import TwofoldError, as_list, check_text
from twofold.inputs import Input
from twofold.results import Hits
from twofold.results.shown import short

if TYPE_CHECKING:
    from twofold.model.ranker import Ranker


@dataclass(frozen=True)
class Candidates:
    """Texts to choose from, with what a ranker keeps of them."""

    texts: Sequence[str]
    """The texts themselves, or the names of images."""
    ids: Sequence[Any]
    vectors: Vectors | None
    """None for a cross-encoder that adds to no other's score: it keeps nothing."""

    def __len__(self) -> int:
        return len(self.texts)

    def __repr__(self) -> str:
        kept = "no vectors" if self.vectors is None else f"vectors {tuple(self.vectors.vectors.shape)}"
        return f"Candidates({len(self):,} texts, {kept}; the first is {short(next(iter(self.texts), None))})"

    @cached_property
    def first(self) -> np.ndarray[Any, Any]:
        """For each candidate the number of the first one of the same text."""
        seen: dict[str, int] = {}
        return np.array([seen.setdefault(text, number) for number, text in enumerate(self.texts)])


def cascade(
    first: Callable[[int], Hits], among: int, then: Sequence[tuple[Ranker, int]], context: Text, k: int = 10
) -> Hits:
    """The best k by the last ranker: a quick first stage chooses some candidates, more exact ones put them in order.

    first: gives the best so many of `among` candidates
    then: rankers, each with how many of the stage before it are seen
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
    kept = [replace(hit, fields=fields[hit.id]) for hit in hits]
    return Hits(kept, exact, (time.perf_counter() - start) * 1000)


def as_pairs(pairs: Any) -> list[tuple[Text, str]]:
    """Pairs of a context and a candidate, at least one."""
    given = []
    for number, pair in enumerate(as_list(pairs, "pairs")):
        if isinstance(pair, str) or not isinstance(pair, Sequence) or len(pair) != 2:
            raise TwofoldError(f"pairs[{number}]: not a pair; give (context, candidate)")
        check_text(pair[1], f"pairs[{number}][1]")
        given.append((as_context(pair[0], f"pairs[{number}][0]"), pair[1]))
    if not given:
        raise TwofoldError("pairs: empty; give at least one pair of context and candidate")
    return given


def as_k(k: Any) -> int:
    """How many are wanted: a whole number, at least 1."""
    try:
        wanted = operator.index(k)
    except TypeError:
        raise TwofoldError(f"k must be a whole number, not {k!r:.40}") from None
    if isinstance(k, bool) or wanted < 1:
        raise TwofoldError(f"k must be at least 1, not {k}")
    return wanted


def different(texts: Sequence[Text]) -> tuple[list[Text], list[int]]:
    """Each text once, and for each of the given ones its number among them."""
    numbers: dict[str | tuple[str, ...], int] = {}
    keys = [text if isinstance(text, str) else tuple(text) for text in texts]
    places = [numbers.setdefault(key, len(numbers)) for key in keys]
    return [key if isinstance(key, str) else list(key) for key in numbers], places


def encoded_once(side: Input[Any], texts: Sequence[Text]) -> list[Ids]:
    """The ids of each text; one that comes again, as a context does with every candidate, is cut into tokens once."""
    once, places = different(texts)
    ids = side.items_of(once)
    return [ids[place] for place in places]


def best(scores: np.ndarray[Any, Any], k: int) -> list[int]:
    """The numbers of the k largest scores, best first, equal ones in their order."""
    place = max(len(scores) - k, 0)
    numbers = np.flatnonzero(scores >= np.partition(scores, place)[place])
    order: list[int] = numbers[np.argsort(-scores[numbers], kind="stable")][:k].tolist()
    return order
