"""Several texts that describe the same input, any of which is right: the captions of an image."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from twofold.data.batches import Draw
from twofold.data.cache import Cache, Encoded, Field
from twofold.data.files import Row
from twofold.data.text_column import TextColumn, TooLong, check_limit
from twofold.data.tokenizer import Ids, TextTokenizer, TokenizerConfig
from twofold.inputs import Input
from twofold.inputs.image import ImageInput, each_usable
from twofold.inputs.text import make_tokens, texts_in
from twofold.outputs import OutputConfig
from twofold.outputs.text import TextOutput
from twofold.results import Hypotheses
from twofold.types import Batch, HiddenSpec, Target

PREFIX = "prefix"
"""The name of the input that holds how captions begin."""
Caption = NDArray[np.int64]


@dataclass(frozen=True)
class Config(OutputConfig):
    """Settings of captions."""

    takes: ClassVar[type] = Hypotheses
    special_tokens: ClassVar[bool] = False
    writes_text: ClassVar[bool] = True
    joins: ClassVar[bool] = False

    column: str | tuple[str, ...] = "captions"
    """The column or columns of the captions, each of which holds one or a list of them."""
    max_tokens: int = 50
    """The most tokens of a caption, and the most that are written."""
    too_long: TooLong = "cut"
    """What happens to longer ones: cut loses their tail and counts them in the log, refuse ends with the line."""
    tokenizer: TokenizerConfig | None = None
    """How captions are cut into tokens; unless given, by the tokenizer of the input, or as a tokenizer's defaults
    say."""
    prefix: float = 0.0
    """With a `vit` that reads a prefix: how often an image is read with the beginning of one of its captions, of a
    length drawn evenly from 0, whose rest is then to be written; otherwise with none, and all captions are."""

    def __post_init__(self) -> None:
        check_limit("max_tokens", self.max_tokens)
        if not self.columns():
            raise ValueError("column: names none; give one or several, such as [caption]")
        if not 0 <= self.prefix <= 1:
            raise ValueError("prefix must be from 0 to 1")

    def build(self, name: str, input: Input[Any], tokenizer: TextTokenizer | None, spec: HiddenSpec) -> CaptionsOutput:
        assert tokenizer is not None
        text = TextColumn(self.columns()[0], tokenizer, self.max_tokens, self.too_long, place="output")
        refuse = input.refuse if isinstance(input, ImageInput) else True
        return CaptionsOutput(name, text, captions=self.columns(), refuse=refuse, prefix=self.prefix)

    def columns(self) -> tuple[str, ...]:
        return (self.column,) if isinstance(self.column, str) else self.column

    def row_texts(self, row: Row) -> list[str]:
        return texts_in(row, self.columns())

    def tokenizer_settings(self) -> TokenizerConfig | None:
        return self.tokenizer

    def begins(self) -> bool:
        return self.prefix > 0


@dataclass(frozen=True, kw_only=True)
class CaptionsOutput(TextOutput):
    """The ids of each caption; `text` says how one of them is read."""

    captions: tuple[str, ...]
    refuse: bool
    """Whether an empty one is an error; otherwise its row is left out."""
    prefix: float

    counted: ClassVar[bool] = False

    @property
    def metrics(self) -> tuple[str, ...]:
        return ("likelihood", "captions")

    @property
    def dtype(self) -> str:
        return self.text.dtype

    def settings(self) -> list[Any]:
        return ["captions", list(self.captions), self.refuse, self.text.settings()]

    def columns(self) -> dict[str, Field]:
        return {self.name: self}

    def texts(self, row: Row) -> list[str]:
        """All captions of a row; a column may hold several."""
        return texts_in(row, self.captions)

    def encode(self, rows: Sequence[Row]) -> Encoded:
        """The ids of all captions of a row one after another, each with its end symbol."""
        cut, end = 0, self.text.tokenizer.end

        def numbers(row: Row) -> list[int]:
            nonlocal cut
            encoded = self._encoded(row)
            cut += encoded.cut
            return [token for ids in encoded.ids for token in (*ids, end)]

        return Encoded(each_usable(rows, numbers, self.refuse).ids, cut)

    def _encoded(self, row: Row) -> Encoded:
        return self.text.encode([Row(row.place, {self.text.column: text}) for text in self.texts(row)])

    def values(self, rows: Sequence[Row]) -> Sequence[Any]:
        return [[np.asarray(ids) for ids in self._encoded(row).ids] for row in rows]

    def cached(self, cache: Cache, row: int) -> Any:
        numbers = cache.columns[self.name].row(row)
        ends = np.flatnonzero(numbers == self.text.tokenizer.end)
        return [ids[:-1] for ids in np.split(numbers, ends + 1)[:-1]]

    def target(self, values: Sequence[Any]) -> Target:
        """All captions of some rows, each with the number of its row."""
        owners = [number for number, captions in enumerate(values) for _ in captions]
        target = self.text_target([ids for captions in values for ids in captions])
        return replace(target, rows=torch.tensor(owners))

    def add_target(self, batch: Batch, values: Sequence[Any], draws: Sequence[Draw], training: bool) -> Batch:
        if training and self.prefix:
            begun = [self._begin(captions, draw) for captions, draw in zip(values, draws, strict=True)]
            batch = batch.with_input(PREFIX, make_tokens([beginning for beginning, _ in begun], self.spec))
            values = [rest for _, rest in begun]
        return batch.with_target(self.name, self.target(values))

    def _begin(self, captions: list[Caption], draw: Draw) -> tuple[Ids, list[Caption]]:
        """The beginning of one caption and its rest; or no beginning, and all captions."""
        if draw.random() >= self.prefix:
            return (), captions
        chosen = captions[draw.integers(len(captions))]
        length = int(draw.integers(len(chosen)))
        return chosen[:length].tolist(), [chosen[length:]]
