"""What a ranker chooses from: candidates with what is kept of them, and the best of their scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

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
