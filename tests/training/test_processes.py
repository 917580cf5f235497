"""Two processes train as one: the same losses, whatever the number of rows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import made
from tests.conftest import small_recipe, write_jsonl
from twofold.recipe import Recipe, train
from twofold.recipe.file import to_yaml


def two_processes(folder: Path, recipe: dict[str, Any], *more: str) -> subprocess.CompletedProcess[str]:
    path = folder / "recipe.yaml"
    path.write_text(to_yaml(recipe), encoding="utf-8")
    # A c10d rendezvous picks a free port by itself, so that tests can run side by side.
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [sys.executable, *launch, "-m", "twofold", "train", str(path), "--out", str(folder / "two"), *more]
    return subprocess.run(command, capture_output=True, text=True)


def losses(folder: Path) -> list[float]:
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [line.get("loss", line.get("dev_loss")) for line in lines if line["step"]]


@pytest.fixture
def recipe(tmp_path: Path) -> dict[str, Any]:
    """Two decoders, accumulation, no dropout; batches so small that some have a single row."""
    rows = write_jsonl(tmp_path / "numbers.jsonl", made.numbers(120, seed=1))
    still = {"dropout": 0.0, "embedding": 8, "width": 12}
    content = small_recipe(rows, data={"held_out": 20})
    del content["decoder"], content["output"]
    content["encoder"] |= still
    content["decoders"] = {
        "digits": {"kind": "attention_rnn", "target": "target", "weight": 0.5, **still},
        "again": {"kind": "rnn", "target": "source", **still},
    }
    content["train"] |= {"max_steps": 20, "accumulate": 3, "batch_tokens": 20, "evaluate_every": 10}
    content["train"]["schedule"] = "constant"  # which does not depend on when the training will end
    return content


def test_two_processes_log_the_losses_of_one_also_after_a_resume(tmp_path: Path, recipe: dict[str, Any]) -> None:
    train(Recipe.of(recipe), tmp_path / "one")
    half = {**recipe, "train": {**recipe["train"], "max_steps": 10}}
    assert two_processes(tmp_path, half).returncode == 0
    done = two_processes(tmp_path, recipe, "--resume")
    assert done.returncode == 0, done.stderr
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), abs=1e-5)


def test_batch_norm_is_refused_with_several_processes(tmp_path: Path) -> None:
    rows = write_jsonl(tmp_path / "numbers.jsonl", made.numbers(50, seed=1))
    recipe = small_recipe(rows, "transformer", "transformer")
    recipe["encoder"]["norm"] = "batch"
    refused = two_processes(tmp_path, recipe)
    assert refused.returncode == 1
    assert "error: norm: batch does not go with several processes" in refused.stderr
