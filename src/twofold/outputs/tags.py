"""Tags output: a tag for each word of a sentence, such as parts of speech or entity spans (BIO)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from twofold.data.cache import Encoded
from twofold.data.columns import given_words, names_found, words_in
from twofold.data.conll import TAG_COLUMNS, plain_conllu, with_tags
from twofold.data.files import Row
from twofold.data.tokenizer import Ids, TextTokenizer
from twofold.errors import TwofoldError
from twofold.explaining import ExplainsWords, Question
from twofold.inputs import Input
from twofold.inputs.words import Words, WordsInput
from twofold.layers.heads import is_bare
from twofold.outputs.label import NamesConfig, NamesOutput
from twofold.results import Prediction, Tagged, TagNumbers
from twofold.results.explanation import Explanation, Probabilities
from twofold.types import Classes, HiddenSpec, InputBatch


@dataclass(frozen=True)
class WordNamesConfig(NamesConfig):
    """Settings of outputs with a name for each word; the names are in the last column."""

    input: ClassVar[str | None] = "words"
    reads: ClassVar[type[InputBatch]] = Words
    joins: ClassVar[bool] = False

    def names_in(self, row: Row) -> list[str]:
        return words_in(row, self.columns()[-1])


@dataclass(frozen=True)
class WordNamesOutput(NamesOutput):
    """Output of class ids for each word; a truncated sentence keeps those of its remaining words."""

    words: WordsInput

    def settings(self) -> list[Any]:
        return [*super().settings(), *self.words.settings()]

    def numbers_in(self, row: Row, kept: int | None = None) -> list[int]:
        """Class ids of the first `kept` words, or of all."""
        return super().numbers_in(row)[:kept]

    def encode(self, rows: Sequence[Row]) -> Encoded:
        kept = self.words.learned(rows).ids
        return Encoded([self.numbers_in(row, len(sentence.starts)) for row, sentence in zip(rows, kept, strict=True)])


@dataclass(frozen=True)
class Config(WordNamesConfig):
    """Settings of tagging."""

    takes: ClassVar[type] = TagNumbers

    column: str = "tags"
    """Column of the tags: a list, or a text with blanks in between."""

    def build(self, name: str, input: Input[Any], tokenizer: TextTokenizer | None, spec: HiddenSpec) -> TagsOutput:
        assert isinstance(input, WordsInput)
        return TagsOutput(name, self, Classes(self.names or ()), input)

    def learned(self, rows: Callable[[], Iterable[Row]]) -> Self:
        if self.names is not None:
            return self
        loose = 0

        def tags(row: Row) -> list[str]:
            nonlocal loose
            given = self.names_in(row)
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
    """Converts IOB1 to BIO: B-X replaces I-X after anything but B-X or I-X."""
    return [
        f"B-{tag[2:]}" if tag.startswith("I-") and last not in (tag, f"B-{tag[2:]}") else tag
        for last, tag in zip(("", *tags), tags, strict=False)
    ]


@dataclass(frozen=True)
class TagsOutput(ExplainsWords, WordNamesOutput):
    """Tags output: the class id of each word's tag."""

    config: Config

    @property
    def metrics(self) -> tuple[str, ...]:
        named = is_bare(self.spec.names) or any(name.startswith(("B-", "I-")) for name in self.spec.names)
        return ("loss", "entities" if named else "tags")

    def names_in(self, row: Row) -> list[str]:
        """Tags of a row, one for each word, converted to BIO if the training data has B- tags."""
        tags, words, column = super().names_in(row), self.words.value(row), self.config.column
        if len(tags) != len(words):
            raise TwofoldError(
                f"{row.place}: {len(tags)} tags in '{column}', but {len(words)} words; give each word one tag"
            )
        return begun(tags) if any(name.startswith("B-") for name in self.spec.names) else tags

    def plain(self, answer: Tagged) -> dict[str, list[str]]:
        return {"words": list(answer.words), "tags": list(answer.tags)}

    def shown(self, prediction: Prediction, named: bool = False) -> str:
        pairs = zip(prediction.output.words, prediction.output.tags, strict=True)
        return " ".join(f"{word}/{tag}" for word, tag in pairs)

    def conllu(self, answer: Tagged, lines: str | None) -> str:
        if self.config.column not in TAG_COLUMNS:
            return super().conllu(answer, lines)
        return with_tags(lines or plain_conllu(answer.words), self.config.column, answer.tags)

    def answer(self, given: Any, item: Any, raw: TagNumbers, begun: Ids = ()) -> Prediction:
        tags = tuple(self.spec.names[number] for number in raw.tags)
        return Prediction(given, Tagged(given_words(given), tags), raw.score)

    def explain(self, question: Question, raw: TagNumbers) -> Explanation:
        explanation = super().explain(question, raw)
        tags = Probabilities("tags", explanation.output.words, self.spec.names, raw.probabilities)
        return replace(explanation, probabilities=(tags,))

    def chosen(self, raw: TagNumbers, decided: TagNumbers, words: Sequence[int]) -> NDArray[np.float32]:
        return raw.probabilities[range(len(words)), [decided.tags[word] for word in words]]
