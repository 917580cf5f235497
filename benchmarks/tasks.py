"""Each pair learns tasks it must be able to learn: copying, reversing, reading spelled-out numbers."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from _common import save

import twofold
from tests import made
from twofold.recipe import Recipe, train

SIZES: dict[str, dict[str, Any]] = {
    "rnn": {"embedding": 48, "width": 128, "dropout": 0.0},
    "attention_rnn": {"embedding": 48, "width": 96, "dropout": 0.0},
    "transformer": {"width": 64, "layers": 2, "feed_forward": 128, "dropout": 0.0},
}
PAIRS = (("rnn", "rnn"), ("rnn", "attention_rnn"), ("transformer", "transformer"))
TASKS: dict[str, Callable[..., list[made.Pair]]] = {"copy": made.copy, "reverse": made.reverse, "numbers": made.numbers}


def recipe(rows: Path, reads: str, writes: str) -> dict[str, Any]:
    """Training settings for every pair and task."""
    rate = 3e-3 if writes == "transformer" else 5e-3
    return {
        "data": {"train": str(rows), "held_out": 200},
        "input": {"tokenizer": {"size": 120}},
        "encoder": {"kind": reads, **SIZES[reads]},
        "decoder": {"kind": writes, **SIZES[writes]},
        "train": {"max_steps": 1800, "batch_tokens": 400, "learning_rate": rate, "warmup": 50, "ema": 0.99},
    }


def main() -> None:
    torch.set_num_threads(1)
    results = []
    for task, make in TASKS.items():
        for reads, writes in PAIRS:
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder) / "rows.jsonl"
                file.write_text("".join(json.dumps(row) + "\n" for row in make(12_000, seed=1)))
                start = time.process_time()
                train(Recipe.of(recipe(file, reads, writes)), Path(folder) / "run")
                seconds = time.process_time() - start
                # Rows that were not learned from, even by chance.
                known = {json.loads(line)["source"] for line in file.read_text().splitlines()}
                test = [row for row in make(4000, seed=2) if row["source"] not in known][:1000]
                exact = twofold.evaluate(Path(folder) / "run", test).metrics["exact_match"]
            results.append({"task": task, "encoder": reads, "decoder": writes, "exact_match": exact, "rows": len(test)})
            print(
                f"{task:8} {reads:11} → {writes:13} exact match {exact:.1%} of {len(test)} ({seconds:.0f} CPU s)",
                flush=True,
            )
    save("tasks", {"tasks": results})


if __name__ == "__main__":
    main()
