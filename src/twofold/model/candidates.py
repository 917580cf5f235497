"""What a ranker chooses from: candidates with what is kept of them, and the best of their scores."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from twofold.errors import TwofoldError, as_list, check_text, kind_of_value

Text = str | list[str]
"""A text, or the turns of a dialogue, oldest first."""


@dataclass(frozen=True)
class Candidates:
    """Texts to choose from, with what a ranker keeps of them."""

    texts: Sequence[str]
    ids: Sequence[Any]
    vectors: Tensor | None
    """(candidates, width); none for a cross-encoder that adds to no other's score: it keeps nothing."""

    def __len__(self) -> int:
        return len(self.texts)

    @cached_property
    def first(self) -> np.ndarray[Any, Any]:
        """For each candidate the number of the first one of the same text."""
        seen: dict[str, int] = {}
        return np.array([seen.setdefault(text, number) for number, text in enumerate(self.texts)])


def as_context(context: Any, name: str) -> Text:
    """A text, or the list of turns of a dialogue."""
    if isinstance(context, str):
        check_text(context, name)
        return context
    if not isinstance(context, Iterable):
        raise TwofoldError(f"{name}: {kind_of_value(context)}; give a text, or a list of turns")
    turns = as_list(context, name)
    for number, turn in enumerate(turns, start=1):
        check_text(turn, f"{name}: turn {number}")
    return turns


def as_contexts(contexts: Any) -> list[Text]:
    """Contexts that are read together; a text alone is refused."""
    return [as_context(one, f"contexts[{number}]") for number, one in enumerate(as_list(contexts, "contexts"))]


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


def best(scores: np.ndarray[Any, Any], k: int) -> list[int]:
    """The numbers of the k largest scores, best first, equal ones in their order."""
    if k < len(scores):
        least = np.partition(scores, len(scores) - k)[len(scores) - k]
        numbers = np.flatnonzero(scores >= least)
    else:
        numbers = np.arange(len(scores))
    order = np.lexsort((numbers, -scores[numbers]))
    found: list[int] = numbers[order][:k].tolist()
    return found
