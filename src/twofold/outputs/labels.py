"""Labels output: any number of labels for each input (multi-label classification)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from twofold.data.files import Row
from twofold.data.tokenizer import Ids, TextTokenizer
from twofold.errors import TwofoldError
from twofold.explaining import ExplainsScores
from twofold.inputs import Input
from twofold.outputs import counted_numbers
from twofold.outputs.label import NamesConfig, NamesOutput, ranked, value_in
from twofold.results import Prediction, Scores
from twofold.types import Classes, HiddenSpec, Target


@dataclass(frozen=True)
class Config(NamesConfig):
    """Settings of multi-label classification."""

    takes: ClassVar[type] = Scores

    column: str = "labels"
    """Column of the labels: a list, or a text with | in between."""

    def build(self, name: str, input: Input[Any], tokenizer: TextTokenizer | None, spec: HiddenSpec) -> LabelsOutput:
        return LabelsOutput(name, self, Classes(self.names or (), several=True))

    def names_in(self, row: Row) -> list[str]:
        value = value_in(row, self.column)
        labels = value.split("|") if isinstance(value, str) else value
        if not isinstance(labels, list):
            raise TwofoldError(f"{row.place}: '{self.column}' must be a list of labels, or a text with | between them")
        return [str(label).strip() for label in labels if str(label).strip()]


@dataclass(frozen=True)
class LabelsOutput(ExplainsScores, NamesOutput):
    """Labels output: 0 or 1 for each known label."""

    metrics: ClassVar[tuple[str, ...]] = ("loss", "labels")
    dtype: ClassVar[str] = "uint8"

    def numbers_in(self, row: Row) -> list[int]:
        right = set(super().numbers_in(row))
        return [int(number in right) for number in range(len(self.spec))]

    def target(self, values: Sequence[Ids]) -> Target:
        """Targets (rows, labels) of 0 and 1."""
        return counted_numbers(values)

    def caption(self, answer: list[str]) -> str:
        return ", ".join(answer)

    def answer(self, given: Any, item: Any, raw: Scores, begun: Ids = ()) -> Prediction:
        """Answers with all labels whose probability is above 0.5; the probability of each label is an alternative."""
        probabilities = ranked(raw, self.spec)
        likely = [name for name, probability in probabilities if probability > 0.5]
        return Prediction(given, likely, probabilities[0][1], tuple(probabilities))
