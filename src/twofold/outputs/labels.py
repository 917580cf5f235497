"""What a text or an image is: any number of labels."""

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
from twofold.outputs.label import ranked, value_in
from twofold.results import Prediction, Scores
from twofold.types import Classes, HiddenSpec, Target


@dataclass(frozen=True)
class Config(OutputConfig):
    """Settings of any number of labels."""

    takes: ClassVar[type] = Scores

    column: str = "labels"
    """The column or key of the labels: a list, or a text with | between them."""
    names: tuple[str, ...] | None = None
    """All labels; unless given, those of the training rows."""

    def build(self, name: str, input: Input[Any], tokenizer: TextTokenizer | None, spec: HiddenSpec) -> LabelsOutput:
        return LabelsOutput(name, self.column, Classes(self.names or (), several=True))

    def columns(self) -> tuple[str, ...]:
        return (self.column,)

    def learned(self, rows: Callable[[], Iterable[Row]]) -> Self:
        if self.names is not None:
            return self
        return replace(self, names=names_found(rows(), lambda row: labels_in(row, self.column), self.column))


def labels_in(row: Row, column: str) -> list[str]:
    """The labels in a column."""
    value = value_in(row, column)
    labels = value.split("|") if isinstance(value, str) else value
    if not isinstance(labels, list):
        raise TwofoldError(f"{row.place}: '{column}' must be a list of labels, or a text with | between them")
    return [str(label).strip() for label in labels if str(label).strip()]


@dataclass(frozen=True)
class LabelsOutput(ColumnOutput[Ids]):
    """A 0 or a 1 for each label that there is."""

    column: str
    classes: Classes
    metrics: ClassVar[tuple[str, ...]] = ("loss", "labels")

    @property
    def dtype(self) -> str:
        return "uint8"

    @property
    def spec(self) -> Classes:
        return self.classes

    def settings(self) -> list[Any]:
        return ["labels", self.column, list(self.classes.names)]

    def gold(self, row: Row) -> list[str]:
        """The right labels of a row."""
        return labels_in(row, self.column)

    def encode(self, rows: Sequence[Row]) -> Encoded:
        numbers = [set(numbers_of(self.gold(row), self.classes)) for row in rows]
        return Encoded([[float(number in right) for number in range(len(self.classes))] for right in numbers])

    def values(self, rows: Sequence[Row]) -> Sequence[Ids]:
        say_unseen(rows, self.gold, self.classes)
        return super().values(rows)

    def target(self, values: Sequence[Ids]) -> Target:
        """(rows, labels)"""
        numbers = torch.from_numpy(np.stack([np.asarray(value) for value in values]))
        return Target(numbers.float(), torch.ones_like(numbers, dtype=torch.bool))

    def caption(self, answer: list[str]) -> str:
        return ", ".join(answer)

    def shown(self, prediction: Prediction, named: bool = False) -> str:
        labels = self.caption(prediction.output)
        return f"{prediction.input}: {labels}" if named else labels

    def answer(self, given: Any, item: Any, raw: Scores, begun: Ids = ()) -> Prediction:
        """All labels that are more likely than not, and the probability of each."""
        probabilities = ranked(raw, self.classes)
        likely = [name for name, probability in probabilities if probability > 0.5]
        return Prediction(given, likely, probabilities[0][1], tuple(probabilities))
