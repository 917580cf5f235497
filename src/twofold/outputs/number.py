"""Number output: one number for each input (regression), such as a similarity."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from twofold.data.files import Row
from twofold.data.tokenizer import Ids, TextTokenizer
from twofold.errors import TwofoldError
from twofold.explaining import ExplainsScores
from twofold.inputs import Input
from twofold.outputs import ColumnConfig, ColumnOutput, counted_numbers
from twofold.results import Prediction, Scores
from twofold.types import HiddenSpec, Numbers, Target

LARGEST = 1e30
"""Largest number that can be learned; its square must fit a float32."""


@dataclass(frozen=True)
class Config(ColumnConfig):
    """Settings of regression."""

    takes: ClassVar[type] = Scores

    column: str = "number"
    """Column of the number."""
    mean: float | None = None
    """Mean of the numbers, for standardization; null takes that of the training rows."""
    deviation: float | None = None
    """Standard deviation of the numbers, for standardization; null takes that of the training rows."""

    def build(self, name: str, input: Input[Any], tokenizer: TextTokenizer | None, spec: HiddenSpec) -> NumberOutput:
        return NumberOutput(name, self, Numbers(self.mean or 0.0, self.deviation or 1.0))

    def learned(self, rows: Callable[[], Iterable[Row]]) -> Self:
        if self.mean is not None and self.deviation is not None:
            return self
        numbers = [self.number_in(row) for row in rows()]
        if len(set(numbers)) == 1:
            warnings.warn(f"'{self.column}' holds {numbers[0]} and nothing else: nothing to learn", stacklevel=4)
        return replace(self, mean=float(np.mean(numbers)), deviation=float(np.std(numbers)) or 1.0)

    def number_in(self, row: Row) -> float:
        """Number in a row."""
        value = row.values.get(self.column)
        try:
            number = float("nan" if "_" in str(value) else value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            number = math.nan
        if not abs(number) <= LARGEST:
            raise TwofoldError(
                f"{row.place}: '{self.column}' is {value!r} and not a number up to {LARGEST:.0e}; "
                "mend it or remove the row"
            )
        return number


@dataclass(frozen=True)
class NumberOutput(ExplainsScores, ColumnOutput[Ids]):
    """Number output."""

    config: Config
    metrics: ClassVar[tuple[str, ...]] = ("loss", "number")
    dtype: ClassVar[str] = "float32"

    def gold(self, row: Row) -> float:
        return self.config.number_in(row)

    def numbers_in(self, row: Row) -> list[float]:
        return [self.gold(row)]

    def target(self, values: Sequence[Ids]) -> Target:
        """Targets (rows, 1)."""
        return counted_numbers(values)

    def shown(self, prediction: Prediction, named: bool = False) -> str:
        """Formats the input only: the number already stands before it as the score."""
        given = prediction.input
        return " | ".join(given) if isinstance(given, list | tuple) else str(given)

    def answer(self, given: Any, item: Any, raw: Scores, begun: Ids = ()) -> Prediction:
        return Prediction(given, float(raw.values[0]), float(raw.values[0]))
