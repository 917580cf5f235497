"""Captions output: several texts that describe the same input, any of which is right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from twofold.data.batches import Draw
from twofold.data.cache import Cache, Encoded, Field
from twofold.data.columns import vocabulary_of
from twofold.data.file_columns import each_usable
from twofold.data.files import Row
from twofold.data.tokenizer import Ids, TextTokenizer
from twofold.inputs import Input
from twofold.inputs.text import make_tokens
from twofold.outputs.text import TextOutput, WrittenConfig
from twofold.types import Batch, HiddenSpec, Target

PREFIX = "prefix"
"""Name of the input with the prefixes of captions."""
Caption = NDArray[np.int64]


@dataclass(frozen=True)
class Config(WrittenConfig):
    """Settings of captions."""

    column: str | tuple[str, ...] = "captions"
    """Columns of the captions; each holds a caption or a list of them."""
    max_tokens: int = 50
    """Maximum number of tokens of a caption, in training and generation."""
    prefix: float = 0.0
    """Probability that a training image is read with the prefix of one of its captions, of random length, whose rest is
    the target; needs a `vit` encoder that reads a prefix. 0 always learns all captions without a prefix."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.columns():
            raise ValueError("column: names none; give one or several, such as [caption]")
        if not 0 <= self.prefix <= 1:
            raise ValueError("prefix must be from 0 to 1")

    def build(self, name: str, input: Input[Any], tokenizer: TextTokenizer | None, spec: HiddenSpec) -> CaptionsOutput:
        text = self.text_column(tokenizer)
        vocabulary = vocabulary_of(text.tokenizer, text.limit)
        return CaptionsOutput(name, self, vocabulary, text, skips=input.config.skips())

    def begins(self) -> bool:
        return self.prefix > 0


@dataclass(frozen=True)
class CaptionsOutput(TextOutput):
    """Captions output: token ids of each caption; `text` tokenizes one."""

    config: Config
    skips: bool = field(kw_only=True)
    """True if rows with an empty caption are skipped; otherwise they are an error."""
    counted: ClassVar[bool] = False
    metrics: ClassVar[tuple[str, ...]] = ("likelihood", "captions")

    @property
    def dtype(self) -> str:
        return self.text.dtype

    def settings(self) -> list[Any]:
        return ["captions", list(self.config.columns()), not self.skips, self.text.settings()]

    def columns(self) -> dict[str, Field]:
        return {self.name: self}

    def texts(self, row: Row) -> list[str]:
        """Captions of a row; a column may hold several."""
        return self.config.row_texts(row)

    def encode(self, rows: Sequence[Row]) -> Encoded:
        """Concatenated token ids of all captions of a row, each with its end symbol."""
        cut, end = 0, self.text.tokenizer.end

        def numbers(row: Row) -> list[int]:
            nonlocal cut
            encoded = self._encoded(row)
            cut += encoded.cut
            return [token for ids in encoded.ids for token in (*ids, end)]

        return Encoded(each_usable(rows, numbers, self.skips).ids, cut)

    def _encoded(self, row: Row) -> Encoded:
        return self.text.encode([Row(row.place, {self.text.column: text}) for text in self.texts(row)])

    def values(self, rows: Sequence[Row]) -> Sequence[Any]:
        return [[np.asarray(ids) for ids in self._encoded(row).ids] for row in rows]

    def cached(self, cache: Cache, row: int) -> Any:
        numbers = cache.columns[self.name].row(row)
        ends = np.flatnonzero(numbers == self.text.tokenizer.end)
        return [ids[:-1] for ids in np.split(numbers, ends + 1)[:-1]]

    def target(self, values: Sequence[Any]) -> Target:
        """Target of all captions of the rows, each with its row number."""
        owners = [number for number, captions in enumerate(values) for _ in captions]
        target = self.text_target([ids for captions in values for ids in captions])
        return replace(target, rows=torch.tensor(owners))

    def add_target(self, batch: Batch, values: Sequence[Any], draws: Sequence[Draw], training: bool) -> Batch:
        if training and self.config.prefix:
            begun = [self._begin(captions, draw) for captions, draw in zip(values, draws, strict=True)]
            batch = batch.with_input(PREFIX, make_tokens([beginning for beginning, _ in begun], self.spec))
            values = [rest for _, rest in begun]
        return batch.with_target(self.name, self.target(values))

    def _begin(self, captions: list[Caption], draw: Draw) -> tuple[Ids, list[Caption]]:
        """Splits one caption into a prefix and its rest; or returns an empty prefix and all captions."""
        if draw.random() >= self.config.prefix:
            return (), captions
        chosen = captions[draw.integers(len(captions))]
        length = int(draw.integers(len(chosen)))
        return chosen[:length].tolist(), [chosen[length:]]
