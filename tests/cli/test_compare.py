"""`twofold compare`: what differs between trainings, their metrics side by side, and their curves."""

from __future__ import annotations

import shutil
from itertools import islice
from pathlib import Path

import pytest

import twofold
from tests import made
from tests.commands import answer, refusal, run
from tests.conftest import small_recipe, write_jsonl
from twofold.plot.curves import draw_curves, styles
from twofold.recipe import train
from twofold.recipe.comparison import ComparedMetric
from twofold.training.log import FILE


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trainings: `first`, `wide` with another width, `다른` on other rows, and `blind` without validation rows."""
    folder = tmp_path_factory.mktemp("compare")
    rows, others = (write_jsonl(folder / f"{seed}.jsonl", made.numbers(60, seed)) for seed in (4, 5))
    settings = {"device": "cpu", "max_steps": 6, "log_every": 2, "evaluate_every": 2}
    recipe = small_recipe(rows, data={"held_out": 10}, train=settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TWOFOLD_CACHE", str(folder / "cache"))
        train(recipe, folder / "first")
        train(recipe, folder / "wide", ["encoder.width=20", "train.learning_rate=0.01"])
        train(recipe, folder / "다른", [f"data.train={others}", "encoder={kind: transformer, width: 16, heads: 2}"])
        train(recipe, folder / "blind", ["data.held_out=0"])
    return folder


def test_only_the_settings_that_differ_are_shown(folder: Path) -> None:
    content = answer("compare", folder / "first", folder / "wide")
    assert content["settings"] == {"encoder.width": [12, 20], "train.learning_rate": [0.001, 0.01]}
    assert content["data"] == {}
    lines = run("compare", folder / "first", folder / "wide").stdout.splitlines()
    assert lines[1].split() == ["encoder.width", "12", "20"]


def test_data_of_other_content_has_other_checksums(folder: Path) -> None:
    content = answer("compare", folder / "first", folder / "다른")
    assert list(content["data"]) == ["data.train"]
    assert len(set(content["data"]["data.train"])) == 2
    shown = run("compare", folder / "first", folder / "다른").stdout
    assert "checksum of data.train" in shown


def test_a_setting_that_one_recipe_does_not_have_is_a_dash(folder: Path) -> None:
    lines = run("compare", folder / "first", folder / "다른").stdout.splitlines()
    assert ["encoder.cell", "gru", "-"] in [line.split() for line in lines]
    assert answer("compare", folder / "first", folder / "다른")["settings"]["encoder.cell"] == ["gru", None]


def test_metrics_are_those_of_the_best_models_and_the_best_is_marked(folder: Path) -> None:
    runs = [twofold.train(folder / name / "recipe.yaml", folder / name, resume=True) for name in ("first", "wide")]
    content = answer("compare", folder / "first", folder / "wide")
    for name, metric in content["metrics"].items():
        assert metric["values"] == [run.metrics[name] for run in runs]
    losses = content["metrics"]["loss"]
    assert losses["higher_is_better"] is False
    assert losses["best"] == [losses["values"].index(min(losses["values"]))]
    assert content["metrics"]["chrf"]["higher_is_better"] is True
    line = next(
        line for line in repr(twofold.compare([folder / "first", folder / "wide"])).splitlines() if "loss" in line
    )
    assert line.startswith("loss ↓")
    assert line.count("*") == 1


def test_steps_speeds_and_parameters_are_side_by_side(folder: Path) -> None:
    first, wide = answer("compare", folder / "first", folder / "wide")["runs"]
    assert first["steps"] == wide["steps"] == 6
    assert first["seconds"] == pytest.approx(6 * first["seconds_per_step"])
    assert first["tokens_per_second"] > 0
    assert first["parameters"] == twofold.load(folder / "first").summary().total.parameters < wide["parameters"]
    assert [step for step, _ in first["evaluations"]["loss"]] == [2, 4, 6]


def test_a_metric_has_no_best_where_all_are_equal_or_its_direction_is_unknown() -> None:
    assert ComparedMetric((0.5, 0.5), True).best == ()
    assert ComparedMetric((0.5, None), True).best == ()
    assert ComparedMetric((0.5, 0.7), None).best == ()
    assert ComparedMetric((0.5, 0.7, 0.7), True).best == (1, 2)


@pytest.mark.parametrize("name", ["curves.png", "curves.svg"])
def test_curves_are_drawn_with_korean_names(folder: Path, tmp_path: Path, name: str) -> None:
    assert run("compare", folder / "first", folder / "다른", "--plot", tmp_path / name).exit_code == 0
    assert (tmp_path / name).stat().st_size > 5000


def test_trainings_differ_in_grey_too() -> None:
    drawn = [(str(style["linestyle"]), style["marker"]) for style in islice(styles(), 35)]
    assert len(set(drawn)) == 35


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["first"], "one training alone has nothing to be compared with; name two or more"),
        (["first", "first"], "named twice; name each training once"),
        (["first", "none"], "no such folder (recipe.yaml is missing); RUN is a folder that"),
        (["first", "cache"], "holds no training (recipe.yaml is missing)"),
        (["first", "blind"], "the trainings have no validation metric in common"),
    ],
)
def test_what_cannot_be_compared_is_refused_in_a_line(folder: Path, names: list[str], said: str) -> None:
    assert said in refusal("compare", *(folder / name for name in names))


def test_the_figure_needs_a_metric_over_the_steps_of_all(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "first", tmp_path / "final only")
    log = folder / "first" / FILE
    kept = [line for line in log.read_text(encoding="utf-8").splitlines() if '"dev_' not in line]
    (tmp_path / "final only" / FILE).write_text("\n".join(kept) + "\n", encoding="utf-8")
    with pytest.raises(twofold.TwofoldError, match="no validation metric was measured over the steps of all"):
        draw_curves(twofold.compare([folder / "first", tmp_path / "final only"]), tmp_path / "a.png")
