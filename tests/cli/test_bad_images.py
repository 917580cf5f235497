"""A row whose image, mask or caption cannot be used is refused with one line, or left out and named."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_bad_input import tree
from tests.cli.test_images import write_recipe
from tests.commands import refusal, run
from tests.images import (
    bad_files,
    captioning,
    encoded,
    segmenting,
    squares,
    squares_files,
    write_files,
    write_shapes,
    write_zip,
)
from twofold.recipe.build import training_rows

ROWS = 4
Change = Callable[[dict[str, bytes]], dict[str, bytes]]


def put(name: str, content: bytes) -> Change:
    return lambda files: {**files, name: content}


def without(name: str) -> Change:
    return lambda files: {other: content for other, content in files.items() if other != name}


SMALLER, COLORED = encoded(squares(1)[1][:-1]), encoded(squares(1)[0])
BAD: dict[str, tuple[Change, str]] = {
    **{name: (put("images/001.png", content), "images/001.png: ") for name, content in bad_files().items()},
    "mask is text": (put("masks/001.png", b"none"), "masks/001.png: not a PNG, JPEG, WEBP image"),
    "mask is smaller": (put("masks/001.png", SMALLER), "masks/001.png: a mask of 15 × 16 for an image of 16 × 16"),
    "mask is colored": (put("masks/001.png", COLORED), "masks/001.png: a mask has one class number for each pixel"),
    "mask knows more": (
        put("masks/001.png", encoded(squares(1)[1] + 7)),
        "masks/001.png: holds 7, 8, 9, but classes go",
    ),
    "mask is missing": (without("masks/001.png"), "images/001.png: no mask 'mask' for this image"),
}


def logged(folder: Path) -> dict[str, Any]:
    first_line: dict[str, Any] = json.loads((folder / "log.jsonl").read_text().splitlines()[0])
    return first_line


def warned(text: str) -> list[str]:
    lines = text.splitlines()
    assert all(line.startswith(("warning: ", "done after ")) for line in lines), lines
    return [line.removeprefix("warning: ") for line in lines if line.startswith("warning: ")]


@pytest.fixture
def skipping(tmp_path: Path) -> Path:
    """A model whose recipe leaves out what is bad."""
    folder = write_files(tmp_path / "good", squares_files(ROWS))
    recipe = segmenting(folder, input={"broken": "skip"})
    result = run("train", write_recipe(tmp_path / "good.yaml", recipe), "--out", tmp_path / "model")
    assert result.exit_code == 0
    assert warned(result.stderr) == []
    return tmp_path / "model"


@pytest.mark.filterwarnings("always:.*(left out|cannot be used):UserWarning")
def test_a_bad_image_among_good_ones_is_left_out_of_what_is_predicted(tmp_path: Path, skipping: Path) -> None:
    good = tmp_path / "good" / "images" / "000.png"
    bad = write_files(tmp_path, {"bad.png": b"no image"}) / "bad.png"
    result = run("predict", skipping, bad, good, "--json")
    assert result.exit_code == 0
    assert [one["input"] for one in json.loads(result.stdout)["predictions"]] == [str(good)]
    assert str(bad) in result.stderr


@pytest.mark.filterwarnings("always:.*(left out|cannot be used):UserWarning")
@pytest.mark.parametrize("packed", [False, True], ids=["folder", "archive"])
@pytest.mark.parametrize("name", BAD)
def test_a_row_that_cannot_be_used_is_refused_or_left_out(
    tmp_path: Path, skipping: Path, name: str, packed: bool
) -> None:
    change, said = BAD[name]
    files = change(squares_files(ROWS))
    folder = write_zip(tmp_path / "p.zip", files) if packed else write_files(tmp_path / "p", files)
    recipe = write_recipe(tmp_path / "recipe.yaml", segmenting(folder))
    before = tree(tmp_path)
    assert refusal("train", recipe, "--out", tmp_path / "run").startswith(f"{folder}/{said}")
    result = run("train", recipe, "input.broken=skip", "--out", tmp_path / "run")
    assert result.exit_code == 0, result.stderr
    *named, counted = warned(result.stderr)
    assert counted == f"{folder}: 1 of {ROWS} rows cannot be used: images/001.png"
    assert all(one.startswith(f"left out: {folder}/{said}") and "\n" not in one for one in named)
    assert logged(tmp_path / "run")["rows"] == ROWS - 1

    result = run("evaluate", tmp_path / "run", folder, "--json")
    assert json.loads(result.stdout)["examples"] == ROWS - 1
    assert f"{folder}/{said}" in warned(result.stderr)[0]
    (tmp_path / "strict").mkdir()
    strict = json.loads((skipping / "model/config.json").read_text().replace('"skip"', '"refuse"'))
    strict.pop("checksum")
    for path in (skipping / "model").iterdir():
        (tmp_path / "strict" / path.name).write_bytes(path.read_bytes())
    (tmp_path / "strict/config.json").write_text(json.dumps(strict))
    assert refusal("evaluate", tmp_path / "strict", folder).startswith(f"{folder}/{said}")

    after = tree(tmp_path)
    assert all(after[path] == content for path, content in before.items())
    outputs = {tmp_path / one for one in ("run", "cache", "strict")}
    assert all(outputs & set(path.parents) for path in after.keys() - before.keys())


@pytest.mark.filterwarnings("always:.*(left out|cannot be used):UserWarning")
@pytest.mark.parametrize("name", ["images/../../../escaped.png", "images//etc/escaped.png", "images/..\\escaped.png"])
def test_an_entry_that_points_outside_is_refused_or_left_out(tmp_path: Path, name: str) -> None:
    archive = write_zip(tmp_path / "p.zip", {**squares_files(ROWS), name: encoded(squares(1)[0])})
    recipe = write_recipe(tmp_path / "recipe.yaml", segmenting(archive))
    said = refusal("train", recipe, "--out", tmp_path / "run")
    assert said.startswith(str(archive))
    result = run("train", recipe, "input.broken=skip", "--out", tmp_path / "run")
    assert result.exit_code == 0
    assert warned(result.stderr)[-1] == f"{archive}: 1 of {ROWS + 1} rows cannot be used: {name}"
    assert not any(path.name.endswith("escaped.png") for path in tmp_path.parent.rglob("*"))


def table_with(folder: Path, line: str) -> Path:
    table = write_shapes(folder, ROWS)
    lines = table.read_text().splitlines()
    table.write_text("\n".join([*lines[:2], line, *lines[3:]]) + "\n")
    return table


BAD_LINES = {
    "001.png\t\ta red bar": ":3: 'caption' is empty; fill it or remove the row",
    "001.png\ta red bar\t  ": ":3: 'other' is empty; fill it or remove the row",
    "\ta red bar\ta red bar": ":3: 'image' names no image",
    "none.png\ta red bar\ta red bar": "none.png: cannot be read (No such file or directory)",
    "../good/000.png\ta red bar\ta red bar": "the name '../good/000.png' leads outside",
    "/etc/passwd\ta red bar\ta red bar": "the name '/etc/passwd' leads outside",
    "a\0.png\ta red bar\ta red bar": "the name 'a\\x00.png' leads outside",
    "folder.png\ta red bar\ta red bar": "folder.png: not a file",
}


@pytest.mark.filterwarnings("always:.*(left out|cannot be used):UserWarning")
@pytest.mark.parametrize("line", BAD_LINES)
def test_a_line_that_cannot_be_used_is_refused_or_left_out(tmp_path: Path, line: str) -> None:
    table = table_with(tmp_path / "p", line)
    (tmp_path / "p/folder.png").mkdir()
    recipe = write_recipe(tmp_path / "recipe.yaml", captioning(table))
    assert BAD_LINES[line] in refusal("train", recipe, "--out", tmp_path / "run")
    result = run("train", recipe, "input.broken=skip", "--out", tmp_path / "run")
    assert result.exit_code == 0, result.stderr
    named, counted = warned(result.stderr)
    assert BAD_LINES[line] in named
    assert counted.startswith(f"{table}: 1 of {ROWS} rows cannot be used: ")
    # What was looked through before is named again.
    again = run("train", recipe, "input.broken=skip", "--out", tmp_path / "again")
    assert warned(again.stderr) == [counted]
    assert logged(tmp_path / "run")["rows"] == ROWS - 1
    result = run("evaluate", tmp_path / "run", table, "--json")
    assert json.loads(result.stdout)["examples"] == ROWS - 1
    assert BAD_LINES[line] in result.stderr


@pytest.mark.filterwarnings("always:.*(left out|cannot be used):UserWarning")
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            "output.column=[caption, capton]",
            "rows.tsv:2: no 'capton' here; this row has image, caption, other: name your column with target=",
        ),
        (
            "source=photo",
            "rows.tsv:2: no 'photo' here; this row has image, caption, other: name your column with source=",
        ),
        ("data.held_out=4", "data.held_out=4: there are only 4 rows; lower it"),
        ("input.folder=nowhere", "nowhere: no such folder or zip archive"),
        ("data.dev=none.tsv", "none.tsv: cannot be read"),
        ("data.train=nowhere/rows.tsv", "nowhere: no such folder or zip archive"),
    ],
)
def test_a_recipe_that_names_what_is_not_there_is_one_line(tmp_path: Path, change: str, said: str) -> None:
    table = write_shapes(tmp_path / "p", ROWS)
    recipe = write_recipe(tmp_path / "recipe.yaml", captioning(table))
    assert said in refusal("train", recipe, change, "--out", tmp_path / "run")


@pytest.mark.filterwarnings("always:.*(left out|cannot be used):UserWarning")
def test_a_training_that_is_left_with_no_row_ends_with_that(tmp_path: Path) -> None:
    table = write_shapes(tmp_path / "p", ROWS)
    recipe = write_recipe(tmp_path / "recipe.yaml", captioning(table, output={"column": ["capton"]}))
    result = run("train", recipe, "input.broken=skip", "--out", tmp_path / "run")
    assert result.exit_code == 1
    *named, last = result.stderr.splitlines()
    assert last == f"error: {table}: no row can be used"
    assert all(one.startswith("warning: left out: ") for one in named)


@pytest.mark.filterwarnings("always:.*(left out|cannot be used):UserWarning")
def test_nothing_is_judged_by_images_that_all_are_left_out(tmp_path: Path, skipping: Path) -> None:
    bad = write_files(tmp_path / "bad", {"images/000.png": b"no image"})
    recipe = segmenting(tmp_path / "good", input={"broken": "skip"}, data={"dev": str(bad)})
    result = run("train", write_recipe(tmp_path / "recipe.yaml", recipe), "--out", tmp_path / "run")
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (1, f"error: {bad}: no row can be used")
    result = run("predict", skipping, bad / "images/000.png")
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (1, "error: none of the images can be read")


def test_an_archive_that_is_none_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "p.zip").write_bytes(b"no archive")
    recipe = write_recipe(tmp_path / "recipe.yaml", segmenting(tmp_path / "p.zip/train"))
    for change in ("input.broken=refuse", "input.broken=skip"):
        said = refusal("train", recipe, change, "--out", tmp_path / "run")
        assert said.startswith(f"{tmp_path / 'p.zip'}: not a zip archive that can be read")


def test_a_caption_that_holds_half_a_character_is_named(tmp_path: Path) -> None:
    write_shapes(tmp_path / "p", 1)
    table = tmp_path / "p/rows.jsonl"
    table.write_text('{"image": "000.png", "caption": "a \\ud83d", "other": "x"}\n')
    recipe = write_recipe(tmp_path / "recipe.yaml", captioning(table))
    assert refusal("train", recipe, "--out", tmp_path / "run").startswith(
        f"{table}:1: 'caption' holds half a character"
    )


def test_an_image_that_vanishes_while_training_ends_it_with_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_files(tmp_path / "p", squares_files(ROWS))
    recipe = write_recipe(tmp_path / "recipe.yaml", segmenting(folder, train={"batch_rows": 1}))

    def removing(*given: Any) -> Any:
        (folder / "images/002.png").unlink(missing_ok=True)
        return training_rows(*given)

    with monkeypatch.context() as patch:
        patch.setattr("twofold.recipe.training.training_rows", removing)
        said = refusal("train", recipe, "train.epochs=1", "train.max_steps=null", "--out", tmp_path / "run")
    assert said.startswith(f"{folder / 'images/002.png'}: cannot be read (No such file or directory)")


@pytest.mark.filterwarnings("always:.*(left out|cannot be used):UserWarning")
def test_a_changed_image_is_looked_at_again(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "p", squares_files(ROWS))
    recipe = write_recipe(tmp_path / "recipe.yaml", segmenting(folder))
    assert run("train", recipe, "--out", tmp_path / "first").exit_code == 0
    (folder / "images/002.png").write_bytes(b"no image")
    os.utime(folder / "images/002.png", ns=(1, 1))
    assert refusal("train", recipe, "--out", tmp_path / "second").startswith(f"{folder / 'images/002.png'}: not a PNG")
