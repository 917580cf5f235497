"""A training shows its validation metrics on standard error, and says when a longer one may help."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import made
from tests.conftest import small_recipe, write_jsonl
from twofold.recipe import Recipe, train
from twofold.training.console import late_gain
from twofold.training.log import History


@pytest.fixture
def recipe(tmp_path: Path) -> dict[str, Any]:
    rows = write_jsonl(tmp_path / "numbers.jsonl", made.numbers(120, seed=1))
    settings = {"max_steps": 6, "evaluate_every": 2, "log_every": 50, "learning_rate": 1e-2}
    return small_recipe(rows, data={"held_out": 20}, train=settings)


def history(*values: float) -> History:
    """A history of one metric."""
    log = History()
    for step, value in enumerate(values, start=1):
        log.add({"step": step, "dev_las": value})
    return log


def test_each_evaluation_is_a_line_and_all_are_a_table_at_the_end(
    tmp_path: Path, recipe: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    train(Recipe.of(recipe), tmp_path / "run")
    shown = capsys.readouterr()
    assert shown.out == ""
    lines = shown.err.splitlines()
    evaluations = [line for line in lines if line.startswith("step ") and "epoch " in line and ":" in line]
    assert [line.split(",")[0] for line in evaluations] == ["step 2", "step 4", "step 6"]
    for line in evaluations:
        for word in ("loss ", "learning rate ", "steps/s ", "validation loss ", "perplexity "):
            assert word in line
    headings = next(number for number, line in enumerate(lines) if line.split()[:2] == ["step", "epoch"])
    for heading in ("learning rate", "steps/s", "validation loss", "validation perplexity"):
        assert heading in lines[headings]
    table = lines[headings + 1 : headings + 4]
    assert [line.split()[0] for line in table] == ["2", "4", "6"]
    assert sum(line.endswith("best") for line in table) == 1


def test_a_resumed_training_shows_the_earlier_evaluations_in_its_table(
    tmp_path: Path, recipe: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    train(Recipe.of(recipe), tmp_path / "run")
    capsys.readouterr()
    train(Recipe.of(recipe), tmp_path / "run", ["train.max_steps=8"], resume=True)
    lines = capsys.readouterr().err.splitlines()
    headings = next(number for number, line in enumerate(lines) if line.split()[:2] == ["step", "epoch"])
    assert [line.split()[0] for line in lines[headings + 1 : headings + 5]] == ["2", "4", "6", "8"]


def test_text_to_text_reports_bleu_of_the_best_model_at_the_end(
    tmp_path: Path, recipe: dict[str, Any], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twofold.recipe.training.FINAL_ROWS", 7)
    run = train(Recipe.of(recipe), tmp_path / "run")
    assert {"loss", "perplexity", "bleu", "chrf", "exact_match"} <= run.metrics.keys()
    assert run.history.final["bleu"] == run.metrics["bleu"]
    assert f"best model: bleu {run.metrics['bleu']:.4g}" in capsys.readouterr().err


def test_metrics_of_every_evaluation_are_not_measured_again(tmp_path: Path, recipe: dict[str, Any]) -> None:
    recipe["train"]["best"] = "bleu"
    run = train(Recipe.of(recipe), tmp_path / "run")
    assert "bleu" in run.history.evaluations[0].metrics
    assert run.history.final == {}
    assert run.best == run.metrics["bleu"]


def test_a_training_that_still_improves_names_the_setting_to_raise(
    tmp_path: Path, recipe: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    recipe["train"] |= {"schedule": "constant"}
    train(Recipe.of(recipe), tmp_path / "run")
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "still improved" in line]
    assert line.startswith("validation loss still improved in the last quarter of the training, from ")
    assert line.endswith("a longer training may help; raise train.max_steps=6")


@pytest.mark.parametrize(
    ("values", "improves"),
    [((0.02, 0.1, 0.17, 0.26), True), ((0.2, 0.7, 0.71, 0.711), False), ((0.5, 0.4), False), ((0.5,), False)],
)
def test_only_a_good_part_of_the_whole_gain_counts_as_improvement(values: tuple[float, ...], improves: bool) -> None:
    assert (late_gain(history(*values), "las", True) is not None) == improves
    negated = history(*(-value for value in values))
    assert (late_gain(negated, "las", False) is not None) == improves


def test_a_run_fits_on_a_screen(tmp_path: Path, recipe: dict[str, Any]) -> None:
    run = train(Recipe.of(recipe), tmp_path / "run")
    shown = repr(run).splitlines()
    assert len(shown) < 10
    assert str(tmp_path / "run") in shown[0]
    assert "finished after 6 steps" in shown[0]
    assert "bleu" in shown[1]
    assert run.model.predict("one")[0].output is not None
