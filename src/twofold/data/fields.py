"""A column of texts as token ids: its tokenizer, its length limit, and what happens beyond it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from twofold.data.files import Row
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.types import Vocabulary

TooLong = Literal["cut", "refuse"]


class TooLongError(TwofoldError):
    """A text that is longer than the limit where that is refused."""


@dataclass(frozen=True)
class Encoded:
    """The ids of some texts, and how many texts lost a part."""

    ids: list[list[int]]
    cut: int


class Field(Protocol):
    """What a cache asks of a column: numbers for each row, their type, and what they depend on."""

    @property
    def dtype(self) -> str: ...

    def settings(self) -> list[Any]: ...

    def encode(self, rows: Sequence[Row]) -> Encoded: ...


@dataclass(frozen=True)
class TextField:
    """Reads one column."""

    column: str
    tokenizer: TextTokenizer
    limit: int
    too_long: TooLong = "cut"

    @property
    def vocabulary(self) -> Vocabulary:
        tokenizer = self.tokenizer
        return Vocabulary(len(tokenizer), self.limit, tokenizer.pad, tokenizer.unknown, tokenizer.start, tokenizer.end)

    @property
    def dtype(self) -> str:
        return "uint16" if len(self.tokenizer) <= 1 << 16 else "uint32"

    def settings(self) -> list[Any]:
        return [self.column, self.limit, self.too_long, self.tokenizer.fingerprint()]

    def encode(self, rows: Sequence[Row]) -> Encoded:
        """The ids of this column in each row, the turns of a dialogue joined by a separator."""
        texts = [row.text(self.column) for row in rows]
        turns = [[text] if isinstance(text, str) else text for text in texts]
        flat = iter(self.tokenizer.encode([turn for row in turns for turn in row]))
        ids, cut = [], 0
        for row, row_turns in zip(rows, turns, strict=True):
            joined = next(flat)
            for _ in row_turns[1:]:
                joined = [*joined, self.tokenizer.separator, *next(flat)]
            if len(joined) > self.limit:
                if self.too_long == "refuse":
                    raise TooLongError(
                        f"{row.place}: '{self.column}' has {len(joined)} tokens, the limit is {self.limit}; "
                        "shorten it, raise the limit, or set data.too_long=cut"
                    )
                joined, cut = joined[: self.limit], cut + 1
            if not joined:
                raise TwofoldError(f"{row.place}: '{self.column}' has nothing to read but blanks or control characters")
            ids.append(joined)
        return Encoded(ids, cut)

    def decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(ids)
