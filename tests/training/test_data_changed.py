"""A training is not resumed with other data than it was begun with, unless that is wanted."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests import made
from tests.cli.test_bad_input import flipped, refusal, removed
from tests.conftest import SMALL, small_recipe, some_image, write_jsonl
from twofold.errors import TwofoldError
from twofold.recipe import Recipe, train
from twofold.recipe.file import to_yaml

ROWS = made.numbers(40, seed=9)


def resumed(content: dict[str, Any], folder: Path, steps: int = 6, anyway: bool = False) -> int:
    recipe = Recipe.of({**content, "train": {**content["train"], "max_steps": steps}})
    return train(recipe, folder / "run", resume=True, resume_anyway=anyway).steps


@pytest.mark.parametrize("changed", ["rows", "dev"])
def test_changed_data_is_refused_by_name_and_taken_when_wanted(tmp_path: Path, changed: str) -> None:
    for name in ("rows", "dev"):
        write_jsonl(tmp_path / f"{name}.jsonl", ROWS)
    path = tmp_path / f"{changed}.jsonl"
    content = small_recipe(str(tmp_path / "rows.jsonl"), data={"dev": str(tmp_path / "dev.jsonl")})
    train(Recipe.of(content), tmp_path / "run")
    write_jsonl(path, [*ROWS[:-1], {**ROWS[-1], "target": "1"}])
    setting = {"rows": "data.train", "dev": "data.dev"}[changed]
    with pytest.raises(TwofoldError) as refused:
        resumed(content, tmp_path)
    assert str(refused.value).startswith(f"{path} ({setting}): changed since the training in {tmp_path / 'run'} began")
    assert "--resume-anyway" in str(refused.value)
    with pytest.warns(UserWarning, match="going on with the new data"):
        assert resumed(content, tmp_path, anyway=True) == 6
    assert resumed(content, tmp_path, 7) == 7  # the new data is the training's own from now on


def test_a_file_that_was_only_touched_is_the_same_data(tmp_path: Path) -> None:
    content = small_recipe(write_jsonl(tmp_path / "rows.jsonl", ROWS))
    train(Recipe.of(content), tmp_path / "run")
    os.utime(tmp_path / "rows.jsonl", (1, 1))
    assert resumed(content, tmp_path) == 6


def test_fewer_rows_than_batches_done_go_on_with_the_next_epoch(tmp_path: Path) -> None:
    content = small_recipe(write_jsonl(tmp_path / "rows.jsonl", ROWS), train={"batch_rows": 2, "max_steps": 15})
    train(Recipe.of(content), tmp_path / "run")
    write_jsonl(tmp_path / "rows.jsonl", ROWS[:8])
    with pytest.warns(UserWarning, match="going on with the new data"):
        assert resumed(content, tmp_path, 20, anyway=True) == 20
    assert '"loss": 0.0' not in (tmp_path / "run" / "log.jsonl").read_text()


@pytest.mark.parametrize("table", [True, False])
def test_a_changed_image_is_noticed_and_a_touched_one_is_the_same(tmp_path: Path, table: bool) -> None:
    for number in range(6):
        path = tmp_path / "data" / "images" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(some_image(8, 8, number)).save(path)
    rows = [{"image": f"images/{number}.png", "label": "ab"[number % 2]} for number in range(6)]
    table_path = write_jsonl(tmp_path / "data" / "rows.jsonl", rows)
    content = {
        "data": {"train": table_path},
        "target": "label",
        "encoder": {"kind": "convnet", **SMALL["convnet"]},
        "decoder": {"kind": "label"},
        "train": {"max_steps": 2, "batch_rows": 2},
    }
    if not table:
        content["data"] = {"train": str(tmp_path / "data")}
        content["decoder"], content["output"] = {"kind": "unet"}, {"classes": ["a", "b"]}
        del content["target"]
        for number in range(6):
            mask = tmp_path / "data" / "masks" / f"{number}.png"
            mask.parent.mkdir(exist_ok=True)
            Image.fromarray(some_image(8, 8, number)[:, :, 0] % 2).save(mask)
    train(Recipe.of(content), tmp_path / "run")
    image = tmp_path / "data" / "images" / "3.png"
    os.utime(image, (1, 1))
    assert resumed(content, tmp_path, 3) == 3
    Image.fromarray(some_image(8, 8, 99)).save(image)
    with pytest.raises(TwofoldError, match=r"\((images of )?data.train\): changed since"):
        resumed(content, tmp_path, 4)


def test_a_changed_start_is_refused(tmp_path: Path) -> None:
    content = small_recipe(write_jsonl(tmp_path / "rows.jsonl", ROWS))
    train(Recipe.of(content), tmp_path / "start")
    begun = {**content, "start": str(tmp_path / "start")}
    train(Recipe.of(begun), tmp_path / "run")
    more = Recipe.of({**content, "train": {**content["train"], "max_steps": 5}})
    train(more, tmp_path / "start", resume=True)
    with pytest.raises(TwofoldError, match=r"start \(start\): changed since"):
        resumed(begun, tmp_path)


@pytest.mark.parametrize("name", ["tokenizers/input.json", "data.json"])
@pytest.mark.parametrize("damage", [flipped, removed])
def test_a_damaged_file_that_was_made_before_the_training_is_named(tmp_path: Path, name: str, damage: Any) -> None:
    recipe = tmp_path / "recipe.yaml"
    content = small_recipe(write_jsonl(tmp_path / "rows.jsonl", ROWS))
    recipe.write_text(to_yaml(content), encoding="utf-8")
    train(Recipe.of(content), tmp_path / "run")
    damage(tmp_path / "run" / name)
    said = refusal("train", recipe, "--out", tmp_path / "run", "--resume", keeps=tmp_path / "run")
    assert name in said


def test_damaged_prepared_rows_are_named(tmp_path: Path) -> None:
    rows = [{"context": f"how much is {number}", "response": f"it is {number}"} for number in range(12)]
    path = write_jsonl(tmp_path / "rows.jsonl", rows)
    content = small_recipe(path, "transformer", "bi", train={"batch_rows": 4})
    del content["train"]["batch_tokens"], content["output"]
    train(Recipe.of(content), tmp_path / "first")
    content["mine"] = {"model": str(tmp_path / "first"), "count": 1, "depth": 4}
    train(Recipe.of(content), tmp_path / "run")
    prepared = tmp_path / "run" / "prepared.jsonl"
    kept = prepared.read_bytes()
    flipped(prepared)
    with pytest.raises(TwofoldError, match=r"prepared.jsonl: damaged"):
        resumed(content, tmp_path)
    prepared.write_bytes(kept)
    write_jsonl(tmp_path / "rows.jsonl", [*rows[:-1], {"context": "another", "response": "quite another"}])
    with pytest.warns(UserWarning, match="going on with the new data"):
        resumed(content, tmp_path, anyway=True)
    assert "quite another" in prepared.read_text()
