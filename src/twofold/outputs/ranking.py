"""An order of candidates: which responses fit a context best."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from twofold.data.batches import Moment, Plan, plan_evenly
from twofold.data.cache import Cache, Field
from twofold.data.columns import check_limit
from twofold.data.files import Row
from twofold.data.ranking import AUTO, RankingReader
from twofold.data.ranking_batches import ranking_columns, ranking_rows
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.inputs import INPUT, BatchSizes, Input, InputConfig, Unread
from twofold.inputs.text import Config as TextConfig
from twofold.inputs.text import TextInput, Tokens
from twofold.outputs import Output, OutputConfig
from twofold.results import CandidateScores
from twofold.types import Batch, HiddenSpec, InputBatch, Target

CANDIDATE = "candidate"
"""The name of the input that holds the candidates of a batch."""
LEAST = 3
"""The fewest tokens of a text that are worth reading, special ones included."""


@dataclass(frozen=True)
class Config(OutputConfig):
    """Settings of a ranking."""

    takes: ClassVar[type] = CandidateScores
    input: ClassVar[str | None] = "text"
    input_settings: ClassVar[Mapping[str, Any]] = {"column": "context", "max_tokens": 100, "keep": "tail"}
    reads: ClassVar[type[InputBatch]] = Tokens
    joins: ClassVar[bool] = False
    training: ClassVar[Mapping[str, Any]] = {
        "epochs": 3,
        "batch_rows": 32,
        "learning_rate": 5e-5,
        "beta2": 0.999,
        "warmup": 2000,
        "warmup_share": 0.1,
        "best": "mrr",
    }

    parts: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "candidate": {"kind": "text", "column": "response", "max_tokens": 50}
    }

    candidate: InputConfig = field(default_factory=lambda: TextConfig(column="response", max_tokens=50))
    """How candidates are read; their column holds the right response, or a list of right ones."""

    def __post_init__(self) -> None:
        for name, limit in self.candidate.limits().items():
            check_limit(f"candidate.{name}", limit, LEAST)

    def columns(self) -> tuple[str, ...]:
        return self.candidate.columns()

    def required(self, row: Row) -> dict[str, tuple[str, ...]]:
        given = row.values.get("candidates") is not None
        return {} if given else {"output.candidate.column": self.columns()}

    def reader(self, input: InputConfig, form: str = AUTO) -> RankingReader:
        """Reads rows of a context and its candidates."""
        assert isinstance(input, TextConfig)
        return RankingReader(input.column, self.columns()[0], input.preface, form)

    def prompts(self) -> tuple[str, ...]:
        return self.candidate.prompts()

    def row(self, row: Row, input: InputConfig) -> Row:
        return self.reader(input).row(row)

    def row_texts(self, row: Row) -> Iterable[str]:
        return RankingReader(response=self.columns()[0]).right(row)

    def check_batch_rows(self, rows: int | None) -> None:
        if not rows or rows < 2:
            raise ValueError("batch_rows must be at least 2: the responses of others are the wrong candidates")

    def check(self, input: InputConfig) -> None:
        super().check(input)
        for name, limit in input.limits().items():
            if limit < LEAST:
                raise TwofoldError(f"input.{name} must be at least {LEAST}, not {limit}")

    def build(self, name: str, input: Input[Any], tokenizer: TextTokenizer | None, spec: HiddenSpec) -> RankingOutput:
        candidate = self.candidate.with_special_tokens(True).build(tokenizer or input.tokenizer)
        assert isinstance(input, TextInput)
        assert isinstance(candidate, TextInput)
        candidate = replace(candidate, text=replace(candidate.text, place="output.candidate"))
        return RankingOutput(name, self, candidate.vocabulary, input, candidate)


@dataclass(frozen=True, kw_only=True)
class RankingTarget(Target):
    """The right candidate of each context, (contexts,), and which candidates may be wrong for it, (contexts,
    candidates)."""

    negatives: list[NDArray[np.int64]]
    """For each context the numbers of the negatives that were given with it."""
    drawn: NDArray[np.int64] | None
    """(contexts, negatives): the wrong candidates to read each context with, where the two are read as one."""
    scores: list[NDArray[np.float32]]
    """A teacher's scores of each context's response and given negatives; empty where there is no teacher."""
    sizes: list[int]
    """How many of the candidates are whose, process by process."""
    rank: int
    """The number of this process."""

    @property
    def own(self) -> range:
        """The numbers of this process's candidates."""
        start = sum(self.sizes[: self.rank])
        return range(start, start + self.sizes[self.rank])

    @property
    def asked(self) -> NDArray[np.int64]:
        """(contexts, 1 + negatives): the candidates to read each context with as one text, the right one first."""
        assert self.drawn is not None
        return np.concatenate([self.tokens.cpu().numpy()[:, None], self.drawn], 1)


@dataclass(frozen=True)
class RankingOutput(Output[None]):
    """Right answers of a row depend on all rows of its batch: the responses of the others are its negatives."""

    config: Config
    context: TextInput
    candidate: TextInput
    metrics: ClassVar[tuple[str, ...]] = ("ranking",)
    whole: ClassVar[bool] = True

    @property
    def reader(self) -> RankingReader:
        """Reads rows in the form of this model's data."""
        return self.config.reader(self.context.config)

    def columns(self) -> dict[str, Field]:
        return ranking_columns(self.context.text, self.candidate.text, self.reader)

    def plan(self, rows: NDArray[np.int64], sizes: BatchSizes, epoch: int) -> Plan:
        """Batches drawn at random: rows of like length would make the wrong candidates look alike in length."""
        assert sizes.rows
        return plan_evenly(rows, sizes.rows, sizes.seed, epoch)

    def whole_batch(self, cache: Cache, rows: NDArray[np.int64], moment: Moment, sizes: BatchSizes) -> Batch:
        """The share of one process in a batch."""
        share = ranking_rows(cache, rows, moment, sizes.seed, sizes.negatives)
        target = RankingTarget(
            tokens=torch.from_numpy(share.right),
            mask=torch.from_numpy(share.allowed),
            negatives=share.negatives,
            drawn=share.drawn,
            scores=share.scores,
            sizes=share.sizes,
            rank=share.rank,
        )
        inputs = {INPUT: Unread(self.context, share.contexts), CANDIDATE: Unread(self.candidate, share.candidates)}
        return Batch(inputs, {self.name: target}, moment.progress)
