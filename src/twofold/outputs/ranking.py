"""Ranking output: orders candidates by how well they fit a context."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from twofold.data.batches import Moment, Plan, plan_evenly
from twofold.data.cache import Cache, Field
from twofold.data.columns import check_limit
from twofold.data.files import DataFile, Row, Sources
from twofold.data.ranking import AUTO, RankingReader
from twofold.data.ranking_batches import RankingRows, ranking_rows
from twofold.data.ranking_columns import cached_items, number_columns, ranking_columns
from twofold.data.tokenizer import TextTokenizer, TokenizerConfig
from twofold.errors import TwofoldError
from twofold.inputs import INPUT, BatchSizes, Input, InputConfig
from twofold.inputs.text import Config as TextConfig
from twofold.outputs import Output, OutputConfig, Tab
from twofold.results import CandidateScores
from twofold.types import Batch, HiddenSpec, InputBatch, Target

CANDIDATE = "candidate"
"""Name of the input with the candidates of a batch."""
LEAST = 3
"""Minimum token limit of a text, special tokens included."""


@dataclass(frozen=True)
class Config(OutputConfig):
    """Settings of ranking."""

    takes: ClassVar[type] = CandidateScores
    input: ClassVar[str | None] = "text"
    input_settings: ClassVar[Mapping[str, Any]] = {"column": "context", "max_tokens": 100, "keep": "tail"}
    joins: ClassVar[bool] = False
    tab: ClassVar[Tab] = "rank"
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
    """Input of the candidates; its column holds the right response, or a list of right ones."""
    contexts: tuple[str, ...] = ()
    """Columns of contexts where a row has several, such as captions of an image; epochs take turns."""
    responses: tuple[str, ...] = ()
    """Columns of right candidates where a row has several; epochs take turns."""

    def __post_init__(self) -> None:
        for name, limit in self.candidate.limits().items():
            check_limit(f"candidate.{name}", limit, LEAST)

    def columns(self) -> tuple[str, ...]:
        return self.responses or self.candidate.columns()

    def required(self, row: Row) -> dict[str, tuple[str, ...]]:
        given = row.values.get("candidates") is not None
        return {} if given else {"output.candidate.column": self.columns()}

    def reader(self, input: InputConfig, form: str = AUTO) -> RankingReader:
        """Reader of ranking rows."""
        columns = (input.columns()[0], self.candidate.columns()[0], input.before(), form)
        return RankingReader(*columns, self.contexts, self.responses, input.side(), self.candidate.side())

    def reversed(self, input: InputConfig) -> tuple[InputConfig, Config]:
        """Input and output of the reversed ranker, which finds contexts for candidates."""
        return self.candidate, replace(self, candidate=input, contexts=self.responses, responses=self.contexts)

    def prompts(self) -> tuple[str, ...]:
        return self.candidate.prompts()

    def row(self, row: Row, input: InputConfig) -> Row:
        return self.reader(input).row(row)

    def input_texts(self, row: Row, input: InputConfig) -> Iterable[str]:
        if not self.contexts:
            return input.row_texts(row)
        return [turn for context in self.reader(input).asked(row) for turn in context]

    def row_texts(self, row: Row) -> Iterable[str]:
        return RankingReader(response=self.candidate.columns()[0], responses=self.responses).right(row)

    def tokenizer_settings(self) -> TokenizerConfig | None:
        return self.candidate.tokenizer_settings()

    def tokenized(self, input: InputConfig) -> bool:
        return self.tokenizer_settings() is not None and input.tokenizer_settings() is None

    def name_files(self, rows: Iterable[Row], where: Sources) -> Iterator[Row]:
        return self.candidate.name_files(rows, where, (*self.columns(), "negatives", "candidates"))

    def reads_files(self, input: InputConfig) -> bool:
        return bool(input.endings or self.candidate.endings)

    def content(self, where: Sources) -> str:
        return self.candidate.content(where) if self.candidate.endings else ""

    def in_folder(self, folder: str | None) -> Self:
        return replace(self, candidate=self.candidate.in_folder(folder))

    def files(self, where: Sources, setting: str) -> dict[str, DataFile]:
        return self.candidate.files(where, setting) if self.candidate.endings else {}

    def check_batch_rows(self, rows: int | None) -> None:
        if not rows or rows < 2:
            raise ValueError("batch_rows must be at least 2: the responses of others are the wrong candidates")

    def check(self, input: InputConfig) -> None:
        super().check(input)
        for name, limit in input.limits().items():
            if limit < LEAST:
                raise TwofoldError(f"input.{name} must be at least {LEAST}, not {limit}")
        if input.skips() or self.candidate.skips():
            raise TwofoldError("broken: skip does not go with ranking, whose rows hold two sides; use broken: refuse")

    def build(self, name: str, input: Input[Any], tokenizer: TextTokenizer | None, spec: HiddenSpec) -> RankingOutput:
        candidate = (
            self.candidate.with_special_tokens(True).build(tokenizer or input.tokenizer).placed("output.candidate")
        )
        return RankingOutput(name, self, candidate.spec, input, candidate)


@dataclass(frozen=True)
class Unread(InputBatch):
    """Items that are turned into tensors when they are encoded, in chunks of similar length."""

    input: Input[Any]
    items: Sequence[Any]
    seeds: Sequence[Sequence[int]] | None = None
    """Random seeds for reading each item (augmentation); None reads items unchanged."""

    def __len__(self) -> int:
        return len(self.items)

    def to(self, device: torch.device) -> Self:
        return self

    def count(self) -> int:
        return sum(self.lengths())

    def lengths(self) -> list[int]:
        """Number of tokens of each item."""
        return [self.input.length(item) for item in self.items]


@dataclass(frozen=True, kw_only=True)
class RankingTarget(Target):
    """Right candidate of each context, (contexts,), and the mask of false negatives, (contexts, candidates)."""

    negatives: list[NDArray[np.int64]]
    """Positions of the given negatives of each context."""
    drawn: NDArray[np.int64] | None
    """Negatives (contexts, negatives) to read together with each context, for cross-encoders."""
    scores: list[NDArray[np.float32]]
    """Teacher's scores of each context's response and given negatives; empty without a teacher."""
    sizes: list[int]
    """Number of candidates of each process."""
    rank: int
    """Rank of this process."""
    allowed_contexts: Tensor | None = None
    """Mask (contexts, contexts of all processes); false where a right candidate may fit another context too."""
    context_sizes: list[int] = field(default_factory=list)
    """Number of contexts of each process."""

    @property
    def local_candidates(self) -> range:
        """Positions of this process's candidates."""
        start = sum(self.sizes[: self.rank])
        return range(start, start + self.sizes[self.rank])

    @property
    def asked(self) -> NDArray[np.int64]:
        """Candidates (contexts, 1 + negatives) to read together with each context, the right one first."""
        assert self.drawn is not None
        return np.concatenate([self.tokens.cpu().numpy()[:, None], self.drawn], 1)


@dataclass(frozen=True)
class RankingOutput(Output[None]):
    """Ranking output; targets depend on all rows of a batch, because other rows' responses are negatives."""

    config: Config
    context: Input[Any]
    candidate: Input[Any]
    metrics: ClassVar[tuple[str, ...]] = ("ranking",)
    whole: ClassVar[bool] = True

    @property
    def reader(self) -> RankingReader:
        """Reader of this model's rows."""
        return self.config.reader(self.context.config)

    def columns(self) -> dict[str, Field]:
        return ranking_columns(self.context, self.candidate, self.reader)

    def plan(self, rows: NDArray[np.int64], sizes: BatchSizes, epoch: int) -> Plan:
        """Draws batches at random: sorting by length would make the negatives similar in length."""
        assert sizes.rows
        return plan_evenly(rows, sizes.rows, sizes.seed, epoch)

    def whole_batch(self, cache: Cache, rows: NDArray[np.int64], moment: Moment, sizes: BatchSizes) -> Batch:
        items = cached_items(cache, self.context, self.candidate)
        return self.batch(ranking_rows(cache, items, rows, moment, sizes.seed, sizes.negatives), moment.progress, True)

    def batch_at_hand(self, rows: Sequence[Row], sizes: BatchSizes) -> Batch:
        """Makes one batch of rows in memory, without randomness."""
        rows = [self.reader.row(row) for row in rows]
        cache = Cache.in_memory(rows, number_columns(self.reader))

        def items(name: str, row: int) -> list[Any]:
            given = rows[row].values.get(name, [])
            side = self.context if name in ("context", "other_contexts") else self.candidate
            return side.items_of([given] if name in ("context", "response") else given)

        return self.batch(ranking_rows(cache, items, np.arange(len(rows)), Moment(), sizes.seed, sizes.negatives))

    def batch(self, share: RankingRows, progress: float = 0.0, training: bool = False) -> Batch:
        """Builds one process's share of a batch; `training` applies noise and augmentation."""
        target = RankingTarget(
            tokens=torch.from_numpy(share.right),
            mask=torch.from_numpy(share.allowed),
            negatives=share.negatives,
            drawn=share.drawn,
            scores=share.scores,
            sizes=share.sizes,
            rank=share.rank,
            allowed_contexts=torch.from_numpy(share.allowed_contexts),
            context_sizes=share.context_sizes,
        )
        seeds = (share.context_seeds, share.candidate_seeds) if training else (None, None)
        inputs: dict[str, InputBatch] = {
            INPUT: Unread(self.context, share.contexts, seeds[0]),
            CANDIDATE: Unread(self.candidate, share.candidates, seeds[1]),
        }
        return Batch(inputs, {self.name: target}, progress)
