"""Label output: exactly one label for each input (classification)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np

from twofold.data.batches import pad_ids
from twofold.data.columns import UNSEEN, names_found, numbers_of, say_unseen
from twofold.data.files import Row
from twofold.data.tokenizer import Ids, TextTokenizer
from twofold.errors import TwofoldError
from twofold.explaining import ExplainsScores
from twofold.inputs import Input
from twofold.outputs import ColumnConfig, ColumnOutput
from twofold.results import Prediction, Scores
from twofold.types import Classes, HiddenSpec, Target


@dataclass(frozen=True)
class NamesConfig(ColumnConfig):
    """Settings of outputs whose column holds names, such as labels or tags; a type implements `names_in`."""

    least: ClassVar[int] = 2
    """Minimum number of different names in the training rows."""

    names: tuple[str, ...] | None = None
    """Names of all labels, tags or relations; null takes those of the training rows."""

    def names_in(self, row: Row) -> list[str]:
        """Names in a row."""
        raise NotImplementedError

    def learned(self, rows: Callable[[], Iterable[Row]]) -> Self:
        if self.names is not None:
            return self
        return replace(self, names=names_found(rows(), self.names_in, self.columns()[-1], self.least))


@dataclass(frozen=True)
class NamesOutput(ColumnOutput[Ids]):
    """Output of class ids for the names in a column."""

    config: NamesConfig
    spec: Classes

    def settings(self) -> list[Any]:
        return [*super().settings(), list(self.spec.names)]

    def names_in(self, row: Row) -> list[str]:
        """Names in a row."""
        return self.config.names_in(row)

    def gold(self, row: Row) -> Any:
        return self.names_in(row)

    def numbers_in(self, row: Row) -> list[int]:
        return numbers_of(self.names_in(row), self.spec)

    def values(self, rows: Sequence[Row]) -> Sequence[Ids]:
        say_unseen(rows, self.names_in, self.spec)
        return [self.numbers_in(row) for row in rows]

    def target(self, values: Sequence[Ids]) -> Target:
        """Class ids (rows, names)."""
        numbers = pad_ids(values, UNSEEN)[0]
        return Target(numbers.clamp(min=0), numbers >= 0)


@dataclass(frozen=True)
class Config(NamesConfig):
    """Settings of classification with one label."""

    takes: ClassVar[type] = Scores

    column: str = "label"
    """Column of the label."""

    def build(self, name: str, input: Input[Any], tokenizer: TextTokenizer | None, spec: HiddenSpec) -> LabelOutput:
        return LabelOutput(name, self, Classes(self.names or ()))

    def names_in(self, row: Row) -> list[str]:
        value = value_in(row, self.column)
        label = str(value).strip()
        if isinstance(value, (list, dict)) or not label:
            raise TwofoldError(f"{row.place}: '{self.column}' must hold one label")
        return [label]


def value_in(row: Row, column: str) -> Any:
    """Value of a column; a missing one is an error."""
    value = row.values.get(column)
    if value is None:
        raise TwofoldError(
            f"{row.place}: no '{column}' here; this row has {', '.join(map(str, row.values))}; output.column names it"
        )
    return value


@dataclass(frozen=True)
class LabelOutput(ExplainsScores, NamesOutput):
    """Label output: the class id of the label."""

    metrics: ClassVar[tuple[str, ...]] = ("loss", "label")

    def gold(self, row: Row) -> str:
        return self.names_in(row)[0]

    def answer(self, given: Any, item: Any, raw: Scores, begun: Ids = ()) -> Prediction:
        """Most likely label with its probability, then the others."""
        best, *others = ranked(raw, self.spec)
        return Prediction(given, *best, tuple(others))


def ranked(raw: Scores, classes: Classes) -> list[tuple[str, float]]:
    """Returns all labels with their probabilities, most likely first."""
    order = np.argsort(-raw.values, kind="stable")
    return [(classes.names[number], float(raw.values[number])) for number in order]
