"""`twofold.train` learns from rows in memory as from a file of them, and resumes without losing or mixing any."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from textwrap import dedent
from typing import Any

import datasets  # type: ignore[import-untyped]
import pandas  # type: ignore[import-untyped]
import pytest
from PIL import Image

import twofold
from tests import made
from tests.commands import refusal as command_refusal
from tests.commands import run as run_command
from tests.conftest import SMALL, small_recipe, some_image, write_jsonl
from twofold.errors import TwofoldError
from twofold.recipe.file import to_yaml
from twofold.recipe.folder import DATA
from twofold.training.log import History
from twofold.training.run import Run

ROWS: list[dict[str, Any]] = list(made.numbers(40, seed=9))
DEV: list[dict[str, Any]] = list(made.numbers(8, seed=10))
KINDS: dict[str, Callable[[list[dict[str, Any]]], Iterable[Any]]] = {
    "list": list,
    "generator": iter,
    "dataset": datasets.Dataset.from_list,
    "numpy dataset": lambda rows: datasets.Dataset.from_list(rows).with_format("numpy"),
    "stream": lambda rows: datasets.Dataset.from_list(rows).to_iterable_dataset(),
    "frame": pandas.DataFrame,
}


def recipe(**train: Any) -> dict[str, Any]:
    """A small recipe that names no data."""
    content = small_recipe("", train={"evaluate_every": 4, "schedule": "constant", **train})
    del content["data"]
    return content


def losses(run: Run) -> list[float]:
    return [line["loss"] for line in run.history.training]


def refusal(*given: Any, **options: Any) -> str:
    """The one line that a training is refused with."""
    with pytest.raises(TwofoldError) as caught:
        twofold.train(*given, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture(scope="module")
def of_files(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A training that reads its rows from files."""
    folder = tmp_path_factory.mktemp("files")
    files = {"train": write_jsonl(folder / "rows.jsonl", ROWS), "dev": write_jsonl(folder / "dev.jsonl", DEV)}
    return twofold.train({**recipe(), "data": files}, folder / "run")


@pytest.mark.parametrize("given", KINDS.values(), ids=KINDS)
def test_rows_in_memory_train_as_a_file_of_them_does(
    tmp_path: Path, of_files: Run, given: Callable[[list[dict[str, Any]]], Iterable[Any]]
) -> None:
    run = twofold.train(recipe(), out=tmp_path / "run", data=given(ROWS), dev=given(DEV))
    assert losses(run) == losses(of_files)
    assert run.metrics == of_files.metrics
    assert run.model.predict("seven")


def test_file_names_of_every_form_train_as_the_recipe_that_names_them(tmp_path: Path, of_files: Run) -> None:
    path, dev = write_jsonl(tmp_path / "rows.jsonl", ROWS), write_jsonl(tmp_path / "dev.jsonl", DEV)
    halves = [write_jsonl(tmp_path / "a.jsonl", ROWS[:20]), Path(write_jsonl(tmp_path / "b.jsonl", ROWS[20:]))]
    columns = {}
    for column in ("source", "target"):
        columns[column] = tmp_path / f"{column}.txt"
        columns[column].write_text("".join(f"{row[column]}\n" for row in ROWS), encoding="utf-8")
    forms: list[Any] = [path, Path(path), halves, columns]
    for number, form in enumerate(forms):
        run = twofold.train(recipe(), tmp_path / str(number), data=form, dev=Path(dev))
        assert losses(run) == losses(of_files)
        assert not (run.folder / "rows").exists()


def test_data_takes_the_place_of_the_rows_that_the_recipe_names(tmp_path: Path, of_files: Run) -> None:
    content = {**recipe(), "data": {"train": "nowhere.jsonl", "held_out": 5}}
    assert losses(twofold.train(content, tmp_path / "run", data=ROWS, dev=DEV)) == losses(of_files)
    held_out = twofold.train(content, tmp_path / "held_out", data=ROWS)
    assert held_out.history.about["validation_rows"] == 5


def test_a_packaged_recipe_learns_from_rows_in_memory_and_holds_a_tenth_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TWOFOLD_DATA", raising=False)
    small = ["encoder={kind: rnn, width: 12, embedding: 8}", "decoder={kind: rnn, width: 12, embedding: 8}"]
    small += ["input.tokenizer.size=90", "output.tokenizer=null", "train.max_steps=2", "train.best=loss", "train.ema=0"]
    rows = [{"de": row["source"], "en": row["target"]} for row in ROWS]
    with pytest.warns(UserWarning, match="4 of 40 rows are set aside for validation"):
        run = twofold.train("translate", tmp_path / "run", small, data=rows)
    assert (run.history.about["rows"], run.history.about["validation_rows"]) == (36, 4)


def test_the_splits_of_a_dataset_dict_are_training_and_validation_rows(tmp_path: Path, of_files: Run) -> None:
    train, dev = datasets.Dataset.from_list(ROWS), datasets.Dataset.from_list(DEV)
    splits = datasets.DatasetDict({"train": train, "validation": dev, "test": train})
    assert losses(run := twofold.train(recipe(), tmp_path / "run", data=splits)) == losses(of_files)
    assert run.metrics == of_files.metrics
    other = twofold.train(recipe(), tmp_path / "other", data=splits, dev=ROWS[:3])
    assert other.history.about["validation_rows"] == 3
    said = refusal(recipe(), tmp_path / "none", data=datasets.DatasetDict({"test": train, "all": train}))
    assert said == "data: holds no split 'train'; give one of its splits: test, all"


def test_classes_of_a_dataset_are_learned_by_their_names(tmp_path: Path) -> None:
    features = datasets.Features(
        {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["odd", "even"])}
    )
    rows = {"text": [row["source"] for row in ROWS], "label": [int(row["target"][-1] in "02468") for row in ROWS]}
    content = {**recipe(), "decoder": {"kind": "label"}, "output": {"kind": "label"}, "source": "text"}
    run = twofold.train(content, tmp_path / "run", data=datasets.Dataset.from_dict(rows, features=features))
    assert run.model.predict("seven")[0].output in ("odd", "even")


def test_a_training_is_resumed_with_the_same_rows_or_without_any(tmp_path: Path) -> None:
    whole = twofold.train(recipe(max_steps=8), tmp_path / "whole", data=ROWS, dev=DEV)
    for number, again in enumerate([{"data": iter(ROWS), "dev": pandas.DataFrame(DEV)}, {}, {"dev": DEV}]):
        twofold.train(recipe(), tmp_path / str(number), data=ROWS, dev=DEV)
        run = twofold.train(recipe(max_steps=8), tmp_path / str(number), resume=True, **again)
        assert losses(run) == losses(whole)


def test_a_training_goes_on_after_its_folder_was_moved(tmp_path: Path) -> None:
    twofold.train(recipe(), tmp_path / "run", data=ROWS, dev=DEV)
    (tmp_path / "run").rename(tmp_path / "moved")
    assert twofold.train(recipe(max_steps=6), tmp_path / "moved", resume=True).steps == 6


def test_the_command_line_resumes_a_training_that_was_begun_with_rows_in_memory(tmp_path: Path) -> None:
    twofold.train(recipe(), tmp_path / "run", data=ROWS, dev=DEV)
    (tmp_path / "recipe.yaml").write_text(to_yaml({**recipe(), "data": {"train": "nowhere.jsonl"}}))
    command = ["train", str(tmp_path / "recipe.yaml"), "train.max_steps=6", "--out", str(tmp_path / "run"), "--resume"]
    assert run_command(*command).exit_code == 0
    assert History.read(tmp_path / "run" / "log.jsonl").training[-1]["step"] == 6
    said = command_refusal(*command, "data.train=other.jsonl")
    assert f"was begun with data.train={tmp_path / 'run' / 'rows' / 'train.jsonl'}, not other.jsonl" in said


@pytest.mark.parametrize("changed", ["data", "dev"])
def test_other_rows_are_refused_and_taken_when_wanted(tmp_path: Path, changed: str) -> None:
    folder, rows = tmp_path / "run", {"data": ROWS, "dev": DEV}
    twofold.train(recipe(), folder, data=ROWS, dev=DEV)
    other = {changed: [*rows[changed][:-1], {"source": "six", "target": "7"}]}
    said = refusal(recipe(max_steps=6), folder, resume=True, **other)
    assert said.startswith(f"{changed}: not the rows that the training in {folder} was begun with; resume without")
    assert twofold.train(recipe(max_steps=5), folder, resume=True).steps == 5  # nothing has changed in the folder
    with pytest.warns(UserWarning, match="going on with the new data"):
        assert twofold.train(recipe(max_steps=6), folder, resume_anyway=True, **other).steps == 6  # type: ignore[arg-type]
    assert twofold.train(recipe(max_steps=7), folder, resume=True, **other).steps == 7  # type: ignore[arg-type]


def test_rows_that_a_training_was_not_begun_with_leave_its_folder_as_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    twofold.train(recipe(), folder, data=ROWS)
    assert "data.dev" in refusal(recipe(max_steps=6), folder, resume=True, dev=DEV)
    assert twofold.train(recipe(max_steps=6), folder, resume=True).steps == 6
    of_file = tmp_path / "of_file"
    content = {**recipe(), "data": {"train": write_jsonl(tmp_path / "rows.jsonl", ROWS)}}
    twofold.train(content, of_file)
    assert "data.train" in refusal(content, of_file, resume=True, data=ROWS)
    assert twofold.train(content, of_file, ["train.max_steps=6"], resume=True).steps == 6


def test_a_damaged_row_is_noticed_on_resume(tmp_path: Path) -> None:
    twofold.train(recipe(), tmp_path / "run", data=ROWS)
    path = tmp_path / "run" / "rows" / "train.jsonl"
    assert "data.train" in json.loads((tmp_path / "run" / DATA).read_text())["data"]
    path.write_text(path.read_text().replace(ROWS[3]["source"], "zero", 1))
    said = refusal(recipe(max_steps=6), tmp_path / "run", resume=True)
    assert said.startswith(f"{path} (data.train): changed since the training in")


def test_a_start_that_failed_can_be_made_again_with_other_rows(tmp_path: Path, of_files: Run) -> None:
    wrong = [{"de": "eins", "target": "1"}] * 9
    said = refusal(recipe(), tmp_path / "run", data=wrong, dev=DEV)
    assert said.endswith("no 'source' here; this row has de, target: name your column with source=...")
    assert losses(twofold.train(recipe(), tmp_path / "run", data=ROWS, dev=DEV)) == losses(of_files)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "recipe: 'data' is missing; write data: {train: FILE}, or give data= in Python"),
        ({"data": []}, "data: holds no rows"),
        ({"data": ROWS, "dev": iter(())}, "dev: holds no rows"),
        ({"data": {"source": ["a"]}}, "data: one dict, where rows are wanted; give a list of dicts"),
        ({"data": [*ROWS, "seven"]}, "data[40]: a value of type str, where a row is wanted; give a dict of columns"),
        ({"data": 7}, "data: a value of type int, where rows are wanted; give dicts of columns"),
        ({"data": "nowhere.jsonl"}, "nowhere.jsonl: cannot be read"),
        ({"data": ROWS, "changes": ["data.train=a.tsv"]}, "data.train: given twice, as data= and in `changes`"),
    ],
)
def test_data_that_cannot_be_used_is_refused_in_one_line(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    assert refusal(recipe(), tmp_path / "run", **options).startswith(said)


def test_images_that_rows_in_memory_name_are_learned_from(tmp_path: Path) -> None:
    for number in range(6):
        Image.fromarray(some_image(8, 8, number)).save(tmp_path / f"{number}.png")
    rows = [{"image": Path(f"{number}.png"), "label": "ab"[number % 2]} for number in range(6)]
    content = {
        "input": {"kind": "image", "folder": str(tmp_path)},
        "encoder": {"kind": "convnet", **SMALL["convnet"]},
        "decoder": {"kind": "label"},
        "train": {"max_steps": 2, "batch_rows": 2},
    }
    assert twofold.train(content, tmp_path / "run", data=rows).steps == 2


def test_of_two_processes_the_first_writes_the_rows(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        dedent(f"""
        import json, os, twofold

        def rows():
            assert os.environ["RANK"] == "0", "another process has read the rows"
            yield from {ROWS!r}

        twofold.train({recipe()!r}, {str(tmp_path / "two")!r}, data=rows(), dev={DEV!r})
        """)
    )
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run([sys.executable, *launch, str(program)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = (tmp_path / "two" / "rows" / "train.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == ROWS
