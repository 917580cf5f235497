"""Recipes that come along, used with a user's own data, end with remedies that work."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.cli.test_bad_input import refusal
from tests.conftest import write_jsonl
from twofold.recipe import train

PAIRS = [{"context": f"how much is {number}", "response": f"it is {number}"} for number in range(30)]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No data of the recipes and no trained models."""
    monkeypatch.delenv("TWOFOLD_DATA", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("recipe", "name", "said"),
    [
        (
            "rank_mined",
            "pairs.jsonl",
            "start=runs/rank_bi: no such model; train it first, with `twofold train rank_bi --",
        ),
        ("rank_distilled", "pairs.jsonl", "start=runs/rank_poly: no such model; train it first, with `twofold train"),
        ("rank_own", "rows.jsonl", "no 'context' here; this row has a, b: name your column with source=..."),
        ("rank_own", "rows.txt", "a text file has nothing else, a jsonl, tsv or csv file has columns"),
        ("translate", "rows.jsonl", "no 'de' here; this row has a, b: name your column with source=..."),
        ("pretrain_words", "rows.jsonl", "no 'context' here; this row has a, b: name your column with source=..."),
        ("caption", "rows.jsonl", "input.folder=... of your own (input.folder=null leaves it out)"),
        ("rank_convai2", "pairs.jsonl", "data.dev=... of your own (data.dev=null leaves it out)"),
    ],
)
def test_what_a_recipe_lacks_is_named_with_its_setting(tmp_path: Path, recipe: str, name: str, said: str) -> None:
    write_jsonl(tmp_path / "pairs.jsonl", PAIRS)
    write_jsonl(tmp_path / "rows.jsonl", [{"a": "one", "b": "two"}] * 3)
    (tmp_path / "rows.txt").write_text("one\ntwo\n")
    assert said in refusal("train", recipe, f"data.train={name}", "--out", "run")


def test_a_teacher_that_is_not_there_is_named(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "pairs.jsonl", PAIRS)
    changes = ["data.train=pairs.jsonl", "start=null", "mine=null"]
    said = refusal("train", "rank_distilled", *changes, "--out", "run")
    assert said.startswith("teacher.model=runs/rank_cross: no such model; train it first")
    assert said.endswith("or name another with teacher.model=FOLDER")


def test_masks_of_other_classes_are_told_how_to_be_named(tmp_path: Path) -> None:
    for folder in ("images", "masks"):
        (tmp_path / "own" / folder).mkdir(parents=True)
    for number in range(4):
        Image.fromarray(np.zeros((16, 16, 3), np.uint8)).save(tmp_path / "own" / "images" / f"{number}.png")
        Image.fromarray(np.full((16, 16), 20 + number % 2, np.uint8)).save(tmp_path / "own" / "masks" / f"{number}.png")
    changes = ["data.train=own", "encoder.widths=[8, 8]", "train.max_steps=1", "input.augment={}"]
    said = refusal("train", "segment_street", *changes, "--out", "run")
    assert said.endswith("name those of your masks with output.classes=[...], output.first_class=N and output.ignore=N")
    changes += ["output.classes=[grass, stone]", "output.first_class=20", "output.ignore=null"]
    said = refusal("train", "segment_street", *changes, "--out", "run")
    assert said.endswith("11 for 2 classes; give one for each, or decoder.class_weights=null")
    with pytest.warns(UserWarning, match="1 of 4 rows are set aside"):
        assert train("segment_street", "run", [*changes, "decoder.class_weights=null"]).steps == 1
