"""A column of texts as token ids: its tokenizer, its length limit, and what happens beyond it."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from twofold.data.batches import make_batch, make_target
from twofold.data.cache import Cache, Encoded, Field
from twofold.data.files import Row
from twofold.data.tokenizer import Frame, TextTokenizer
from twofold.errors import TwofoldError
from twofold.types import Batch, Target, Vocabulary

SOURCE = "source"
"""What is read, among the columns of a cache and the tokenizers of a model."""
TooLong = Literal["cut", "refuse"]


class TooLongError(TwofoldError):
    """A text that is longer than the limit where that is refused."""


class SourceField(Protocol):
    """What a model reads of a row; an item is all of it, as numbers."""

    @property
    def vocabulary(self) -> Vocabulary: ...

    def columns(self) -> dict[str, Field]:
        """What a cache keeps of each row."""
        ...

    def items(self, rows: Sequence[Row]) -> Encoded:
        """An item for each row."""
        ...

    def cached(self, cache: Cache, row: int) -> Any:
        """The same, out of a cache."""
        ...

    def lengths(self, cache: Cache) -> NDArray[np.int64]:
        """For each row how many tokens are read."""
        ...

    def length(self, item: Any) -> int: ...

    def batch(self, items: Sequence[Any], progress: float = 0.0) -> Batch: ...

    def given(self, value: Any, place: str = "") -> Row:
        """What a user gives as a row."""
        ...

    def taken(self, row: Row) -> Any:
        """The same out of a row."""
        ...


class TargetField(Field, Protocol):
    """What a decoder learns to write."""

    counted: ClassVar[bool]
    """Whether its numbers are tokens, which count with those that are read towards the size of a batch."""

    def target(self, rows: Sequence[Any]) -> Target:
        """The numbers of some rows as tensors."""
        ...


def is_readable(text: str) -> bool:
    """Whether anything in a text is neither a blank nor a control or format character."""
    return any(not letter.isspace() and unicodedata.category(letter) not in ("Cc", "Cf") for letter in text)


@dataclass(frozen=True)
class TextField:
    """Reads one column."""

    counted: ClassVar[bool] = True

    column: str
    tokenizer: TextTokenizer
    limit: int
    too_long: TooLong = "cut"
    frame: Frame = field(default_factory=Frame)
    """What stands around each text, within the limit."""
    keep_tail: bool = False
    """Whether of a text that is too long the end stays, as of a dialogue, and not the beginning."""

    @property
    def vocabulary(self) -> Vocabulary:
        tokenizer = self.tokenizer
        return Vocabulary(len(tokenizer), self.limit, tokenizer.pad, tokenizer.unknown, tokenizer.start, tokenizer.end)

    @property
    def dtype(self) -> str:
        return "uint16" if len(self.tokenizer) <= 1 << 16 else "uint32"

    def settings(self) -> list[Any]:
        plain = [self.column, self.limit, self.too_long, self.tokenizer.fingerprint()]
        plain += ["tail"] if self.keep_tail else []
        return [*plain, self.frame.before, self.frame.after] if len(self.frame) else plain

    def encode(self, rows: Sequence[Row]) -> Encoded:
        """The ids of this column in each row, the turns of a dialogue joined by a separator."""
        texts = [row.text(self.column) for row in rows]
        turns = [[text] if isinstance(text, str) else text for text in texts]
        flat = iter(self.tokenizer.encode([turn for row in turns for turn in row]))
        ids, cut = [], 0
        limit = self.limit - len(self.frame)
        for row, row_turns in zip(rows, turns, strict=True):
            joined = next(flat)
            for _ in row_turns[1:]:
                joined = [*joined, self.tokenizer.separator, *next(flat)]
            if len(joined) > limit:
                if self.too_long == "refuse":
                    raise TooLongError(
                        f"{row.place}: '{self.column}' has {len(joined)} tokens, the limit is {limit}; "
                        "shorten it, raise the limit, or set data.too_long=cut"
                    )
                joined, cut = joined[-limit:] if self.keep_tail else joined[:limit], cut + 1
            if not joined or not any(map(is_readable, row_turns)):
                raise TwofoldError(f"{row.place}: '{self.column}' has nothing to read but blanks or control characters")
            ids.append([*self.frame.before, *joined, *self.frame.after])
        return Encoded(ids, cut)

    def decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(ids)

    # --- as what is read ---

    def columns(self) -> dict[str, Field]:
        return {SOURCE: self}

    def items(self, rows: Sequence[Row]) -> Encoded:
        return self.encode(rows)

    def cached(self, cache: Cache, row: int) -> Any:
        return cache.columns[SOURCE].row(row)

    def lengths(self, cache: Cache) -> NDArray[np.int64]:
        return cache.columns[SOURCE].lengths

    def length(self, item: Any) -> int:
        return len(item)

    def batch(self, items: Sequence[Any], progress: float = 0.0) -> Batch:
        return make_batch(items, self.vocabulary, progress=progress)

    def given(self, value: Any, place: str = "") -> Row:
        return Row(place, {self.column: value})

    def taken(self, row: Row) -> Any:
        return row.text(self.column)

    # --- as what is written ---

    def target(self, rows: Sequence[ArrayLike]) -> Target:
        return make_target(rows, self.vocabulary)
