"""Each pair learns a task it must be able to learn."""

from __future__ import annotations

from pathlib import Path

import pytest

import twofold
from tests import made
from tests.conftest import write_jsonl
from twofold.recipe import Recipe, train

SIZES = {
    "rnn": {"embedding": 48, "width": 128, "dropout": 0.0},
    "attention_rnn": {"embedding": 48, "width": 96, "dropout": 0.0},
    "transformer": {"width": 64, "layers": 2, "feed_forward": 128, "dropout": 0.0},
}


@pytest.mark.parametrize("parts", [("rnn", "rnn"), ("rnn", "attention_rnn"), ("transformer", "transformer")])
def test_a_pair_learns_to_read_numbers(tmp_path: Path, parts: tuple[str, str]) -> None:
    learned = made.numbers(6000, seed=1)
    rows = write_jsonl(tmp_path / "numbers.jsonl", learned)
    reads, writes = parts
    rate = 3e-3 if writes == "transformer" else 5e-3
    settings = {"max_steps": 1800, "batch_tokens": 400, "learning_rate": rate, "warmup": 50, "ema": 0.99}
    content = {
        "data": {"train": rows},
        "input": {"tokenizer": {"size": 120}},
        "encoder": {"kind": reads, **SIZES[reads]},
        "decoder": {"kind": writes, **SIZES[writes]},
        "train": settings,
    }
    train(Recipe.of(content), tmp_path / "run")
    known = {row["source"] for row in learned}
    unseen = [row for row in made.numbers(1000, seed=2) if row["source"] not in known][:300]
    assert twofold.evaluate(tmp_path / "run", unseen).metrics["exact_match"] > 0.95
