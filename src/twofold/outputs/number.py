"""A number that a text or an image is worth, such as a similarity."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch

from twofold.data.cache import Encoded
from twofold.data.files import Row
from twofold.data.tokenizer import Ids, TextTokenizer
from twofold.errors import TwofoldError
from twofold.inputs import Input
from twofold.outputs import ColumnOutput, OutputConfig
from twofold.results import Prediction, Scores
from twofold.types import HiddenSpec, Numbers, Target

LARGEST = 1e30
"""The largest number that can be learned; its square must still be one."""


@dataclass(frozen=True)
class Config(OutputConfig):
    """Settings of a number."""

    takes: ClassVar[type] = Scores

    column: str = "number"
    """The column or key of the number."""
    mean: float | None = None
    """The mean of the numbers; unless given, that of the training rows."""
    deviation: float | None = None
    """Their standard deviation; unless given, that of the training rows."""

    def build(self, name: str, input: Input[Any], tokenizer: TextTokenizer | None, spec: HiddenSpec) -> NumberOutput:
        return NumberOutput(name, self.column, Numbers(self.mean or 0.0, self.deviation or 1.0))

    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def learned(self, rows: Callable[[], Iterable[Row]]) -> Self:
        if self.mean is not None and self.deviation is not None:
            return self
        numbers = [number_in(row, self.column) for row in rows()]
        if len(set(numbers)) == 1:
            warnings.warn(f"'{self.column}' holds {numbers[0]} and nothing else: nothing to learn", stacklevel=4)
        return replace(self, mean=float(np.mean(numbers)), deviation=float(np.std(numbers)) or 1.0)


def number_in(row: Row, column: str) -> float:
    """The number in a column."""
    value = row.values.get(column)
    try:
        number = float("nan" if "_" in str(value) else value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = math.nan
    if not abs(number) <= LARGEST:
        raise TwofoldError(
            f"{row.place}: '{column}' is {value!r} and not a number up to {LARGEST:.0e}; mend it or remove the row"
        )
    return number


@dataclass(frozen=True)
class NumberOutput(ColumnOutput[Ids]):
    """The number itself."""

    column: str
    numbers: Numbers
    metrics: ClassVar[tuple[str, ...]] = ("loss", "number")

    @property
    def dtype(self) -> str:
        return "float32"

    @property
    def spec(self) -> Numbers:
        return self.numbers

    def settings(self) -> list[Any]:
        return ["number", self.column]

    def gold(self, row: Row) -> float:
        """The right number of a row."""
        return number_in(row, self.column)

    def encode(self, rows: Sequence[Row]) -> Encoded:
        return Encoded([[self.gold(row)] for row in rows])

    def target(self, values: Sequence[Ids]) -> Target:
        """(rows, 1)"""
        numbers = torch.from_numpy(np.stack([np.asarray(value) for value in values]))
        return Target(numbers.float(), torch.ones_like(numbers, dtype=torch.bool))

    def shown(self, prediction: Prediction, named: bool = False) -> str:
        """The input: the number itself stands before it as the score."""
        given = prediction.input
        return " | ".join(given) if isinstance(given, list | tuple) else str(given)

    def answer(self, given: Any, item: Any, raw: Scores, begun: Ids = ()) -> Prediction:
        return Prediction(given, float(raw.values[0]), float(raw.values[0]))
