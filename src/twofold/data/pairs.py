"""Two texts, read as one or each by itself: a premise and a hypothesis, two sentences, a context and a reply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twofold.data.batches import make_batch, make_joined_batch
from twofold.data.cache import Cache, Encoded, Field
from twofold.data.fields import SOURCE, TextField, TooLongError
from twofold.data.files import Row
from twofold.data.tokenizer import Frame, Ids
from twofold.errors import TwofoldError
from twofold.types import Batch, Vocabulary

SECOND = "second"
"""The cache's column of the second text."""


@dataclass(frozen=True)
class TwoTexts:
    """Two columns, and how their texts are given."""

    first: TextField
    second: TextField

    @property
    def column(self) -> str:
        return f"{self.first.column} and {self.second.column}"

    @property
    def vocabulary(self) -> Vocabulary:
        return self.first.vocabulary

    def cached(self, cache: Cache, row: int) -> tuple[Ids, Ids]:
        return cache.columns[SOURCE].row(row), cache.columns[SECOND].row(row)

    def given(self, value: Any, place: str = "") -> Row:
        """Two texts, or one with a tab between them."""
        both = value.split("\t") if isinstance(value, str) else value
        if not isinstance(both, list | tuple) or len(both) != 2:
            raise TwofoldError(f"{place}: give {self.column}, two texts with a tab between them")
        return Row(place, {self.first.column: both[0], self.second.column: both[1]})

    def taken(self, row: Row) -> tuple[Any, Any]:
        return row.text(self.first.column), row.text(self.second.column)


@dataclass(frozen=True)
class ApartField(TwoTexts):
    """Each text is read by itself, within a limit and a frame of its own."""

    def columns(self) -> dict[str, Field]:
        return {SOURCE: self.first, SECOND: self.second}

    def items(self, rows: Sequence[Row]) -> Encoded:
        first, second = self.first.encode(rows), self.second.encode(rows)
        return Encoded(list(zip(first.ids, second.ids, strict=True)), first.cut + second.cut)

    def lengths(self, cache: Cache) -> NDArray[np.int64]:
        both: NDArray[np.int64] = cache.columns[SOURCE].lengths + cache.columns[SECOND].lengths
        return both

    def length(self, item: tuple[Ids, Ids]) -> int:
        return len(item[0]) + len(item[1])

    def batch(self, items: Sequence[tuple[Ids, Ids]], progress: float = 0.0) -> Batch:
        first, second = (make_batch(side, self.vocabulary, progress=progress) for side in zip(*items, strict=True))
        return replace(first, second=second)


@dataclass(frozen=True)
class PairField(TwoTexts):
    """Both texts are read as one; what is too long for both is taken from the longer one."""

    frame: Frame

    def columns(self) -> dict[str, Field]:
        return {SOURCE: self.first, SECOND: SecondField(self)}

    def items(self, rows: Sequence[Row]) -> Encoded:
        """The ids of both texts; they are cut when a batch is made, and counted or refused here."""
        pairs = list(zip(self.first.encode(rows).ids, self.second.encode(rows).ids, strict=True))
        cut, room = 0, self._room()
        for row, (one, other) in zip(rows, pairs, strict=True):
            if len(one) + len(other) > room:
                if self.first.too_long == "refuse":
                    raise TooLongError(
                        f"{row.place}: {self.column} have {len(one) + len(other)} tokens, the limit is {room}; "
                        "shorten them, raise the limit, or set data.too_long=cut"
                    )
                cut += 1
        return Encoded(pairs, cut)

    def lengths(self, cache: Cache) -> NDArray[np.int64]:
        both: NDArray[np.int64] = cache.columns[SOURCE].lengths + cache.columns[SECOND].lengths
        return np.minimum(both, self._room()) + self.first.limit - self._room()

    def length(self, item: tuple[Ids, Ids]) -> int:
        return min(len(item[0]) + len(item[1]), self._room()) + self.first.limit - self._room()

    def batch(self, items: Sequence[tuple[Ids, Ids]], progress: float = 0.0) -> Batch:
        return make_joined_batch([self.frame.joining(*self._fitted(*one)) for one in items], self.vocabulary, progress)

    def _room(self) -> int:
        return self.first.limit - len(self.frame) - len(self.frame.between)

    def _fitted(self, first: Ids, second: Ids) -> tuple[Ids, Ids]:
        """Both within the limit."""
        room = self._room()
        kept = min(len(first), max(room - len(second), (room + 1) // 2))
        return first[len(first) - kept :] if self.first.keep_tail else first[:kept], second[: room - kept]


@dataclass(frozen=True)
class SecondField:
    """The second text of a pair, with which it is seen whether both are too long."""

    pair: PairField

    @property
    def column(self) -> str:
        return self.pair.column

    @property
    def dtype(self) -> str:
        return self.pair.second.dtype

    def settings(self) -> list[Any]:
        frame = self.pair.frame
        both = [*self.pair.first.settings(), *self.pair.second.settings()]
        return [SECOND, *both, frame.before, frame.between, frame.after]

    def encode(self, rows: Sequence[Row]) -> Encoded:
        found = self.pair.items(rows)
        return Encoded([second for _, second in found.ids], found.cut)
