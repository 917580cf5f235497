"""Columns of rows: texts as token ids within a limit (with optional denoising noise), words, and class names."""

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
from twofold.data.passages import Split, Splitter
from twofold.data.tokenizer import Ids, TextTokenizer
from twofold.errors import TwofoldError, did_you_mean
from twofold.types import Classes, Vocabulary

TooLong = Literal["cut", "refuse"]
Keep = Literal["head", "tail", "turns"]
"""End of an overlong text that is kept: its head, its tail, or with `turns` the tail of a dialogue and the head of a
single text."""
LONGEST = 1_000_000
"""Maximum that a token limit may be set to."""
UNSEEN = -1
"""Id of a class not seen in training, and of a head that was cut off a long sentence."""
MOST_NAMES = 20_000
"""Maximum number of different names in a column."""


class TooLongError(TwofoldError):
    """Error for a text that exceeds the limit, where `too_long` refuses it."""


def check_limit(name: str, limit: int, least: int = 1) -> None:
    """Raises an error for an invalid token limit."""
    if limit < least:
        raise ValueError(f"{name} must be at least {least}, not {limit}")
    if limit > LONGEST:
        raise ValueError(f"{name} must be at most {LONGEST:,}, not {limit}")


def texts_in(row: Row, columns: Iterable[str]) -> list[str]:
    """Returns the texts or turns of several columns."""
    texts = [row.text(column) for column in columns]
    return [turn for text in texts for turn in ([text] if isinstance(text, str) else text)]


def vocabulary_of(tokenizer: TextTokenizer, limit: int) -> Vocabulary:
    """Describes a tokenizer's vocabulary."""
    symbols = (tokenizer.pad, tokenizer.unknown, tokenizer.start, tokenizer.end)
    return Vocabulary(len(tokenizer), limit, *symbols, pieces=lambda: tokenizer.pieces(range(len(tokenizer))))


@dataclass(frozen=True)
class TextColumn:
    """Tokenizes one column: texts, or the turns of dialogues joined by a separator."""

    column: str
    tokenizer: TextTokenizer
    limit: int
    """Maximum number of tokens, special tokens not counted."""
    too_long: TooLong = "cut"
    keep: Keep = "head"
    prompt: str = ""
    """Prompt put before each text, or before the first turn."""
    separator: str | None = None
    """Separator between turns; null uses the tokenizer's own."""
    preface: str | None = None
    """Column with texts put before the turns, such as a persona."""
    place: str = "input"
    """Part of the recipe that these settings are in, for error messages."""

    @property
    def dtype(self) -> str:
        return "uint16" if len(self.tokenizer) <= 1 << 16 else "uint32"

    def settings(self) -> list[Any]:
        limits = [self.column, self.limit, self.too_long, self.keep]
        return ["text", *limits, self.prompt, self.separator, self.preface, self.tokenizer.fingerprint()]

    def encode(self, rows: Sequence[Row]) -> Encoded:
        """Tokenizes this column of each row; an empty text is an error."""
        texts = [self.text(row) for row in rows]
        encoded = self.encode_texts(texts, [row.place for row in rows])
        for row, text, ids in zip(rows, texts, encoded.ids, strict=True):
            if not len(ids) or not any(map(_is_readable, "".join(_turns(text)))):
                raise TwofoldError(f"{row.place}: '{self.column}' has nothing to read but blanks or control characters")
        return encoded

    def text(self, row: Row) -> str | list[str]:
        """Returns the text of a row, or the turns of its dialogue after the preface."""
        text = row.text(self.column)
        if self.preface is None or not row.values.get(self.preface):
            return text
        return [*_turns(row.text(self.preface)), *_turns(text)]

    def encode_texts(self, texts: Sequence[str | list[str]], places: Sequence[str] | None = None) -> Encoded:
        """Tokenizes texts or dialogues; an empty one gets no ids."""
        begun = [[f"{self.prompt}{first}", *others] for first, *others in (_turns(text) or [""] for text in texts)]
        flat = self.tokenizer.encode_each([turn for row in begun for turn in row])
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

    def splitter(self, split: Split) -> Splitter:
        """Returns what cuts texts into passages; ones that would be truncated are an error."""
        room = self.limit - self._prompt
        if split.tokens > room:
            raise TwofoldError(
                f"split: passages of {split.tokens} tokens are longer than the model reads; give at most {room}"
            )
        return Splitter(split, self.tokenizer)

    def decode(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(ids)

    @cached_property
    def _prompt(self) -> int:
        """Number of tokens of the prompt."""
        count = len(self.tokenizer.encode([self.prompt.rstrip()])[0]) if self.prompt else 0
        if self.limit - count < 1:
            raise TwofoldError(f"a limit of {self.limit} tokens leaves no room for '{self.column}' itself; raise it")
        return count


def _turns(text: str | list[str]) -> list[str]:
    return [text] if isinstance(text, str) else text


def _is_readable(letter: str) -> bool:
    """Returns False for blanks and for control and format characters."""
    return not letter.isspace() and unicodedata.category(letter) not in ("Cc", "Cf")


@dataclass(frozen=True)
class Noise:
    """Noise that a denoiser learns to undo (BART, Lewis et al. 2019)."""

    mask: float = 0.0
    """Fraction of the tokens that are masked, from 0 to below 1; 0 masks none."""
    delete: float = 0.0
    """Fraction of the tokens that are deleted, from 0 to below 1; 0 deletes none."""
    span: float = 3.0
    """Mean length of a masked span, in tokens (span masking, text infilling); each span is replaced by one mask
    token."""
    swap: int = 0
    """Maximum distance that a token moves (token permutation); 0 keeps the order."""

    def __post_init__(self) -> None:
        if not (0 <= self.mask < 1 and 0 <= self.delete < 1 and self.span >= 1 and self.swap >= 0):
            raise ValueError("mask and delete must be at least 0 and below 1, span at least 1, swap at least 0")

    def of(self, ids: Ids, mask: int, draw: Draw) -> list[int]:
        """Returns the text with noise; at least one token remains."""
        noisy: list[int] = [int(token) for token in ids]
        if self.delete:
            kept = draw.random(len(noisy)) >= self.delete
            noisy = [token for token, keep in zip(noisy, kept, strict=True) if keep] or noisy[:1]
        if self.swap:
            order = np.argsort(np.arange(len(noisy)) + draw.random(len(noisy)) * (self.swap + 1), kind="stable")
            noisy = [noisy[place] for place in order]
        if self.mask:
            # Repeats until the requested share of all tokens is masked, tokens inside spans included.
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
    """Returns the words of a column: a list of texts, or a text split at blanks. An empty word is an error."""
    given = row.value(column)
    words = given.split() if isinstance(given, str) else list(given) if isinstance(given, tuple) else given
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        wrong = " ".join(shown(given).split())  # an array prints on several lines
        raise TwofoldError(f"{row.place}: '{column}' is {wrong}; give a text, or a list of words")
    if not words:
        raise TwofoldError(f"{row.place}: '{column}' is empty; fill it or remove the sentence")
    if not all(words):
        raise TwofoldError(f"{row.place}: word {words.index('') + 1} of '{column}' is empty; fill it or remove it")
    Row(row.place, {column: words}).text(column)  # checks for whole characters
    return words


def given_words(given: object) -> tuple[str, ...]:
    """Returns the words of a sentence given as a text or a list."""
    return tuple(given.split() if isinstance(given, str) else given)  # type: ignore[arg-type]


def names_found(
    rows: Iterable[Row], names_in: Callable[[Row], Iterable[str]], column: str, least: int = 2
) -> tuple[str, ...]:
    """Collects all names in a column, in order. An empty column is an error; fewer than `least` names raise a
    warning."""
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
    """Returns the class ids of names; -1 for names not seen in training."""
    return [classes.numbers.get(name, UNSEEN) for name in names]


def say_unseen(rows: Sequence[Row], names: Callable[[Row], Sequence[str]], classes: Classes) -> None:
    """Warns once about all names that were not seen in training."""
    unseen = [(row, name) for row in rows for name in names(row) if name not in classes.numbers]
    if unseen:
        row, name = unseen[0]
        more = f", nor {len(unseen) - 1:,} others after it" if len(unseen) > 1 else ""
        known = shorten(did_you_mean(name, classes.names), 200, placeholder=" ...")
        said = f"{row.place}: '{name}' was not seen in training{more}, and can only be answered wrongly; {known}"
        warnings.warn(said, stacklevel=5)
