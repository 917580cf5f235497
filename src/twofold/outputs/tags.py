"""A tag for each word of a sentence: parts of speech, or entity spans as BIO tags."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar, Self

from twofold.data.cache import Encoded
from twofold.data.conll import TAG_COLUMNS, plain_conllu, with_tags
from twofold.data.files import Row
from twofold.data.tokenizer import Ids, TextTokenizer
from twofold.data.words_in_rows import UNSEEN, given_words, names_found, numbers_of, padded, say_unseen, words_in
from twofold.errors import TwofoldError
from twofold.inputs import Input
from twofold.inputs.words import Words, WordsInput
from twofold.layers.tagging import is_bare
from twofold.outputs import ColumnOutput, OutputConfig
from twofold.results import Prediction, Tagged, TagNumbers
from twofold.types import Classes, HiddenSpec, InputBatch, Target


@dataclass(frozen=True)
class Config(OutputConfig):
    """Settings of tags."""

    takes: ClassVar[type] = TagNumbers
    input: ClassVar[str | None] = "words"
    reads: ClassVar[type[InputBatch]] = Words
    joins: ClassVar[bool] = False

    column: str = "tags"
    """The column or key of the tags: a list, or a text with blanks between them."""
    names: tuple[str, ...] | None = None
    """All tags; unless given, those of the training rows."""

    def build(self, name: str, input: Input[Any], tokenizer: TextTokenizer | None, spec: HiddenSpec) -> TagsOutput:
        assert isinstance(input, WordsInput)
        return TagsOutput(name, self.column, input, Classes(self.names or ()))

    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def learned(self, rows: Callable[[], Iterable[Row]]) -> Self:
        if self.names is not None:
            return self
        loose = 0

        def tags(row: Row) -> list[str]:
            nonlocal loose
            given = words_in(row, self.column)
            loose += begun(given) != given
            return given

        names = set(names_found(rows(), tags, self.column))
        if loose and any(tag.startswith("B-") for tag in names):
            names |= {f"B-{tag[2:]}" for tag in names if tag.startswith("I-")}
            warnings.warn(
                f"'{self.column}': in {loose:,} sentences a name begins with I- (the form IOB1); it is learned "
                "as B-, with which every name in an answer begins",
                stacklevel=4,
            )
        return replace(self, names=tuple(sorted(names)))


def begun(tags: Sequence[str]) -> list[str]:
    """The same tags with B-X for each I-X that follows neither B-X nor I-X, as a name begins in the older form IOB1."""
    return [
        f"B-{tag[2:]}" if tag.startswith("I-") and last not in (tag, f"B-{tag[2:]}") else tag
        for last, tag in zip(("", *tags), tags, strict=False)
    ]


@dataclass(frozen=True)
class TagsOutput(ColumnOutput[Ids]):
    """The number of each word's tag."""

    column: str
    words: WordsInput
    classes: Classes

    @property
    def metrics(self) -> tuple[str, ...]:
        named = is_bare(self.classes.names) or any(name.startswith(("B-", "I-")) for name in self.classes.names)
        return ("loss", "entities" if named else "tags")

    @property
    def spec(self) -> Classes:
        return self.classes

    def settings(self) -> list[Any]:
        return ["tags", self.column, list(self.classes.names), *self.words.settings()]

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
        kept = self.words.learned(rows).ids
        return Encoded([self._numbers(row)[: len(sentence.starts)] for row, sentence in zip(rows, kept, strict=True)])

    def values(self, rows: Sequence[Row]) -> Sequence[Ids]:
        say_unseen(rows, self.gold, self.classes)
        return [self._numbers(row) for row in rows]

    def _numbers(self, row: Row) -> list[int]:
        return numbers_of(self.gold(row), self.classes)

    def target(self, values: Sequence[Ids]) -> Target:
        """(rows, words)"""
        tags = padded(values, UNSEEN)
        return Target(tags.clamp(min=0), tags >= 0)

    def plain(self, answer: Tagged) -> dict[str, list[str]]:
        return {"words": list(answer.words), "tags": list(answer.tags)}

    def shown(self, prediction: Prediction, named: bool = False) -> str:
        pairs = zip(prediction.output.words, prediction.output.tags, strict=True)
        return " ".join(f"{word}/{tag}" for word, tag in pairs)

    def conllu(self, answer: Tagged, lines: str | None) -> str:
        if self.column not in TAG_COLUMNS:
            return super().conllu(answer, lines)
        return with_tags(lines or plain_conllu(answer.words), self.column, answer.tags)

    def answer(self, given: Any, item: Any, raw: TagNumbers, begun: Ids = ()) -> Prediction:
        tags = tuple(self.classes.names[number] for number in raw.tags)
        return Prediction(given, Tagged(given_words(given), tags), raw.score)
