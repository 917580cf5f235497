"""The two sides of a model: how rows become batches, and how what a decoder made becomes an answer."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from textwrap import shorten
from typing import Any, Protocol, cast

import numpy as np

from twofold.data.batches import by_length, make_batch
from twofold.data.corruption import Corruption
from twofold.data.fields import SOURCE, SourceField, TextField
from twofold.data.files import Row
from twofold.data.labels import LabelField
from twofold.data.pairs import PairField
from twofold.data.picture_fields import CaptionField, MaskField, PictureField, Seen
from twofold.data.picture_rows import captions_target, masks_target
from twofold.data.tokenizer import Frame, TextTokenizer
from twofold.data.words import TagsField, TreeField, WordsField
from twofold.errors import TwofoldError, did_you_mean
from twofold.model.config import OF_WORDS, STRANGER, ModelConfig
from twofold.results import Chosen, Mask, Painted, Parsed, Prediction, Tagged, Tree, Weighed, Written
from twofold.types import Batch, Classes, EncoderConfig, Numbers, Target, Vocabulary

BEGUN = "<prefix>"
"""Where a row holds how its caption begins: a name that no column of a file will have."""


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
class PictureSource:
    """Pictures, perhaps each with the beginning of a text; their pixels are read batch by batch."""

    field: PictureField

    def read(self, rows: Sequence[Row]) -> list[Seen]:
        return self.field.see(rows)

    def groups(self, items: Sequence[Seen], tokens: int) -> Iterator[list[int]]:
        return self.field.groups(items)

    def batch(self, items: Sequence[Seen]) -> Batch:
        pixels = self.field.view.tensor([self.field.pixels(one) for one in items])
        return replace(make_batch([one.prefix for one in items], self.field.vocabulary), pixels=pixels)


@dataclass(frozen=True)
class TextOutput:
    """One text for each row."""

    field: TextField

    @property
    def writes(self) -> Vocabulary:
        return self.field.vocabulary

    def read(self, rows: Sequence[Row]) -> Sequence[Any]:
        return self.field.encode(rows).ids

    def target(self, things: Sequence[Any]) -> Target:
        return self.field.target(things)

    def answer(self, given: Any, item: Any, made: Written) -> Prediction:
        before = item.prefix if isinstance(item, Seen) else ()  # a caption that was begun is shown whole
        best, *others = [(self.field.decode([*before, *one.tokens]), one.score) for one in made.hypotheses]
        return Prediction(given, *best, tuple(others))


@dataclass(frozen=True)
class CaptionOutput(TextOutput):
    """Several texts for each picture, of which any is right."""

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
        """The mask in the picture's own size; what was cut off when it was read takes the nearest class."""
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
class LabelOutput:
    """A label, several, or a number."""

    field: LabelField

    @property
    def writes(self) -> Classes | Numbers:
        return self.field.output

    def read(self, rows: Sequence[Row]) -> Sequence[Any]:
        if isinstance(self.writes, Classes):
            _say_unseen(rows, self.field.names, self.writes)
        return self.field.encode(rows).ids

    def target(self, things: Sequence[Any]) -> Target:
        return self.field.target(things)

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
class TagsOutput:
    """A tag for each word."""

    field: TagsField

    @property
    def writes(self) -> Classes:
        return self.field.classes

    def read(self, rows: Sequence[Row]) -> Sequence[Any]:
        _say_unseen(rows, self.field.gold, self.writes)
        return self.field.encode(rows).ids

    def target(self, things: Sequence[Any]) -> Target:
        return self.field.target(things)

    def answer(self, given: Any, item: Any, made: Chosen) -> Prediction:
        tags = tuple(self.field.classes.names[one] for one in made.tags)
        return Prediction(given, Tagged(_words(given), tags), made.score)


@dataclass(frozen=True)
class TreeOutput:
    """A tree over the words."""

    field: TreeField

    @property
    def writes(self) -> Classes:
        return self.field.classes

    def read(self, rows: Sequence[Row]) -> Sequence[Any]:
        _say_unseen(rows, lambda row: self.field.gold(row)[1], self.writes)
        return self.field.encode(rows).ids

    def target(self, things: Sequence[Any]) -> Target:
        return self.field.target(things)

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


def source_of(field: SourceField | PictureField) -> Source:
    """How a model reads that column."""
    return PictureSource(field) if isinstance(field, PictureField) else TextSource(field)


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


def source_field(config: ModelConfig, tokenizers: Mapping[str, TextTokenizer]) -> SourceField | PictureField:
    """The column, or the two columns, that a model reads."""
    if config.picture is None:
        return _text_field(config, tokenizers[SOURCE])
    prefix = None
    if getattr(config.encoder, "prefix", False):
        name = next((one for one in config.decoders if one in tokenizers), None)
        if name is None:
            raise TwofoldError("encoder.prefix: no decoder writes a text that could be begun")
        prefix = TextField(BEGUN, tokenizers[name], config.max_target, config.too_long)
    return PictureField(str(config.source), config.picture, prefix)


def _text_field(config: ModelConfig, tokenizer: TextTokenizer) -> SourceField:
    how, tail = (tokenizer, config.max_source, config.too_long), config.keep == "tail"
    frame = tokenizer.frame if config.frame else Frame()
    if not isinstance(config.source, str):
        first = TextField(config.source[0], *how, keep_tail=tail)
        pair = PairField(first, TextField(config.source[1], *how), tokenizer.frame)
        _check_room(config.max_source, len(pair.frame) + len(pair.frame.between), 2)
        return pair
    _check_room(config.max_source, len(frame), 1)
    if any(slot.part.writes in OF_WORDS for slot in config.decoders.values()):
        return WordsField(config.source, *how, frame)
    return TextField(config.source, *how, frame, tail)


def _check_room(limit: int, frame: int, texts: int) -> None:
    if limit < frame + texts:
        raise TwofoldError(
            f"data.max_source={limit} leaves no room beside the {frame} symbols around a text; at least {frame + texts}"
        )


def target_field(name: str, config: ModelConfig, tokenizers: Mapping[str, TextTokenizer], source: Any) -> Any:
    """The column, or columns, that one decoder of a model writes; or what it writes where that is no column."""
    slot, masks = config.decoders[name], config.mask
    columns = (slot.target,) if isinstance(slot.target, str) else tuple(slot.target)
    match slot.part.writes:
        case "mask":
            assert masks is not None
            return MaskField(columns[0], source, Classes(masks.classes), masks.ignore, masks.first)
        case "tokens":
            return source.vocabulary
        case "label" if columns[0] == STRANGER:
            return Classes(("no", "yes"))
        case "label":
            answers: Any = getattr(slot.part, "answers", "one")
            return LabelField(columns[0], answers, _output(name, config))
        case "tags":
            return TagsField(columns[0], source, Classes(tuple(config.classes[name])))
        case "tree":
            return TreeField(columns[0], columns[1], source, Classes(tuple(config.classes[name])))
    text = TextField(columns[0], tokenizers[name], config.max_target, config.too_long)
    return CaptionField(columns, text, source.refuse) if isinstance(source, PictureField) else text


def _output(name: str, config: ModelConfig) -> Classes | Numbers:
    return Numbers(*config.numbers[name]) if name in config.numbers else Classes(tuple(config.classes[name]))


def corruption_of(config: ModelConfig, tokenizers: Mapping[str, TextTokenizer]) -> Corruption | None:
    """What is done to the texts before they are read in training, if anything is."""
    causal = cast(EncoderConfig, config.encoder).spec().causal
    guessing = {
        name: 0.0 if causal else float(slot.part.masked)  # type: ignore[attr-defined]
        for name, slot in config.decoders.items()
        if slot.part.writes == "tokens"
    }
    telling = [name for name, slot in config.decoders.items() if slot.target == STRANGER]
    if not (guessing or telling or config.noise):
        return None
    return Corruption(tokenizers[SOURCE], guessing, telling, config.strangers, config.noise)
