"""Two trainings never share a folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests import made
from tests.conftest import small_recipe, write_jsonl
from tests.training.test_resume import wait_for_steps
from twofold.recipe.file import to_yaml


def command(recipe: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "twofold", "train", str(recipe), "--out", str(recipe.parent / "run"), *more]


def test_a_folder_in_which_a_training_runs_is_refused_and_free_after_a_kill(tmp_path: Path) -> None:
    rows = write_jsonl(tmp_path / "rows.jsonl", made.numbers(60, seed=1))
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(to_yaml(small_recipe(rows, train={"max_steps": 100_000, "save_every": 5})), encoding="utf-8")
    with subprocess.Popen(command(recipe), stderr=subprocess.DEVNULL) as first:
        try:
            wait_for_steps(tmp_path / "run", 6)
            second = subprocess.run(command(recipe, "--resume"), capture_output=True, text=True)
        finally:
            first.kill()
    assert second.returncode == 1
    (line,) = second.stderr.splitlines()
    assert line.startswith(f"error: {tmp_path / 'run'}: another process ({first.pid} on ")
    assert line.endswith(" is training here; wait for it or choose another folder")
    third = subprocess.run(command(recipe, "--resume", "train.max_steps=1"), capture_output=True, text=True)
    assert third.returncode == 0, third.stderr
