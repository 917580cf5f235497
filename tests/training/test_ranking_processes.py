"""Two processes make a ranker as one does: each other's candidates are wrong ones too, and gradients find back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from tests import made
from tests.conftest import write_jsonl
from tests.training.ranking_share import CASES, learned
from twofold.data.tokenizer import TextTokenizer
from twofold.recipe import Recipe, train

ROOT = Path(__file__).parents[2]
DECODERS: dict[str, dict[str, Any]] = {
    "poly": {"kind": "poly", "codes": 3},
    "cross": {"kind": "cross", "pooling": "mean"},
}


def recipe_of(rows: str, ranks: dict[str, Any]) -> dict[str, Any]:
    """Batches of an odd number of rows, two a step, each read twice."""
    steps = {"max_steps": 5, "batch_rows": 7, "accumulate": 2, "evaluate_every": 3, "log_every": 1}
    memory = {"chunk_tokens": 40, "memory_tokens": 0, "negatives": 3, "candidates": 4}
    return {
        "data": {"train": rows, "held_out": 12},
        "source": "source",
        "input": {"max_tokens": 30, "tokenizer": {"size": 90}},
        "output": {"candidate": {"column": "target", "max_tokens": 20}},
        "encoder": {"kind": "transformer", "width": 16, "layers": 1, "heads": 2, "dropout": 0.0},
        "decoder": ranks,
        "train": {**steps, **memory, "learning_rate": 1e-3, "warmup": 2},
    }


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, tokenizer: TextTokenizer) -> Path:
    """A folder with what two processes have done, once for all tests."""
    folder = tmp_path_factory.mktemp("two")
    tokenizer.save(folder / "tokenizer.json")
    rows = write_jsonl(folder / "numbers.jsonl", made.numbers(60, seed=1))
    recipes = {name: recipe_of(rows, ranks) for name, ranks in DECODERS.items()}
    (folder / "recipes.json").write_text(json.dumps(recipes))
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [sys.executable, *launch, "-m", "tests.training.ranking_share", str(folder)]
    env = {**os.environ, "TWOFOLD_CACHE": str(folder / "cache")}
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=env)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("name", CASES)
def test_two_processes_give_the_gradients_of_the_whole_batch(shared: Path, tokenizer: TextTokenizer, name: str) -> None:
    computed, expected = load_file(shared / f"{name}.safetensors"), learned(CASES[name], tokenizer)
    assert computed.keys() == expected.keys()
    for key, value in expected.items():
        assert (computed[key] - value).abs().max() <= 1e-5 * max(1.0, float(value.abs().max())), key


@pytest.mark.parametrize("name", DECODERS)
def test_two_processes_log_the_losses_of_one(shared: Path, tmp_path: Path, name: str) -> None:
    recipe = json.loads((shared / "recipes.json").read_text())[name]
    train(Recipe.of(recipe), tmp_path / "one")
    logs = [folder / "log.jsonl" for folder in (tmp_path / "one", shared / f"two-{name}")]
    first, two = ([json.loads(line) for line in log.read_text().splitlines()][1:] for log in logs)
    assert [line["step"] for line in two] == [line["step"] for line in first]
    for key in ("loss", "dev_mrr", "dev_r@1"):
        values = [line[key] for line in first if key in line]
        assert values
        assert [line[key] for line in two if key in line] == pytest.approx(values, abs=1e-5)
