"""Callbacks get every line of the log once it is written; the examples of docs/training.md record the same lines."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import twofold
from tests import made
from tests.conftest import small_recipe, write_jsonl
from twofold.recipe.file import to_yaml

PAGE = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")
Line = dict[str, Any]


def example(word: str) -> str:
    """The one Python block of the page that has a word."""
    [block] = [block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if word in block]
    return str(block)


def logged(folder: Path) -> list[Line]:
    """Lines of the log of a training."""
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


@pytest.fixture(autouse=True)
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A recipe that lies as my.yaml in the current folder."""
    monkeypatch.chdir(tmp_path)
    rows = write_jsonl(tmp_path / "numbers.jsonl", made.numbers(60, seed=1))
    train = {"evaluate_every": 2, "save_every": 2, "schedule": "constant"}
    content = small_recipe(rows, data={"held_out": 10}, train=train)
    (tmp_path / "my.yaml").write_text(to_yaml(content))
    return content


def test_callbacks_get_every_line_of_the_log(tmp_path: Path) -> None:
    lines: list[Line] = []
    twofold.train("my.yaml", tmp_path / "run", callbacks=[lines.append])
    assert lines == logged(tmp_path / "run")
    assert [line["step"] for line in lines] == [0, 1, 2, 2, 3, 4, 4, 4]


def test_a_callback_that_raises_ends_a_training_that_can_be_resumed(tmp_path: Path) -> None:
    whole = twofold.train("my.yaml", tmp_path / "whole")

    def raising(line: Line) -> None:
        if line["step"] == 3:
            raise ConnectionError("the board does not answer")

    with pytest.raises(ConnectionError, match="the board does not answer"):
        twofold.train("my.yaml", tmp_path / "run", callbacks=[raising])
    assert logged(tmp_path / "run")[-1]["step"] == 3  # the line was written before the callback was called
    lines: list[Line] = []
    run = twofold.train("my.yaml", tmp_path / "run", resume=True, callbacks=[lines.append])
    assert [line["step"] for line in lines] == [3, 4, 4, 4]  # the checkpoint is that of step 2
    assert [line["loss"] for line in run.history.training] == [line["loss"] for line in whole.history.training]
    assert run.metrics == whole.metrics


def test_a_callback_may_raise_before_there_is_a_checkpoint(tmp_path: Path) -> None:
    def raising(line: Line) -> None:
        raise ConnectionError

    with pytest.raises(ConnectionError):
        twofold.train("my.yaml", tmp_path / "run", callbacks=[raising])
    assert twofold.train("my.yaml", tmp_path / "run", resume=True).finished


def test_a_callback_cannot_change_what_others_get(tmp_path: Path) -> None:
    lines: list[Line] = []
    twofold.train("my.yaml", tmp_path / "run", callbacks=[dict.clear, lines.append])
    assert lines == logged(tmp_path / "run")


def module(name: str, monkeypatch: pytest.MonkeyPatch, **functions: Any) -> None:
    """Puts a stand-in that records calls in the place of a package."""
    stand_in = ModuleType(name)
    vars(stand_in).update(functions)
    monkeypatch.setitem(sys.modules, name, stand_in)


def test_the_example_of_weights_and_biases_records_the_lines_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Line, int]] = []
    runs: list[Line] = []

    @contextmanager
    def init(**settings: Any) -> Iterator[SimpleNamespace]:
        runs.append(settings)
        yield SimpleNamespace(log=lambda data, step: calls.append((data, step)))
        runs.append({"finished": True})

    module("wandb", monkeypatch, init=init)
    exec(example("wandb.init"), {})
    assert calls == [(line, line["step"]) for line in logged(Path("runs/wandb"))]
    assert runs == [{"project": "twofold"}, {"finished": True}]


def test_the_example_of_mlflow_records_the_numbers_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Mapping[str, float], int]] = []
    active: list[bool] = []

    @contextmanager
    def start_run() -> Iterator[None]:
        active.append(True)
        yield
        active.clear()

    def log_metrics(metrics: Mapping[str, float], step: int) -> None:
        assert active
        assert all(re.fullmatch(r"[\w./ :-]+", name) for name in metrics)  # what MLflow takes for a name
        calls.append((metrics, step))

    module("mlflow", monkeypatch, start_run=start_run, log_metrics=log_metrics)
    exec(example("mlflow.start_run"), {})
    lines = logged(Path("runs/mlflow"))
    numbers = [{name: value for name, value in line.items() if name not in ("cut", "precision")} for line in lines]
    assert calls == [(line, line["step"]) for line in numbers]
    assert not active


def test_mlflow_gets_names_without_a_sign_that_it_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Mapping[str, float]] = []
    module("mlflow", monkeypatch, log_metrics=lambda metrics, step: calls.append(metrics))
    names: dict[str, Any] = {}
    exec(example("mlflow.start_run").partition("\n\n\nwith")[0], names)
    names["log"]({"step": 3, "dev_r@1": 0.5, "cut": {"input": 0}})
    assert calls == [{"step": 3, "dev_r_at_1": 0.5}]


def test_the_example_of_tensorboard_writes_every_number_of_the_log() -> None:
    from tensorboard.backend.event_processing.event_accumulator import (  # type: ignore[import-untyped]
        EventAccumulator,
    )

    exec(example("train.tensorboard=true"), {})
    board = EventAccumulator("runs/board/tensorboard").Reload()
    for tag in ("loss", "learning_rate", "dev_loss"):
        expected = [(line["step"], line[tag]) for line in logged(Path("runs/board")) if tag in line]
        shown = [(event.step, event.value) for event in board.Scalars(tag)]
        assert [step for step, _ in shown] == [step for step, _ in expected]
        assert [value for _, value in shown] == pytest.approx([value for _, value in expected])


def test_the_example_of_rows_in_memory_trains_and_predicts(capsys: pytest.CaptureFixture[str]) -> None:
    exec(example("my card was stolen"), {})
    assert capsys.readouterr().out.strip() in ("card", "payment")
