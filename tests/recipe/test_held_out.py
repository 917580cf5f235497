"""Validation rows are never most of the data without a warning, and at most a tenth of a user's own data."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests import made
from tests.conftest import SMALL, small_recipe, some_image, write_jsonl
from twofold.errors import TwofoldError
from twofold.recipe import Recipe, train
from twofold.recipe.file import read_yaml

TINY = [
    "encoder={kind: transformer, width: 16, layers: 1, heads: 2}",
    "input.tokenizer.size=90",
    "train.max_steps=1",
    "train.candidates=4",
]


def own_pairs(folder: Path, count: int = 40) -> str:
    rows = [{"context": f"how much is {number}", "response": f"it is {number}"} for number in range(count)]
    return write_jsonl(folder / "rows.jsonl", rows)


def recipe_of(kind: str, folder: Path, held_out: int) -> dict[str, Any]:
    if kind == "text":
        return small_recipe(write_jsonl(folder / "rows.jsonl", made.numbers(40, 1)), data={"held_out": held_out})
    if kind == "ranking":
        content = small_recipe(own_pairs(folder), "transformer", "bi")
        del content["output"]  # its limit is one of texts that are written
        return {**content, "data": {"train": own_pairs(folder), "held_out": held_out}, "train": {"max_steps": 1}}
    for number in range(10):
        Image.fromarray(some_image(8, 8, number)).save(folder / f"{number}.png")
    rows = [{"image": f"{number}.png", "label": "ab"[number % 2]} for number in range(10)]
    return {
        "data": {"train": write_jsonl(folder / "rows.jsonl", rows), "held_out": held_out // 4},
        "target": "label",
        "encoder": {"kind": "convnet", **SMALL["convnet"]},
        "decoder": {"kind": "label"},
        "train": {"max_steps": 1},
    }


@pytest.mark.parametrize("kind", ["text", "ranking", "images"])
def test_more_rows_to_judge_by_than_to_learn_from_are_a_warning(tmp_path: Path, kind: str) -> None:
    with pytest.warns(UserWarning, match=r"validation rows, but only \d+ training rows; lower"):
        train(Recipe.of(recipe_of(kind, tmp_path, 28)), tmp_path / "many")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        train(Recipe.of(recipe_of(kind, tmp_path, 16)), tmp_path / "few")


def test_a_recipe_that_comes_along_holds_out_a_tenth_of_own_data_and_goes_on_with_it(tmp_path: Path) -> None:
    changes = [f"data.train={own_pairs(tmp_path)}", *TINY]
    with pytest.warns(UserWarning, match="4 of 40 rows are set aside for validation, not 1,000"):
        train("rank_own", tmp_path / "run", changes)
    assert read_yaml(tmp_path / "run" / "recipe.yaml")["data"]["held_out_share"] == 0.1
    with pytest.warns(UserWarning, match="4 of 40 rows"):
        assert train("rank_own", tmp_path / "run", [*changes, "train.max_steps=2"], resume=True).steps == 2


def test_a_number_that_is_given_counts(tmp_path: Path) -> None:
    train_file = f"data.train={own_pairs(tmp_path)}"
    assert Recipe.load("rank_own", [train_file, "data.held_out=30"]).data.held_out_share is None
    assert Recipe.load("rank_own", [train_file, "data.held_out_share=0.5"]).data.held_out_share == 0.5
    copy = tmp_path / "copy.yaml"
    copy.write_text((Path(__file__).parents[2] / "recipes" / "rank_own.yaml").read_text())
    assert Recipe.load(copy, [train_file]).data.held_out_share is None  # a recipe of one's own says what it means
    with pytest.raises(TwofoldError, match="held_out_share must be above 0"):
        Recipe.load("rank_own", [train_file, "data.held_out_share=0"])


def test_rows_that_a_recipe_leaves_out_of_own_data_are_counted(tmp_path: Path) -> None:
    changes = [f"data.train={own_pairs(tmp_path)}", *TINY, "data.rows=20", "data.skip=10"]
    said = r"20 of 36 rows are training rows \(data.skip=10, data.rows=20\); data.skip=0 data.rows=null takes all"
    with pytest.warns(UserWarning, match="rows are set aside for validation"), pytest.warns(UserWarning, match=said):
        train("rank_own", tmp_path / "run", changes)


def test_too_few_rows_to_skip_say_what_helps(tmp_path: Path) -> None:
    changes = [f"data.train={own_pairs(tmp_path)}", *TINY, "data.skip=15000"]
    with pytest.raises(TwofoldError, match=r"there are only 36; data.skip=0 trains on all of them"):
        train("rank_own", tmp_path / "run", changes)
