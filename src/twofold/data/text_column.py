"""A column of texts as token ids: its tokenizer, its length limit, and what happens beyond it."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from twofold.data.cache import Encoded
from twofold.data.files import Row
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.types import Vocabulary

TooLong = Literal["cut", "refuse"]
Keep = Literal["head", "tail", "turns"]
"""Which end stays of a text that is too long: its beginning, its end, or with `turns` the end of several turns and the
beginning of a single text."""
LONGEST = 1_000_000
"""The most tokens that a limit may allow: no memory could hold more."""


class TooLongError(TwofoldError):
    """A text that is longer than the limit where that is refused."""


def check_limit(name: str, limit: int, least: int = 1) -> None:
    """Refuse a limit of tokens that makes no sense."""
    if limit < least:
        raise ValueError(f"{name} must be at least {least}, not {limit}")
    if limit > LONGEST:
        raise ValueError(f"{name} must be at most {LONGEST:,}, not {limit}")


def is_readable(text: str) -> bool:
    """Whether anything in a text is neither a blank nor a control or format character."""
    return any(not letter.isspace() and unicodedata.category(letter) not in ("Cc", "Cf") for letter in text)


def vocabulary_of(tokenizer: TextTokenizer, limit: int) -> Vocabulary:
    """What a part must know of a tokenizer's tokens."""
    return Vocabulary(len(tokenizer), limit, tokenizer.pad, tokenizer.unknown, tokenizer.start, tokenizer.end)


@dataclass(frozen=True)
class TextColumn:
    """Reads one column: a text, or the turns of a dialogue, which are joined by a separator."""

    column: str
    tokenizer: TextTokenizer
    limit: int
    """The most tokens, without special ones around them."""
    too_long: TooLong = "cut"
    keep: Keep = "head"
    prompt: str = ""
    """What stands before each text, or before the first turn, as if it were its beginning."""
    separator: str | None = None
    """What stands between turns: a text, or the tokenizer's own separator."""
    preface: str | None = None
    """A column whose texts stand before the turns, such as a persona."""
    place: str = "input"
    """The part of a recipe that these settings stand in, for messages."""

    @property
    def dtype(self) -> str:
        return "uint16" if len(self.tokenizer) <= 1 << 16 else "uint32"

    def settings(self) -> list[Any]:
        limits = [self.column, self.limit, self.too_long, self.keep]
        return ["text", *limits, self.prompt, self.separator, self.preface, self.tokenizer.fingerprint()]

    def encode(self, rows: Sequence[Row]) -> Encoded:
        """The ids of this column in each row; one with nothing to read is an error."""
        texts = [self.text(row) for row in rows]
        encoded = self.encode_texts(texts, [row.place for row in rows])
        for row, text, ids in zip(rows, texts, encoded.ids, strict=True):
            if not len(ids) or not any(map(is_readable, [text] if isinstance(text, str) else text)):
                raise TwofoldError(f"{row.place}: '{self.column}' has nothing to read but blanks or control characters")
        return encoded

    def text(self, row: Row) -> str | list[str]:
        """The text of a row, or the turns of its dialogue, the preface before them."""
        text = row.text(self.column)
        if self.preface is None or not row.values.get(self.preface):
            return text
        before = row.text(self.preface)
        return [turn for turns in (before, text) for turn in ([turns] if isinstance(turns, str) else turns)]

    def encode_texts(self, texts: Sequence[str | list[str]], places: Sequence[str] | None = None) -> Encoded:
        """The ids of each text or dialogue; an empty one has none."""
        turns = [[text] if isinstance(text, str) else text for text in texts]
        begun = [[f"{self.prompt}{first}", *others] for first, *others in (row or [""] for row in turns)]
        flat = iter(self.tokenizer.encode([turn for row in begun for turn in row]))
        ids, cut, prompt = [], 0, self._prompt
        for number, row in enumerate(begun):
            joined = list(next(flat))
            for _ in row[1:]:
                joined += self._separator
                joined += next(flat)
            if len(joined) > self.limit:
                if self.too_long == "refuse":
                    raise TooLongError(
                        f"{places[number] if places else f'text {number}'}: '{self.column}' has {len(joined)} tokens, "
                        f"the limit is {self.limit}; shorten it, raise "
                        f"{self.place}.max_tokens, or set {self.place}.too_long=cut"
                    )
                head = self.limit if self._keeps_head(texts[number]) else prompt
                joined, cut = joined[:head] + joined[len(joined) - self.limit + head :], cut + 1
            ids.append(joined)
        return Encoded(ids, cut)

    def decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(ids)

    def _keeps_head(self, text: str | list[str]) -> bool:
        return self.keep == "head" or (self.keep == "turns" and (isinstance(text, str) or len(text) < 2))

    @cached_property
    def _prompt(self) -> int:
        """How many tokens of a text are those of its prompt."""
        count = len(self.tokenizer.encode([self.prompt.rstrip()])[0]) if self.prompt else 0
        if self.limit - count < 1:
            raise TwofoldError(f"a limit of {self.limit} tokens leaves no room for '{self.column}' itself; raise it")
        return count

    @cached_property
    def _separator(self) -> list[int]:
        if self.separator is None:
            return [self.tokenizer.separator]
        return self.tokenizer.encode([self.separator])[0]
