"""Sentences as words: each word's pieces, where they begin, and what is to be said of each word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from reprlib import repr as shown
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch

from twofold.data.cache import Cache, Encoded, Field
from twofold.data.conll import check_tree
from twofold.data.fields import SOURCE, TextField, TooLongError
from twofold.data.files import Row
from twofold.data.tokenizer import Ids
from twofold.errors import TwofoldError
from twofold.types import Batch, Classes, Target

STARTS = "starts"
"""The cache's column of where words begin."""
UNSEEN = -1
"""In the place of a name that was not seen in training, and of a head that a long sentence lost with its end."""


class Words(NamedTuple):
    """A sentence as it is read."""

    ids: Ids
    starts: Ids
    """Where the first piece of each word stands, which speaks for the word."""


@dataclass(frozen=True)
class WordsField(TextField):
    """Reads a column of words: a list, or a text that is cut at its blanks."""

    def settings(self) -> list[Any]:
        frame = [self.frame.before, self.frame.after]
        return ["words", self.column, self.limit, self.too_long, self.tokenizer.fingerprint(), *frame]

    def words(self, row: Row) -> list[str]:
        """The words of a row, of which none is empty."""
        return words_in(row, self.column)

    def read(self, rows: Sequence[Row]) -> Encoded:
        """The `Words` of each row; a sentence that is too long ends with the last word that fits."""
        sentences = [self.words(row) for row in rows]
        # Before all but the first word stands a blank: some tokenizers cut words inside a sentence in another way.
        spaced = [f" {word}" if number else word for words in sentences for number, word in enumerate(words)]
        flat = iter(self.tokenizer.encode(spaced))
        found, cut = [], 0
        for row, words in zip(rows, sentences, strict=True):
            ids, starts = list(self.frame.before), []
            last = self.limit - len(self.frame.after)
            room = last - len(ids)
            pieces = [next(flat) or [self.tokenizer.unknown] for _ in words]
            for own in pieces:
                if len(ids) + len(own) > last:
                    break
                starts.append(len(ids))
                ids += own
            if len(starts) < len(words):
                size, word = max(zip(map(len, pieces), words, strict=True), key=lambda both: both[0])
                if size > room:
                    raise TwofoldError(
                        f"{row.place}: the word {shown(word)} has {size} tokens, and {room} are the most "
                        "of a whole sentence; shorten it or raise data.max_source"
                    )
                if self.too_long == "refuse":
                    raise TooLongError(
                        f"{row.place}: {sum(map(len, pieces))} tokens, the limit is {room}; cut the sentence in two, "
                        "or train with a higher data.max_source"
                    )
                cut += 1
            found.append(Words([*ids, *self.frame.after], starts))
        return Encoded(found, cut)

    def encode(self, rows: Sequence[Row]) -> Encoded:
        found = self.read(rows)
        return Encoded([one.ids for one in found.ids], found.cut)

    def columns(self) -> dict[str, Field]:
        return {SOURCE: self, STARTS: StartsField(self)}

    def items(self, rows: Sequence[Row]) -> Encoded:
        """Every word must get its answer, so a sentence that is too long is an error."""
        return replace(self, too_long="refuse").read(rows)

    def cached(self, cache: Cache, row: int) -> Words:
        return Words(cache.columns[SOURCE].row(row), cache.columns[STARTS].row(row))

    def length(self, item: Words) -> int:
        return len(item.ids)

    def batch(self, items: Sequence[Words], progress: float = 0.0) -> Batch:
        return replace(
            super().batch([one.ids for one in items], progress), words=padded([one.starts for one in items], -1)
        )

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
        return Encoded(
            [numbers_of(self.gold(row)[: len(one.starts)], self.classes) for row, one in zip(rows, kept, strict=True)]
        )

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
        found = []
        for row, one in zip(rows, self.words.read(rows).ids, strict=True):
            heads, relations = self.gold(row)
            kept = len(one.starts)
            numbers = numbers_of(relations[:kept], self.classes)
            heads = [head if head <= kept else UNSEEN for head in heads[:kept]]
            found.append([value for pair in zip(heads, numbers, strict=True) for value in pair])
        return Encoded(found)

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
            raise TwofoldError(f"{row.place}: '{column}' is {shown(given)}; give a text, or a list of words")
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
