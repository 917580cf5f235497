"""What tests of rankers share: small rankers, and rows in memory that make their batches."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

from twofold.config import DecoderPart, EncoderPart
from twofold.data.batches import Moment
from twofold.data.cache import Cache, Column
from twofold.data.files import Row
from twofold.data.ranking_batches import RankingBatch, RankingRows
from twofold.data.tokenizer import TextTokenizer
from twofold.model import Ranker, RankerConfig

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
"""The same with wrong responses and a teacher's scores for some of them; one is another row's right response."""

SEVERAL: list[dict[str, Any]] = [
    {"context": "one", "response": ["1", "2", "3"], "negatives": ["4", " 2"], "scores": [1.0, 2.0, 3.0, 4.0, 5.0]},
    {"context": "two", "candidates": ["5", "6", "7"], "labels": [1, 2], "scores": [7.0, 8.0, 9.0]},
    {"context": "three", "response": "2"},
    {"context": "four", "response": "8", "negatives": ["6"]},
    {"context": "ONE", "response": "9"},
]
"""Rows with several right texts, some of which stand elsewhere as well."""


def small_ranker(
    tokenizer: TextTokenizer, reads: EncoderPart, ranks: DecoderPart, seed: int = 0, **settings: Any
) -> Ranker:
    """A ranker with random weights."""
    torch.manual_seed(seed)
    return Ranker(RankerConfig(reads, ranks, **{"max_context": 30, "max_candidate": 20, **settings}), tokenizer)


def rows_of(
    ranker: Ranker, examples: Sequence[Mapping[str, Any]], drawn: int | None = None, batch_rows: int = 8, seed: int = 1
) -> RankingRows:
    """Examples as a training has them after reading a file."""
    rows = [ranker.reader.row(Row(f"rows:{number}", one)) for number, one in enumerate(examples, start=1)]
    fields = ranker.columns(ranker.reader)
    columns = {}
    for name, field in fields.items():
        ids = field.encode(rows).ids
        ends = np.cumsum([0, *map(len, ids)], dtype=np.int64)
        columns[name] = Column(np.array(list(itertools.chain(*ids)), field.dtype), ends)
    cache = Cache(columns, len(rows), dict.fromkeys(fields, 0))
    return RankingRows(cache, np.arange(len(rows)), batch_rows, seed, drawn)


def batch_of(
    ranker: Ranker, examples: Sequence[Mapping[str, Any]], drawn: int | None = None, rank: int = 0, world: int = 1
) -> RankingBatch:
    """All examples as one batch, or one process's share of it; a ranker that reads pairs draws from all of it."""
    rows = rows_of(ranker, examples, drawn or (100 if ranker.joined else None))
    return rows.batch(rows.rows, Moment(rank=rank, world=world))


def gradients(ranker: Ranker) -> dict[str, torch.Tensor]:
    """The gradients by name, which are then forgotten."""
    found = {name: value.grad for name, value in ranker.named_parameters() if value.grad is not None}
    ranker.zero_grad()
    return found
