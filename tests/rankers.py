"""Small rankers, and rows in memory that make their batches, for all tests of rankers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from twofold.data.batches import Moment
from twofold.data.cache import Cache
from twofold.data.files import Row
from twofold.data.tokenizer import TextTokenizer
from twofold.decoders import DecoderConfig
from twofold.encoders import EncoderConfig
from twofold.inputs import BatchSizes
from twofold.inputs.text import Config as TextConfig
from twofold.model import ModelConfig, Ranker, Task
from twofold.model.batches import TrainingRows
from twofold.outputs.ranking import Config as RankingOutput
from twofold.types import Batch

PAIRS: list[dict[str, Any]] = [
    {"context": ["one hundred and two", "seven"], "response": "102 and 7"},
    {"context": "eleven", "response": "11"},
    {"context": ["three", "nine hundred", "six"], "response": "3 900 6"},
    {"context": "two thousand and forty five", "response": "2045"},
    {"context": "삼백", "response": "300 삼백"},
]
"""Dialogues and single texts of unequal lengths, every response another."""
GIVEN: list[dict[str, Any]] = [
    {**PAIRS[0], "negatives": ["103", "72 or 8"], "scores": [4.0, 1.0, -2.5]},
    {**PAIRS[1], "negatives": ["12 and nothing else"], "scores": [0.5, 0.75]},
    PAIRS[2],
    {**PAIRS[3], "negatives": ["11", "45", "2"], "scores": [3.0, 0.0, 2.0, 1.0]},
    PAIRS[4],
]
"""Examples with wrong responses and a teacher's scores for some; one is another row's right response."""

SEVERAL: list[dict[str, Any]] = [
    {"context": "one", "response": ["1", "2", "3"], "negatives": ["4", " 2"], "scores": [1.0, 2.0, 3.0, 4.0, 5.0]},
    {"context": "two", "candidates": ["5", "6", "7"], "labels": [1, 2], "scores": [7.0, 8.0, 9.0]},
    {"context": "three", "response": "2"},
    {"context": "four", "response": "8", "negatives": ["6"]},
    {"context": "ONE", "response": "9"},
]
"""Rows with several right texts, some of which stand elsewhere as well."""


def ranker_config(
    reads: EncoderConfig,
    ranks: DecoderConfig,
    max_context: int = 30,
    max_candidate: int = 20,
    context: Mapping[str, Any] | None = None,
    candidate: Mapping[str, Any] | None = None,
    **settings: Any,
) -> ModelConfig:
    """The settings of a ranker; `context` and `candidate` are those of the inputs."""
    contexts = TextConfig(**{"column": "context", "max_tokens": max_context, "keep": "tail", **(context or {})})
    candidates = TextConfig(**{"column": "response", "max_tokens": max_candidate, **(candidate or {})})
    return ModelConfig(contexts, reads, {"main": Task(ranks, RankingOutput(candidate=candidates))}, **settings)


def small_ranker(
    tokenizer: TextTokenizer, reads: EncoderConfig, ranks: DecoderConfig, seed: int = 0, **settings: Any
) -> Ranker:
    """A ranker with random weights."""
    torch.manual_seed(seed)
    return Ranker(ranker_config(reads, ranks, **settings), {"input": tokenizer})


def rows_of(
    ranker: Ranker, examples: Sequence[Mapping[str, Any]], drawn: int | None = None, batch_rows: int = 8, seed: int = 1
) -> TrainingRows:
    """Examples as a training has them after reading a file."""
    rows = [ranker.reader.row(Row(f"rows:{number}", values)) for number, values in enumerate(examples, start=1)]
    cache = Cache.in_memory(rows, ranker.columns())
    sizes = BatchSizes(0, batch_rows, seed, drawn)
    return TrainingRows(cache, np.arange(len(rows)), ranker.input, [ranker.output], sizes)


def batch_of(
    ranker: Ranker, examples: Sequence[Mapping[str, Any]], drawn: int | None = None, rank: int = 0, world: int = 1
) -> Batch:
    """All examples as one batch, or one process's share of it; a ranker that reads pairs draws from all of it."""
    rows = rows_of(ranker, examples, drawn or (100 if ranker.joined else None))
    batch = rows.batch(rows.rows, Moment(rank=rank, world=world))
    assert batch is not None
    return batch


def gradients(ranker: Ranker) -> dict[str, torch.Tensor]:
    """The gradients by name, which are then forgotten."""
    by_name = {name: value.grad for name, value in ranker.named_parameters() if value.grad is not None}
    ranker.zero_grad()
    return by_name
