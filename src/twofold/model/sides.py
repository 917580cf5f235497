"""The two sides of a model: how rows become batches, and how what a decoder made becomes an answer."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from textwrap import shorten
from typing import Any, Protocol

import numpy as np

from twofold.data.batches import by_length, make_batch
from twofold.data.conll import universal
from twofold.data.fields import SourceField, TextField
from twofold.data.files import Row
from twofold.data.image_fields import CaptionField, ImageField, MaskField, Seen
from twofold.data.image_rows import captions_target, masks_target
from twofold.data.labels import LabelField
from twofold.data.words import TagsField, TreeField, Words, WordsField
from twofold.errors import did_you_mean
from twofold.results import Chosen, Mask, Painted, Parsed, Prediction, Tagged, Tree, Weighed, Written
from twofold.types import Batch, Classes, Numbers, Target, Vocabulary


class Source(Protocol):
    """X: what a model reads."""

    def read(self, rows: Sequence[Row]) -> Sequence[Any]:
        """The inputs of some rows, one item each."""
        ...

    def groups(self, items: Sequence[Any], tokens: int) -> Iterator[list[int]]:
        """Numbers of items that go into one batch."""
        ...

    def batch(self, items: Sequence[Any]) -> Batch: ...


class Output(Protocol):
    """Y: what one decoder of a model writes."""

    @property
    def writes(self) -> Vocabulary | Classes | Numbers: ...

    def read(self, rows: Sequence[Row]) -> Sequence[Any]:
        """What is to be written for some rows, one thing each."""
        ...

    def target(self, things: Sequence[Any]) -> Target: ...

    def answer(self, given: Any, item: Any, made: Any) -> Prediction:
        """What the decoder made of an item, in the form of the data."""
        ...


@dataclass(frozen=True)
class TextSource:
    """Texts as token ids."""

    field: SourceField

    def read(self, rows: Sequence[Row]) -> list[Any]:
        """What is too long is said, then cut, or refused as the recipe said."""
        encoded = self.field.items(rows)
        if encoded.cut:
            limit = self.field.vocabulary.limit
            warnings.warn(
                f"{encoded.cut} of {len(rows)} inputs are longer than {limit} tokens and were cut", stacklevel=4
            )
        return encoded.ids

    def groups(self, items: Sequence[Any], tokens: int) -> Iterator[list[int]]:
        return by_length([self.field.length(one) for one in items], tokens)

    def batch(self, items: Sequence[Any]) -> Batch:
        return self.field.batch(items)


@dataclass(frozen=True)
class WordsSource(TextSource):
    """Sentences as words, each of which gets its answer."""

    field: WordsField

    def read(self, rows: Sequence[Row]) -> list[Words]:
        """What is too long is said in one line, and read in windows, or refused as the recipe said."""
        sentences: list[Words] = self.field.items(rows).ids
        self._say_long(sentences)
        return sentences

    def _say_long(self, sentences: Sequence[Words]) -> None:
        windowed = sum(bool(sentence.windows) for sentence in sentences)
        cut, said = sum(sentence.cut_words for sentence in sentences), []
        if windowed:
            are = "is" if windowed == 1 else "are"
            said.append(
                f"{windowed:,} of {len(sentences):,} sentences {are} longer than {self.field.limit} tokens and {are} "
                "read in overlapping windows"
            )
        if cut:
            which = "1 word is" if cut == 1 else f"{cut:,} words are"
            said.append(f"{which} longer than a whole sentence may be and cut to {self.field.word_room} tokens")
        if said:
            # Whoever asked, the place is the same, so that it is said once where several metrics read the rows.
            warnings.warn("; ".join(said), stacklevel=2)


@dataclass(frozen=True)
class ImageSource:
    """Images, perhaps each with the beginning of a text; their pixels are read batch by batch."""

    field: ImageField

    def read(self, rows: Sequence[Row]) -> list[Seen]:
        return self.field.see(rows)

    def groups(self, items: Sequence[Seen], tokens: int) -> Iterator[list[int]]:
        return self.field.groups(items)

    def batch(self, items: Sequence[Seen]) -> Batch:
        pixels = self.field.view.tensor([self.field.pixels(one) for one in items])
        return replace(make_batch([one.prefix for one in items], self.field.vocabulary), pixels=pixels)


@dataclass(frozen=True)
class ColumnOutput:
    """What a column holds for each row."""

    field: Any

    def read(self, rows: Sequence[Row]) -> Sequence[Any]:
        return self.field.encode(rows).ids  # type: ignore[no-any-return]

    def target(self, things: Sequence[Any]) -> Target:
        return self.field.target(things)  # type: ignore[no-any-return]


@dataclass(frozen=True)
class TextOutput(ColumnOutput):
    """One text for each row."""

    field: TextField

    @property
    def writes(self) -> Vocabulary:
        return self.field.vocabulary

    def answer(self, given: Any, item: Any, made: Written) -> Prediction:
        before = item.prefix if isinstance(item, Seen) else ()  # a caption that was begun is shown whole
        best, *others = [(self.field.decode([*before, *one.tokens]), one.score) for one in made.hypotheses]
        normalized = tuple(hypothesis.normalized_score for hypothesis in made.hypotheses)
        return Prediction(given, *best, tuple(others), normalized, made.hypotheses[0].tokens)


@dataclass(frozen=True)
class CaptionOutput(TextOutput):
    """Several texts for each image, of which any is right."""

    captions: CaptionField

    def read(self, rows: Sequence[Row]) -> Sequence[Any]:
        return [[np.asarray(ids) for ids in self.captions.each(row).ids] for row in rows]

    def target(self, things: Sequence[Any]) -> Target:
        return captions_target(things, self.captions)


@dataclass(frozen=True)
class MaskOutput:
    """A class for each pixel."""

    field: MaskField

    @property
    def writes(self) -> Classes:
        return self.field.classes

    def read(self, rows: Sequence[Row]) -> Sequence[Row]:
        return rows  # many masks would fill the memory

    def target(self, things: Sequence[Row]) -> Target:
        return masks_target([self.field.source.view.see_mask(self.field.gold(row)) for row in things])

    def answer(self, given: Any, item: Seen, made: Painted) -> Prediction:
        """The mask in the image's own size; what was cut off when it was read takes the nearest class."""
        view, (height, width) = self.field.source.view, item.size
        left, top, right, bottom = view.box(item.size)
        rows = _nearest(height, top, bottom, made.pixels.shape[0])
        columns = _nearest(width, left, right, made.pixels.shape[1])
        pixels = made.pixels[rows[:, None], columns[None]]
        return Prediction(given, Mask(pixels, self.field.classes.names), made.score)


def _nearest(side: int, start: float, stop: float, read: int) -> Any:
    """For each pixel of a side which pixel of what was read, from `start` to `stop`, shows it."""
    places = (np.arange(side) + 0.5 - start) * read / (stop - start)
    return np.floor(places).astype(np.int64).clip(0, read - 1)


@dataclass(frozen=True)
class LabelOutput(ColumnOutput):
    """A label, several, or a number."""

    field: LabelField

    @property
    def writes(self) -> Classes | Numbers:
        return self.field.output

    def read(self, rows: Sequence[Row]) -> Sequence[Any]:
        if isinstance(self.writes, Classes):
            _say_unseen(rows, self.field.names, self.writes)
        return super().read(rows)

    def answer(self, given: Any, item: Any, made: Weighed) -> Prediction:
        """The likeliest label with its probability, and the others; or all labels that are more likely than not."""
        output, values = self.field.output, made.values
        if isinstance(output, Numbers):
            return Prediction(given, float(values[0]), float(values[0]))
        order = np.argsort(-values, kind="stable")
        ranked = [(output.names[one], float(values[one])) for one in order]
        if self.field.answers == "many":
            return Prediction(given, [name for name, value in ranked if value > 0.5], ranked[0][1], tuple(ranked))
        return Prediction(given, *ranked[0], tuple(ranked[1:]))


@dataclass(frozen=True)
class TagsOutput(ColumnOutput):
    """A tag for each word."""

    field: TagsField

    @property
    def writes(self) -> Classes:
        return self.field.classes

    def read(self, rows: Sequence[Row]) -> Sequence[Any]:
        _say_unseen(rows, self.field.gold, self.writes)
        return [self.field.numbers(row) for row in rows]

    def answer(self, given: Any, item: Any, made: Chosen) -> Prediction:
        tags = tuple(self.field.classes.names[one] for one in made.tags)
        return Prediction(given, Tagged(_words(given), tags), made.score)


@dataclass(frozen=True)
class TreeOutput(ColumnOutput):
    """A tree over the words."""

    field: TreeField

    @property
    def writes(self) -> Classes:
        return self.field.classes

    def read(self, rows: Sequence[Row]) -> Sequence[Any]:
        known = set(map(universal, self.writes.names))

        def new(row: Row) -> list[str]:
            """Subtypes do not count, so one that was not seen can be answered rightly."""
            return [one for one in self.field.gold(row)[1] if universal(one) not in known]

        _say_unseen(rows, new, self.writes)
        return [self.field.numbers(row) for row in rows]

    def answer(self, given: Any, item: Any, made: Parsed) -> Prediction:
        relations = tuple(self.field.classes.names[one] for one in made.relations)
        return Prediction(given, Tree(_words(given), made.heads, relations), made.score)


@dataclass(frozen=True)
class OwnOutput:
    """What comes from the text itself and from no column."""

    writes: Vocabulary | Classes

    def read(self, rows: Sequence[Row]) -> Sequence[Any]:
        raise AssertionError("made with the batch")

    def target(self, things: Sequence[Any]) -> Target:
        raise AssertionError("made with the batch")

    def answer(self, given: Any, item: Any, made: Any) -> Prediction:
        """Of a pair, whether the second text is another's."""
        assert isinstance(self.writes, Classes)
        best = int(made.values.argmax())
        return Prediction(given, self.writes.names[best], float(made.values[best]))


def _say_unseen(rows: Sequence[Row], names: Callable[[Row], Sequence[str]], classes: Classes) -> None:
    """One line, however many names were not seen in training."""
    unseen = [(row, name) for row in rows for name in names(row) if name not in classes.numbers]
    if unseen:
        row, name = unseen[0]
        more = f", nor {len(unseen) - 1:,} others after it" if len(unseen) > 1 else ""
        known = shorten(did_you_mean(name, classes.names), 200, placeholder=" ...")
        warnings.warn(
            f"{row.place}: '{name}' was not seen in training{more}, and can only be answered wrongly; {known}",
            stacklevel=5,
        )


def _words(given: Any) -> tuple[str, ...]:
    return tuple(given.split() if isinstance(given, str) else given)


def source_of(field: SourceField | ImageField) -> Source:
    """How a model reads that column."""
    match field:
        case ImageField():
            return ImageSource(field)
        case WordsField():
            return WordsSource(field)
        case _:
            return TextSource(field)


def output_of(field: Any) -> Output:
    """How a model writes that column."""
    match field:
        case MaskField():
            return MaskOutput(field)
        case CaptionField():
            return CaptionOutput(field.text, field)
        case LabelField():
            return LabelOutput(field)
        case TagsField():
            return TagsOutput(field)
        case TreeField():
            return TreeOutput(field)
        case Vocabulary() | Classes():
            return OwnOutput(field)
        case _:
            return TextOutput(field)
