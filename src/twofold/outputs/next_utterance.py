"""Predicts whether the second text of a pair comes from another row (next-utterance prediction, pre-training)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from twofold.data.batches import Draw
from twofold.data.tokenizer import Ids, TextTokenizer
from twofold.errors import TwofoldError
from twofold.explaining import ExplainsScores
from twofold.inputs import Input, InputConfig
from twofold.outputs import Output, OutputConfig
from twofold.results import Prediction, Scores
from twofold.types import Classes, HiddenSpec, Target

ANSWERS = Classes(("no", "yes"))
"""Classes: "yes" if the second text comes from another row."""


@dataclass(frozen=True)
class Config(OutputConfig):
    """Settings of next-utterance prediction (next-sentence prediction in BERT)."""

    takes: ClassVar[type] = Scores
    input: ClassVar[str | None] = "pair"
    draws_items: ClassVar[bool] = True

    random: float = 0.5
    """Probability that the second text is taken from another row, above 0 and below 1."""

    def __post_init__(self) -> None:
        if not 0 < self.random < 1:
            raise ValueError("random must be above 0 and below 1")

    def check(self, input: InputConfig) -> None:
        if input.texts < 2:
            raise TwofoldError("the output 'next_utterance' needs two texts: input: {kind: pair}")

    def build(
        self, name: str, input: Input[Any], tokenizer: TextTokenizer | None, spec: HiddenSpec
    ) -> NextUtteranceOutput:
        return NextUtteranceOutput(name, self, ANSWERS)


@dataclass(frozen=True)
class NextUtteranceOutput(ExplainsScores, Output[bool]):
    """Next-utterance output; targets come from the random choice, not from a column."""

    config: Config
    metrics: ClassVar[tuple[str, ...]] = ("loss", "label")
    in_rows: ClassVar[bool] = False

    def change(
        self, items: Sequence[Any], values: Sequence[bool], draws: Sequence[Draw], other: Callable[[Draw], Any]
    ) -> tuple[Sequence[Any], Sequence[bool]]:
        """Replaces the second text of some pairs by another row's; the targets say which."""
        shown = [
            (item[0], other(draw)[1]) if draw.random() < self.config.random else item
            for item, draw in zip(items, draws, strict=True)
        ]
        # A row with the same text is not another text.
        return shown, [not np.array_equal(read[1], item[1]) for read, item in zip(shown, items, strict=True)]

    def target(self, values: Sequence[bool]) -> Target:
        """Targets (rows, 1)."""
        answers = torch.tensor(values).long()[:, None]
        return Target(answers, torch.ones_like(answers, dtype=torch.bool))

    def answer(self, given: Any, item: Any, raw: Scores, begun: Ids = ()) -> Prediction:
        """Answers "yes" if the second text comes from another row."""
        best = int(raw.values.argmax())
        return Prediction(given, ANSWERS.names[best], float(raw.values[best]))
