"""What columns of rows hold: texts as token ids within a limit, with a denoiser's noise; words; names of classes."""

from __future__ import annotations

import unicodedata
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from reprlib import repr as shown
from textwrap import shorten
from typing import Any, Literal

import numpy as np

from twofold.data.batches import Draw
from twofold.data.cache import Encoded
from twofold.data.files import Row
from twofold.data.tokenizer import Ids, TextTokenizer
from twofold.errors import TwofoldError, did_you_mean
from twofold.types import Classes, Vocabulary

TooLong = Literal["cut", "refuse"]
Keep = Literal["head", "tail", "turns"]
"""Which end stays of a text that is too long: its beginning, its end, or with `turns` the end of several turns and the
beginning of a single text."""
LONGEST = 1_000_000
"""The most tokens that a limit may allow: no memory could hold more."""
UNSEEN = -1
"""In the place of a name that was not seen in training, and of a head that a long sentence lost with its end."""
MOST_NAMES = 20_000
"""Different names that a column may have."""


class TooLongError(TwofoldError):
    """A text that is longer than the limit where that is refused."""


def check_limit(name: str, limit: int, least: int = 1) -> None:
    """Refuse a limit of tokens that makes no sense."""
    if limit < least:
        raise ValueError(f"{name} must be at least {least}, not {limit}")
    if limit > LONGEST:
        raise ValueError(f"{name} must be at most {LONGEST:,}, not {limit}")


def texts_in(row: Row, columns: Iterable[str]) -> list[str]:
    """The texts, or the turns, of some columns."""
    texts = [row.text(column) for column in columns]
    return [turn for text in texts for turn in ([text] if isinstance(text, str) else text)]


def vocabulary_of(tokenizer: TextTokenizer, limit: int) -> Vocabulary:
    """What a part must know of a tokenizer's tokens."""
    symbols = (tokenizer.pad, tokenizer.unknown, tokenizer.start, tokenizer.end)
    return Vocabulary(len(tokenizer), limit, *symbols, pieces=lambda: tokenizer.pieces(range(len(tokenizer))))


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
            if not len(ids) or not any(map(_is_readable, "".join(_turns(text)))):
                raise TwofoldError(f"{row.place}: '{self.column}' has nothing to read but blanks or control characters")
        return encoded

    def text(self, row: Row) -> str | list[str]:
        """The text of a row, or the turns of its dialogue, the preface before them."""
        text = row.text(self.column)
        if self.preface is None or not row.values.get(self.preface):
            return text
        return [*_turns(row.text(self.preface)), *_turns(text)]

    def encode_texts(self, texts: Sequence[str | list[str]], places: Sequence[str] | None = None) -> Encoded:
        """The ids of each text or dialogue; an empty one has none."""
        begun = [[f"{self.prompt}{first}", *others] for first, *others in (_turns(text) or [""] for text in texts)]
        flat = iter(self.tokenizer.encode([turn for row in begun for turn in row]))
        separator = [self.tokenizer.separator] if self.separator is None else self.tokenizer.encode([self.separator])[0]
        ids, cut, prompt = [], 0, self._prompt
        for number, row in enumerate(begun):
            joined = list(next(flat))
            for _ in row[1:]:
                joined += [*separator, *next(flat)]
            if len(joined) > self.limit:
                if self.too_long == "refuse":
                    place = places[number] if places else f"text {number}"
                    remedy = f"shorten it, raise {self.place}.max_tokens, or set {self.place}.too_long=cut"
                    said = f"'{self.column}' has {len(joined)} tokens, the limit is {self.limit}"
                    raise TooLongError(f"{place}: {said}; {remedy}")
                keeps_head = self.keep == "head" or (self.keep == "turns" and len(row) < 2)
                head = self.limit if keeps_head else prompt
                joined, cut = joined[:head] + joined[len(joined) - self.limit + head :], cut + 1
            ids.append(joined)
        return Encoded(ids, cut)

    def decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(ids)

    @cached_property
    def _prompt(self) -> int:
        """How many tokens of a text are those of its prompt."""
        count = len(self.tokenizer.encode([self.prompt.rstrip()])[0]) if self.prompt else 0
        if self.limit - count < 1:
            raise TwofoldError(f"a limit of {self.limit} tokens leaves no room for '{self.column}' itself; raise it")
        return count


def _turns(text: str | list[str]) -> list[str]:
    return [text] if isinstance(text, str) else text


def _is_readable(letter: str) -> bool:
    """Whether a letter is neither a blank nor a control or format character."""
    return not letter.isspace() and unicodedata.category(letter) not in ("Cc", "Cf")


@dataclass(frozen=True)
class Noise:
    """What a denoiser must undo (Lewis et al., 2019)."""

    mask: float = 0.0
    """Share of the tokens that are masked."""
    delete: float = 0.0
    """Share of the tokens that are left out."""
    span: float = 3.0
    """How many tokens are masked in a row, in the mean; all of them are read as one mask."""
    swap: int = 0
    """How far a token may be moved."""

    def __post_init__(self) -> None:
        if not (0 <= self.mask < 1 and 0 <= self.delete < 1 and self.span >= 1 and self.swap >= 0):
            raise ValueError("mask and delete must be at least 0 and below 1, span at least 1, swap at least 0")

    def of(self, ids: Ids, mask: int, draw: Draw) -> list[int]:
        """The same text with its noise; something of it is always left."""
        noisy: list[int] = [int(token) for token in ids]
        if self.delete:
            kept = draw.random(len(noisy)) >= self.delete
            noisy = [token for token, keep in zip(noisy, kept, strict=True) if keep] or noisy[:1]
        if self.swap:
            order = np.argsort(np.arange(len(noisy)) + draw.random(len(noisy)) * (self.swap + 1), kind="stable")
            noisy = [noisy[place] for place in order]
        if self.mask:
            # So often that of all tokens, those inside a span too, the asked share is masked.
            starts = draw.random(len(noisy)) < self.mask / (self.mask + (1 - self.mask) * self.span)
            result, place, left = [], 0, 0
            while place < len(noisy):
                if starts[place]:
                    result.append(mask)
                    place += 1 + int(draw.poisson(self.span - 1))
                else:
                    result.append(noisy[place])
                    place, left = place + 1, left + 1
            noisy = result if left else noisy
        return noisy


def words_in(row: Row, column: str) -> list[str]:
    """A list of texts, or a text cut at its blanks; an empty one among them is an error."""
    given = row.value(column)
    words = given.split() if isinstance(given, str) else list(given) if isinstance(given, tuple) else given
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        wrong = " ".join(shown(given).split())  # an array is shown in several lines
        raise TwofoldError(f"{row.place}: '{column}' is {wrong}; give a text, or a list of words")
    if not words:
        raise TwofoldError(f"{row.place}: '{column}' is empty; fill it or remove the sentence")
    if not all(words):
        raise TwofoldError(f"{row.place}: word {words.index('') + 1} of '{column}' is empty; fill it or remove it")
    Row(row.place, {column: words}).text(column)  # whole characters only
    return words


def given_words(given: object) -> tuple[str, ...]:
    """The words of a sentence as a user gave it."""
    return tuple(given.split() if isinstance(given, str) else given)  # type: ignore[arg-type]


def names_found(
    rows: Iterable[Row], names_in: Callable[[Row], Iterable[str]], column: str, least: int = 2
) -> tuple[str, ...]:
    """All names that a column holds, in order; fewer than `least` are said to teach nothing, none are an error."""
    names: set[str] = set()
    for row in rows:
        names.update(names_in(row))
        if len(names) > MOST_NAMES:
            raise TwofoldError(f"'{column}' has over {MOST_NAMES:,} different values; is it the column of labels?")
    if not names:
        raise TwofoldError(f"'{column}' holds no label")
    if len(names) < least:
        warnings.warn(f"'{column}' holds {next(iter(names))!r} and nothing else: nothing to learn", stacklevel=5)
    return tuple(sorted(names))


def numbers_of(names: Sequence[str], classes: Classes) -> list[int]:
    """The numbers of some classes; a name that was not seen in training has none."""
    return [classes.numbers.get(name, UNSEEN) for name in names]


def say_unseen(rows: Sequence[Row], names: Callable[[Row], Sequence[str]], classes: Classes) -> None:
    """One line, however many names were not seen in training."""
    unseen = [(row, name) for row in rows for name in names(row) if name not in classes.numbers]
    if unseen:
        row, name = unseen[0]
        more = f", nor {len(unseen) - 1:,} others after it" if len(unseen) > 1 else ""
        known = shorten(did_you_mean(name, classes.names), 200, placeholder=" ...")
        said = f"{row.place}: '{name}' was not seen in training{more}, and can only be answered wrongly; {known}"
        warnings.warn(said, stacklevel=5)
