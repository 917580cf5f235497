"""What a text or an image is: one label, several, or a number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch

from twofold.data.cache import Encoded
from twofold.data.files import Row
from twofold.data.words import numbers_of
from twofold.errors import TwofoldError
from twofold.types import Classes, Numbers, Target

Answers = Literal["one", "many", "number"]
LARGEST = 1e30
"""The largest number that can be learned; its square must still be one."""
MOST_LABELS = 20_000
"""Labels that a column may have."""


@dataclass(frozen=True)
class LabelField:
    """Reads one column."""

    counted: ClassVar[bool] = False

    column: str
    answers: Answers
    output: Classes | Numbers

    @property
    def dtype(self) -> str:
        return {"one": "int32", "many": "uint8", "number": "float32"}[self.answers]

    def settings(self) -> list[Any]:
        names = list(self.output.names) if isinstance(self.output, Classes) else []
        return ["label", self.column, self.answers, names]

    def gold(self, row: Row) -> list[str] | float:
        """The labels of a row, or its number."""
        return number_in(row, self.column) if self.answers == "number" else labels_in(row, self.column, self.answers)

    def names(self, row: Row) -> list[str]:
        """The labels of a row; a number has none."""
        found = self.gold(row)
        return [] if isinstance(found, float) else found

    def encode(self, rows: Sequence[Row]) -> Encoded:
        """The number of the label; for several a 0 or 1 for each that there is."""
        return Encoded([self._numbers(row) for row in rows])

    def target(self, rows: Sequence[Any]) -> Target:
        """(rows, 1), or (rows, labels) where there may be several."""
        tokens = torch.from_numpy(np.stack([np.asarray(row) for row in rows]))
        if self.answers == "one":
            return Target(tokens.long().clamp(min=0), tokens >= 0)
        return Target(tokens.float(), torch.ones_like(tokens, dtype=torch.bool))

    def _numbers(self, row: Row) -> list[float]:
        found = self.gold(row)
        if isinstance(found, float):
            return [found]
        assert isinstance(self.output, Classes)
        numbers = numbers_of(found, self.output)
        if self.answers == "one":
            return list(numbers)
        return [float(number in numbers) for number in range(len(self.output))]


def labels_in(row: Row, column: str, answers: str) -> list[str]:
    """The label in a column, or several: a list, or a text with | between them."""
    value = row.values.get(column)
    if value is None:
        raise TwofoldError(
            f"{row.place}: no '{column}' here; this row has {', '.join(map(str, row.values))}; data.target names it"
        )
    if answers == "many":
        several = value.split("|") if isinstance(value, str) else value
        if not isinstance(several, list):
            raise TwofoldError(f"{row.place}: '{column}' must be a list of labels, or a text with | between them")
        return [str(one).strip() for one in several if str(one).strip()]
    label = str(value).strip()
    if isinstance(value, (list, dict)) or not label:
        raise TwofoldError(f"{row.place}: '{column}' must hold one label")
    return [label]


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
