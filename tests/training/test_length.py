"""Lengths are given in steps, or in epochs with a floor in steps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import made
from tests.conftest import small_recipe, write_jsonl
from tests.training.test_resume import logged_losses
from twofold.recipe import Recipe, train
from twofold.recipe.file import recipe_names


@pytest.fixture
def recipe(tmp_path: Path) -> dict[str, Any]:
    """Two epochs of four steps."""
    rows = write_jsonl(tmp_path / "numbers.jsonl", made.numbers(40, seed=1))
    settings = {"max_steps": None, "epochs": 2, "batch_rows": 8, "ema": 0.9}
    return small_recipe(rows, data={"held_out": 8}, train=settings)


def log(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def test_a_floor_in_steps_adds_whole_epochs(tmp_path: Path, recipe: dict[str, Any]) -> None:
    assert train(Recipe.of(recipe), tmp_path / "epochs").steps == 8
    assert train(Recipe.of(recipe), tmp_path / "floor", ["train.min_steps=30"]).steps == 32


def test_a_floor_below_the_length_changes_nothing(tmp_path: Path, recipe: dict[str, Any]) -> None:
    train(Recipe.of(recipe), tmp_path / "epochs")
    train(Recipe.of(recipe), tmp_path / "floor", ["train.min_steps=8"])
    assert logged_losses(tmp_path / "floor") == logged_losses(tmp_path / "epochs")


def test_the_schedule_follows_the_real_length(tmp_path: Path, recipe: dict[str, Any]) -> None:
    train(Recipe.of(recipe), tmp_path / "epochs", ["train.epochs=8"])
    train(Recipe.of(recipe), tmp_path / "floor", ["train.min_steps=30"])
    rates = [
        [line["learning_rate"] for line in log(tmp_path / name) if "learning_rate" in line]
        for name in ("epochs", "floor")
    ]
    assert rates[0] == rates[1]
    assert rates[0][-1] < 0.01 * max(rates[0])


def test_a_floor_is_said_and_does_not_multiply_evaluations(
    tmp_path: Path, recipe: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    run = train(Recipe.of(recipe), tmp_path / "run", ["train.min_steps=120"])
    assert "train.min_steps=120: 30 epochs in place of 2\n" in capsys.readouterr().err
    assert run.steps == 120
    assert [evaluation.step for evaluation in run.history.evaluations] == list(range(12, 121, 12))


def test_a_training_with_a_floor_resumes_to_the_last_digit(tmp_path: Path, recipe: dict[str, Any]) -> None:
    changes = ["train.min_steps=20"]
    train(Recipe.of(recipe), tmp_path / "whole", changes)

    def stop(line: dict[str, Any]) -> None:
        if line["step"] == 11:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(Recipe.of(recipe), tmp_path / "parts", [*changes, "train.save_every=5"], callbacks=[stop])
    train(Recipe.of(recipe), tmp_path / "parts", [*changes, "train.save_every=5"], resume=True)
    assert logged_losses(tmp_path / "parts") == logged_losses(tmp_path / "whole")


def test_steps_hold_without_the_floor(tmp_path: Path, recipe: dict[str, Any]) -> None:
    assert train(Recipe.of(recipe), tmp_path / "run", ["train.max_steps=3", "train.min_steps=30"]).steps == 3


@pytest.mark.parametrize("name", recipe_names())
def test_every_packaged_recipe_has_a_floor_that_given_epochs_lift(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWOFOLD_DATA", "data")
    assert Recipe.load(name).train.min_steps
    assert Recipe.load(name, ["train.epochs=1"]).train.min_steps is None
    assert Recipe.load(name, ["train.epochs=1", "train.min_steps=5"]).train.min_steps == 5
