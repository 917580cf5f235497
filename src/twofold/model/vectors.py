"""Vectors of contexts and candidates, encoded in batches of similar length; equal items once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from twofold.data.batches import CHUNK_TOKENS
from twofold.decoders import Vectors
from twofold.errors import NOT_NUMBERS, TwofoldError
from twofold.model.representation import PAIRS, Side, padded
from twofold.progress import Report

if TYPE_CHECKING:
    from twofold.model.ranker import Ranker


@dataclass(frozen=True)
class Batches:
    """Different items of a side, and the batches of similar length in which they are encoded."""

    items: Sequence[Any]
    """Items, each once."""
    places: Sequence[int]
    """Place among these of each given item."""
    batches: Sequence[list[int]]
    """Places of the items of each batch."""

    @classmethod
    def of(cls, side: Side, items: Sequence[Any]) -> Batches:
        """Plans the batches of the given items."""
        first, places = _first_of_equal(items)
        different = [items[number] for number in first]
        return cls(different, places, list(side.input.groups(different, CHUNK_TOKENS)))

    def batch(self, numbers: Sequence[int]) -> list[Any]:
        """Items of a batch."""
        return [self.items[number] for number in numbers]


@torch.no_grad()
def keep_items(model: Ranker, what: str, items: Sequence[Any], report: Report | None = None) -> Vectors:
    """Encodes the items of one side, in batches of similar length; equal items are encoded once."""
    if not len(items):
        raise TwofoldError("there is nothing to read; give at least one text")
    side, done = model.side(what), 0
    plan = Batches.of(side, items)
    count, times = len(plan.items), np.bincount(plan.places)
    vectors: Tensor | None = None
    mask: Tensor | None = None
    with model.evaluating(), model.autocast():
        for numbers in plan.batches:
            kept = side.represent(plan.batch(numbers), None, model.device)
            if vectors is None:
                vectors = kept.vectors.float().new_zeros(count, *kept.vectors.shape[1:])
                mask = None if kept.mask is None else kept.mask.new_zeros(count, kept.mask.shape[1])
            if mask is None:
                vectors[numbers] = kept.vectors.float()
            else:
                # The longest texts are encoded first, but a later batch of images may have more vectors.
                longest = max(mask.shape[1], kept.vectors.shape[1])
                wide, kept = padded(Vectors(vectors, mask), longest), padded(kept, longest)
                vectors, mask = wide.vectors, wide.mask
                assert mask is not None
                assert kept.mask is not None
                vectors[numbers], mask[numbers] = kept.vectors.float(), kept.mask
            done += int(times[numbers].sum())
            if report:
                report(done)
    assert vectors is not None
    # Scores of pairs are checked after the score of the comparison is added.
    whole = Vectors(vectors if what == PAIRS else finite("vectors", vectors), mask)
    return whole if count == len(items) else whole[plan.places]


def _first_of_equal(items: Sequence[Any]) -> tuple[list[int], list[int]]:
    """Returns the position of the first item of each group of equal items, and the group of each item."""
    groups: dict[Any, int] = {}
    first: list[int] = []
    places = []
    for number, item in enumerate(items):
        place = groups.setdefault(_item_key(item), len(groups))
        if place == len(first):
            first.append(number)
        places.append(place)
    return first, places


def _item_key(item: Any) -> Any:
    """Returns a value that is equal for equal items: token ids, pairs of them, and files by their name."""
    if isinstance(item, np.ndarray):
        return item.tobytes()
    key = tuple(item) if isinstance(item, list | tuple) else item
    try:
        hash(key)
    except TypeError:  # a pair of token ids, or an image or a sound in memory
        return tuple(map(_item_key, key)) if isinstance(key, tuple) else id(item)
    return key


def finite(what: str, values: Tensor) -> Tensor:
    """Returns the values; refuses NaN and infinities."""
    if not values.isfinite().all():
        raise TwofoldError(f"the {what} are {NOT_NUMBERS}")
    return values
