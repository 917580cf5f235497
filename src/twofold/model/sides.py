"""The two sides of a model: how rows become batches, and how what a decoder made becomes an answer."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from twofold.data.batches import by_length, make_batch, make_target
from twofold.data.fields import TextField
from twofold.data.files import Row
from twofold.data.picture_fields import CaptionField, MaskField, PictureField, Seen
from twofold.data.picture_rows import captions_target, masks_target
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.model.config import SOURCE, ModelConfig
from twofold.results import Mask, Painted, Prediction, Written
from twofold.types import Batch, Classes, Target, Vocabulary

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
    def writes(self) -> Vocabulary | Classes: ...

    def target(self, rows: Sequence[Row]) -> Target: ...

    def answer(self, given: Any, item: Any, made: Any) -> Prediction:
        """What the decoder made of an item, in the form of the data."""
        ...


@dataclass(frozen=True)
class TextSource:
    """Texts as token ids."""

    field: TextField

    def read(self, rows: Sequence[Row]) -> list[list[int]]:
        """What is too long is said, then cut, or refused as the recipe said."""
        encoded = self.field.encode(rows)
        if encoded.cut:
            warnings.warn(
                f"{encoded.cut} of {len(rows)} inputs are longer than {self.field.limit} tokens and were cut",
                stacklevel=4,
            )
        return encoded.ids

    def groups(self, items: Sequence[Sequence[int]], tokens: int) -> Iterator[list[int]]:
        return by_length([len(one) for one in items], tokens)

    def batch(self, items: Sequence[Sequence[int]]) -> Batch:
        return make_batch(items, self.field.vocabulary)


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

    def target(self, rows: Sequence[Row]) -> Target:
        return make_target(self.field.encode(rows).ids, self.field.vocabulary)

    def answer(self, given: Any, item: Any, made: Written) -> Prediction:
        before = item.prefix if isinstance(item, Seen) else ()  # a caption that was begun is shown whole
        best, *others = [(self.field.decode([*before, *one.tokens]), one.score) for one in made.hypotheses]
        return Prediction(given, *best, tuple(others))


@dataclass(frozen=True)
class CaptionOutput(TextOutput):
    """Several texts for each picture, of which any is right."""

    captions: CaptionField

    def target(self, rows: Sequence[Row]) -> Target:
        written = [[np.asarray(ids) for ids in self.captions.each(row).ids] for row in rows]
        return captions_target(written, self.captions)


@dataclass(frozen=True)
class MaskOutput:
    """A class for each pixel."""

    field: MaskField

    @property
    def writes(self) -> Classes:
        return self.field.classes

    def target(self, rows: Sequence[Row]) -> Target:
        return masks_target([self.field.source.view.see_mask(self.field.gold(row)) for row in rows])

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


def source_of(field: TextField | PictureField) -> Source:
    """How a model reads that column."""
    return PictureSource(field) if isinstance(field, PictureField) else TextSource(field)


def output_of(field: TextField | CaptionField | MaskField) -> Output:
    """How a model writes that column."""
    if isinstance(field, MaskField):
        return MaskOutput(field)
    return CaptionOutput(field.text, field) if isinstance(field, CaptionField) else TextOutput(field)


def source_field(config: ModelConfig, tokenizers: Mapping[str, TextTokenizer]) -> TextField | PictureField:
    """The column that a model reads."""
    if config.picture is None:
        return TextField(config.source, tokenizers[SOURCE], config.max_source, config.too_long)
    prefix = None
    if getattr(config.encoder, "prefix", False):
        name = next((one for one in config.decoders if one in tokenizers), None)
        if name is None:
            raise TwofoldError("encoder.prefix: no decoder writes a text that could be begun")
        prefix = TextField(BEGUN, tokenizers[name], config.max_target, config.too_long)
    return PictureField(config.source, config.picture, prefix)


def target_field(
    name: str, config: ModelConfig, tokenizers: Mapping[str, TextTokenizer], source: TextField | PictureField
) -> TextField | CaptionField | MaskField:
    """The column, or columns, that one decoder of a model writes."""
    slot, masks = config.decoders[name], config.mask
    columns = (slot.target,) if isinstance(slot.target, str) else tuple(slot.target)
    if slot.part.writes == "mask":
        assert masks is not None
        assert isinstance(source, PictureField)
        return MaskField(columns[0], source, Classes(masks.classes), masks.ignore, masks.first)
    text = TextField(columns[0], tokenizers[name], config.max_target, config.too_long)
    return CaptionField(columns, text, source.refuse) if isinstance(source, PictureField) else text
