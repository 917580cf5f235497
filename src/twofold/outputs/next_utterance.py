"""Next-utterance prediction, to pre-train an encoder: whether the second text of a pair belongs to another row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from twofold.data.batches import Draw
from twofold.data.tokenizer import Ids, TextTokenizer
from twofold.errors import TwofoldError
from twofold.inputs import Input, InputConfig
from twofold.outputs import Output, OutputConfig
from twofold.results import Prediction, Scores
from twofold.types import Classes, HiddenSpec, Target

ANSWERS = Classes(("no", "yes"))
"""Whether the second text is another's."""


@dataclass(frozen=True)
class Config(OutputConfig):
    """Settings of next-utterance prediction."""

    takes: ClassVar[type] = Scores
    input: ClassVar[str | None] = "pair"
    draws_items: ClassVar[bool] = True

    random: float = 0.5
    """How often a pair is read with the second text of another row."""

    def __post_init__(self) -> None:
        if not 0 < self.random < 1:
            raise ValueError("random must be above 0 and below 1")

    def check(self, input: InputConfig) -> None:
        if input.texts < 2:
            raise TwofoldError("the output 'next_utterance' is told from two texts: input: {kind: pair}")

    def build(
        self, name: str, input: Input[Any], tokenizer: TextTokenizer | None, spec: HiddenSpec
    ) -> NextUtteranceOutput:
        return NextUtteranceOutput(name, self, ANSWERS)


@dataclass(frozen=True)
class NextUtteranceOutput(Output[bool]):
    """Right answers come from what is drawn and from no column."""

    config: Config
    metrics: ClassVar[tuple[str, ...]] = ("loss", "label")
    in_rows: ClassVar[bool] = False

    def change(
        self, items: Sequence[Any], values: Sequence[bool], draws: Sequence[Draw], other: Callable[[Draw], Any]
    ) -> tuple[Sequence[Any], Sequence[bool]]:
        """Some pairs with the second text of another row, and which of them have it."""
        shown = [
            (item[0], other(draw)[1]) if draw.random() < self.config.random else item
            for item, draw in zip(items, draws, strict=True)
        ]
        # Where the same text was drawn, it is no other.
        return shown, [not np.array_equal(read[1], item[1]) for read, item in zip(shown, items, strict=True)]

    def target(self, values: Sequence[bool]) -> Target:
        """(rows, 1)"""
        answers = torch.tensor(values).long()[:, None]
        return Target(answers, torch.ones_like(answers, dtype=torch.bool))

    def answer(self, given: Any, item: Any, raw: Scores, begun: Ids = ()) -> Prediction:
        """Whether the second text is another's."""
        best = int(raw.values.argmax())
        return Prediction(given, ANSWERS.names[best], float(raw.values[best]))
