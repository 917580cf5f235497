"""Sentences as words: each word's pieces, where they begin, and what is to be said of each word."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from reprlib import repr as shown
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch

from twofold.data.cache import Cache, Encoded, Field
from twofold.data.conll import check_tree
from twofold.data.fields import SOURCE, TextField, TooLongError
from twofold.data.files import Row
from twofold.data.tokenizer import Ids
from twofold.data.windows import Span, make_windows, window_spans
from twofold.errors import TwofoldError
from twofold.types import Batch, Classes, Target, Windows

STARTS = "starts"
"""The cache's column of where words begin."""
TREE_MEMORY = 1 << 30
"""Bytes that finding the tree of one sentence may take at most."""
PAIR_BYTES = 80
"""What it takes for every pair of words: their scores, and those of what the words are merged into."""
MOST_TREE_WORDS = math.isqrt(TREE_MEMORY // PAIR_BYTES)
UNSEEN = -1
"""In the place of a name that was not seen in training, and of a head that a long sentence lost with its end."""


class Words(NamedTuple):
    """A sentence as it is read."""

    ids: Ids
    starts: Ids
    """Where the first piece of each word stands, which speaks for the word."""
    windows: tuple[Span, ...] = ()
    """Of a sentence that is longer than a model may read at once, the windows in which it is read."""
    cut_words: int = 0
    """How many words lost a part."""


@dataclass(frozen=True)
class WordsField(TextField):
    """Reads a column of words: a list, or a text that is cut at its blanks."""

    most_words: int | None = None
    """The most words of a sentence where every word must get its answer, if there is such a limit."""

    def settings(self) -> list[Any]:
        frame = [self.frame.before, self.frame.after]
        return ["words", self.column, self.limit, self.too_long, self.tokenizer.fingerprint(), *frame]

    def words(self, row: Row) -> list[str]:
        """The words of a row, of which none is empty."""
        return words_in(row, self.column)

    @property
    def room(self) -> int:
        """The most tokens of a sentence without its frame."""
        return self.limit - len(self.frame)

    @property
    def word_room(self) -> int:
        """How many tokens stay of a word that has more than a sentence may have: its neighbours must be seen too."""
        return max(1, self.room // 2)

    def read(self, rows: Sequence[Row]) -> Encoded:
        """The `Words` of each row as they are learned from; one that is too long ends with the last word that fits."""
        sentences, cut = [], 0
        for row, pieces in zip(rows, self._pieces(rows), strict=True):
            fitting = self._fitted(pieces, row)
            sizes = np.cumsum([len(word) for word in fitting])
            kept = int(np.searchsorted(sizes, self.room, side="right"))
            sentence = self._sentence(fitting[:kept], pieces[:kept])
            cut += kept < len(pieces) or sentence.cut_words > 0
            sentences.append(sentence)
        return Encoded(sentences, cut)

    def items(self, rows: Sequence[Row]) -> Encoded:
        """The same with every word, because every word must get its answer: what is too long is read in windows."""
        sentences, cut = [], 0
        for row, pieces in zip(rows, self._pieces(rows), strict=True):
            if self.most_words is not None and len(pieces) > self.most_words:
                raise TooLongError(
                    f"{row.place}: {len(pieces):,} words; a tree takes memory for every pair of words, and of "
                    f"{self.most_words:,} words {TREE_MEMORY >> 30} GiB, which is the most; cut the sentence in two"
                )
            fitting = self._fitted(pieces, row)
            sentence = self._sentence(fitting, pieces)
            if len(sentence.ids) > self.limit:
                spans = window_spans([len(word) for word in fitting], self.room)
                sentence = sentence._replace(windows=tuple(spans))
            cut += bool(sentence.windows or sentence.cut_words)
            sentences.append(sentence)
        return Encoded(sentences, cut)

    def _pieces(self, rows: Sequence[Row]) -> Iterator[list[Ids]]:
        """For each row the tokens of each word."""
        sentences = [self.words(row) for row in rows]
        # Before all but the first word stands a blank: some tokenizers cut words inside a sentence in another way.
        spaced = [f" {word}" if number else word for words in sentences for number, word in enumerate(words)]
        flat = iter(self.tokenizer.encode(spaced))
        return ([next(flat) or [self.tokenizer.unknown] for _ in words] for words in sentences)

    def _fitted(self, pieces: Sequence[Ids], row: Row) -> list[Ids]:
        """The same words, of which none is longer than a sentence may be."""
        if self.too_long == "refuse" and sum(map(len, pieces)) > self.room:
            raise self._too_long(pieces, row)
        return [word if len(word) <= self.room else word[: self.word_room] for word in pieces]

    def _too_long(self, pieces: Sequence[Ids], row: Row) -> TooLongError:
        sizes = [len(word) for word in pieces]
        word, otherwise = int(np.argmax(sizes)), "or train with a higher data.max_source or with data.too_long=cut"
        if sizes[word] > self.room:
            return TooLongError(
                f"{row.place}: the word {shown(self.words(row)[word])} has {sizes[word]} tokens, and {self.room} are "
                f"the most of a whole sentence; shorten it, {otherwise}"
            )
        return TooLongError(
            f"{row.place}: {sum(sizes)} tokens, the limit is {self.room}; cut the sentence in two, {otherwise}"
        )

    def _sentence(self, fitting: Sequence[Ids], pieces: Sequence[Ids]) -> Words:
        before, after = self.frame.before, self.frame.after
        starts = len(before) + np.cumsum([0, *map(len, fitting)])[:-1]
        cut = sum(len(short) < len(word) for short, word in zip(fitting, pieces, strict=True))
        return Words([*before, *chain(*fitting), *after], starts.tolist(), cut_words=cut)

    def encode(self, rows: Sequence[Row]) -> Encoded:
        found = self.read(rows)
        return Encoded([one.ids for one in found.ids], found.cut)

    def columns(self) -> dict[str, Field]:
        return {SOURCE: self, STARTS: StartsField(self)}

    def cached(self, cache: Cache, row: int) -> Words:
        return Words(cache.columns[SOURCE].row(row), cache.columns[STARTS].row(row))

    def length(self, item: Words) -> int:
        return len(item.ids)

    def batch(self, items: Sequence[Words], progress: float = 0.0) -> Batch:
        batch = super().batch([sentence.ids for sentence in items], progress)
        windows = self._windows(items) if any(sentence.windows for sentence in items) else None
        return replace(batch, words=padded([sentence.starts for sentence in items], -1), windows=windows)

    def _windows(self, items: Sequence[Words]) -> Windows:
        """Those of long sentences, and one for each of the others."""
        before, after = len(self.frame.before), len(self.frame.after)
        rows = [(len(item.ids), item.windows or [(0, len(item.ids) - before - after)]) for item in items]
        return make_windows(rows, before, after)

    def taken(self, row: Row) -> list[str]:
        return self.words(row)


@dataclass(frozen=True)
class StartsField:
    """Where the words of a column begin."""

    words: WordsField
    dtype: str = "int32"

    def settings(self) -> list[Any]:
        return [STARTS, *self.words.settings()]

    def encode(self, rows: Sequence[Row]) -> Encoded:
        return Encoded([one.starts for one in self.words.read(rows).ids])


@dataclass(frozen=True)
class TagsField:
    """A tag for each word."""

    counted: ClassVar[bool] = False

    column: str
    words: WordsField
    classes: Classes
    dtype: str = "int32"

    def settings(self) -> list[Any]:
        return ["tags", "begun", self.column, list(self.classes.names), *self.words.settings()]

    def gold(self, row: Row) -> list[str]:
        """The tags of a row, one for each word; a name begins with B- where any does."""
        tags, words = words_in(row, self.column), self.words.words(row)
        if len(tags) != len(words):
            raise TwofoldError(
                f"{row.place}: {len(tags)} tags in '{self.column}', but {len(words)} words; give each word one tag"
            )
        return begun(tags) if self._marks_beginnings else tags

    @cached_property
    def _marks_beginnings(self) -> bool:
        return any(name.startswith("B-") for name in self.classes.names)

    def encode(self, rows: Sequence[Row]) -> Encoded:
        kept = self.words.read(rows).ids
        return Encoded([self.numbers(row)[: len(sentence.starts)] for row, sentence in zip(rows, kept, strict=True)])

    def numbers(self, row: Row) -> list[int]:
        """The number of every word's tag."""
        return numbers_of(self.gold(row), self.classes)

    def target(self, rows: Sequence[Ids]) -> Target:
        tags = padded(rows, UNSEEN)
        return Target(tags.clamp(min=0), tags >= 0)


@dataclass(frozen=True)
class TreeField:
    """For each word the word it hangs from, counted from 1, 0 for the root, and how."""

    counted: ClassVar[bool] = False

    heads: str
    relations: str
    words: WordsField
    classes: Classes
    dtype: str = "int32"

    def settings(self) -> list[Any]:
        return ["tree", self.heads, self.relations, list(self.classes.names), *self.words.settings()]

    def gold(self, row: Row) -> tuple[list[int], list[str]]:
        """Heads and relations of a row, which must make a tree."""
        words, relations = self.words.words(row), words_in(row, self.relations)
        given = row.values.get(self.heads)
        heads = given.split() if isinstance(given, str) else given
        try:
            numbers = [int(str(one)) for one in heads or ()]
        except (TypeError, ValueError):
            raise TwofoldError(f"{row.place}: '{self.heads}' must hold a whole number for each word") from None
        if not len(numbers) == len(relations) == len(words):
            raise TwofoldError(
                f"{row.place}: {len(numbers)} heads and {len(relations)} relations, but {len(words)} words; "
                "give each word one of both"
            )
        if wrong := check_tree(numbers):
            raise TwofoldError(f"{row.place}: the tree {wrong}; mend it or remove the sentence")
        return numbers, relations

    def encode(self, rows: Sequence[Row]) -> Encoded:
        kept = self.words.read(rows).ids
        return Encoded([self.numbers(row, len(sentence.starts)) for row, sentence in zip(rows, kept, strict=True)])

    def numbers(self, row: Row, kept: int | None = None) -> list[int]:
        """The head of every word and the number of its relation, by turns, of so many words or of all."""
        heads, relations = self.gold(row)
        kept = len(heads) if kept is None else kept
        heads = [head if head <= kept else UNSEEN for head in heads[:kept]]
        return [value for pair in zip(heads, numbers_of(relations[:kept], self.classes), strict=True) for value in pair]

    def target(self, rows: Sequence[Ids]) -> Target:
        """(rows, words, 2): the head and the number of the relation."""
        flat = padded(rows, UNSEEN)
        both = flat.view(len(flat), -1, 2)
        return Target(both.clamp(min=0), (both >= 0).all(-1))


def words_in(row: Row, column: str) -> list[str]:
    """A list of texts, or a text cut at its blanks; an empty one among them is an error."""
    given = row.values.get(column)
    found = given.split() if isinstance(given, str) else list(given) if isinstance(given, tuple) else given
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        if column in row.values:
            wrong = " ".join(shown(given).split())  # an array is shown in several lines
            raise TwofoldError(f"{row.place}: '{column}' is {wrong}; give a text, or a list of words")
        raise TwofoldError(f"{row.place}: no '{column}' here; this row has {', '.join(map(str, row.values))}")
    if not found:
        raise TwofoldError(f"{row.place}: '{column}' is empty; fill it or remove the sentence")
    if not all(found):
        raise TwofoldError(f"{row.place}: word {found.index('') + 1} of '{column}' is empty; fill it or remove it")
    Row(row.place, {column: found}).text(column)  # whole characters only
    return found


def begun(tags: Sequence[str]) -> list[str]:
    """The same tags with B-X for each I-X that follows neither B-X nor I-X, as a name begins in the older form IOB1."""
    return [
        f"B-{tag[2:]}" if tag.startswith("I-") and last not in (tag, f"B-{tag[2:]}") else tag
        for last, tag in zip(("", *tags), tags, strict=False)
    ]


def numbers_of(names: Sequence[str], classes: Classes) -> list[int]:
    """The numbers of some classes; a name that was not seen in training has none."""
    return [classes.numbers.get(name, UNSEEN) for name in names]


def padded(rows: Sequence[Ids], empty: int) -> torch.Tensor:
    """(rows, longest)"""
    result = np.full((len(rows), max(len(row) for row in rows)), empty, np.int64)
    for line, row in zip(result, rows, strict=True):
        line[: len(row)] = row
    return torch.from_numpy(result)
