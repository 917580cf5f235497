"""What a text or an image is: exactly one label."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch

from twofold.data.cache import Encoded
from twofold.data.files import Row
from twofold.data.tokenizer import Ids, TextTokenizer
from twofold.data.words_in_rows import names_found, numbers_of, say_unseen
from twofold.errors import TwofoldError
from twofold.inputs import Input
from twofold.outputs import ColumnOutput, OutputConfig
from twofold.results import Prediction, Scores
from twofold.types import Classes, HiddenSpec, Target


def value_in(row: Row, column: str) -> Any:
    """What a column holds; one that is not there is an error."""
    value = row.values.get(column)
    if value is None:
        raise TwofoldError(
            f"{row.place}: no '{column}' here; this row has {', '.join(map(str, row.values))}; output.column names it"
        )
    return value


@dataclass(frozen=True)
class Config(OutputConfig):
    """Settings of one label."""

    takes: ClassVar[type] = Scores

    column: str = "label"
    """The column or key of the label."""
    names: tuple[str, ...] | None = None
    """All labels; unless given, those of the training rows."""

    def build(self, name: str, input: Input[Any], tokenizer: TextTokenizer | None, spec: HiddenSpec) -> LabelOutput:
        return LabelOutput(name, self.column, Classes(self.names or ()))

    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def learned(self, rows: Callable[[], Iterable[Row]]) -> Self:
        if self.names is not None:
            return self
        return replace(self, names=names_found(rows(), lambda row: [label_in(row, self.column)], self.column))


def label_in(row: Row, column: str) -> str:
    """The label in a column."""
    value = value_in(row, column)
    label = str(value).strip()
    if isinstance(value, (list, dict)) or not label:
        raise TwofoldError(f"{row.place}: '{column}' must hold one label")
    return label


@dataclass(frozen=True)
class LabelOutput(ColumnOutput[Ids]):
    """The number of the label."""

    column: str
    classes: Classes
    metrics: ClassVar[tuple[str, ...]] = ("loss", "label")

    @property
    def spec(self) -> Classes:
        return self.classes

    def settings(self) -> list[Any]:
        return ["label", self.column, list(self.classes.names)]

    def gold(self, row: Row) -> str:
        """The right label of a row."""
        return label_in(row, self.column)

    def encode(self, rows: Sequence[Row]) -> Encoded:
        return Encoded([numbers_of([self.gold(row)], self.classes) for row in rows])

    def values(self, rows: Sequence[Row]) -> Sequence[Ids]:
        say_unseen(rows, lambda row: [self.gold(row)], self.classes)
        return super().values(rows)

    def target(self, values: Sequence[Ids]) -> Target:
        """(rows, 1)"""
        numbers = torch.from_numpy(np.stack([np.asarray(value) for value in values]))
        return Target(numbers.long().clamp(min=0), numbers >= 0)

    def answer(self, given: Any, item: Any, raw: Scores, begun: Ids = ()) -> Prediction:
        """The likeliest label with its probability, then the others."""
        best, *others = ranked(raw, self.classes)
        return Prediction(given, *best, tuple(others))


def ranked(raw: Scores, classes: Classes) -> list[tuple[str, float]]:
    """All labels with their probabilities, likeliest first."""
    order = np.argsort(-raw.values, kind="stable")
    return [(classes.names[number], float(raw.values[number])) for number in order]
