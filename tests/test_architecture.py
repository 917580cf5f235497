"""The call paths of docs/architecture.md are those of the real code."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.made import reverse
from twofold.recipe import train

DOCUMENT = Path(__file__).parents[1] / "docs" / "architecture.md"
CALL = tuple[str, str]
MOST_FILES = 18
"""Files that lead from `twofold train rank_poly` to its first step."""
MOST_FILES_IN_ALL = 70
"""Files of which any function is called on the way, checks, messages and helpers included."""


def documented(path: str) -> list[CALL]:
    """The functions that the page lists for a call path."""
    section = DOCUMENT.read_text(encoding="utf-8").split(f"### {path}\n")[1].split("\n### ")[0]
    return re.findall(r"^\d+\. `([\w/]+\.py)` · `([\w.]+)`$", section, re.M)


def traced(folder: Path, *arguments: str | Path) -> list[CALL]:
    """The functions that a command calls, in the order of their first call."""
    program = Path(__file__).parent / "call_paths.py"
    environment = {**os.environ, "TWOFOLD_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(program), *map(str, arguments)]
    result = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True, cwd=folder)
    return [(line[1], line[2]) for line in map(str.split, result.stdout.splitlines()) if line and line[0] == "called"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[CALL]]:
    """Calls of each of the four commands; the ranker that is trained is ranked and searched with."""
    folder = tmp_path_factory.mktemp("runs")
    pairs = [{"context": [f"question {number}"], "response": f"answer {number}"} for number in range(150)]
    (folder / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in pairs), encoding="utf-8")
    (folder / "answers.txt").write_text("".join(f"{row['response']}\n" for row in pairs), encoding="utf-8")
    rows = "".join(json.dumps(row) + "\n" for row in reverse(60, 1))
    (folder / "rows.jsonl").write_text(rows, encoding="utf-8")
    settings = ["data.rows=null", "train.max_steps=1", "train.batch_rows=8", "train.device=cpu"]
    paths = {"train": traced(folder, "train", "rank_poly", "data.train=pairs.jsonl", *settings, "--out", "ranker")}
    paths["rank"] = traced(folder, "rank", "ranker", "--candidates", "answers.txt", "question 3")
    traced(folder, "index", "build", "answers.index", "--model", "ranker", "--texts", "answers.txt")
    paths["search"] = traced(folder, "search", "answers.index", "question 3")
    small = {"kind": "transformer", "width": 16, "layers": 1, "heads": 2}
    recipe = {
        "data": {"train": str(folder / "rows.jsonl")},
        "input": {"tokenizer": {"size": 40}},
        "encoder": small,
        "decoder": small,
        "train": {"max_steps": 1, "device": "cpu"},
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TWOFOLD_CACHE", str(folder / "cache"))
        train(recipe, folder / "reverse")
    paths["predict"] = traced(folder, "predict", "reverse", "a b c")
    return paths


@pytest.mark.parametrize("path", ["train", "rank", "search", "predict"])
def test_functions_are_first_called_in_the_order_of_the_page(runs: dict[str, list[CALL]], path: str) -> None:
    listed = documented(path)
    assert len(listed) >= 8
    place = {call: number for number, call in enumerate(runs[path])}
    assert [call for call in listed if call not in place] == [], "is listed but never called"
    assert sorted(listed, key=place.__getitem__) == listed


def test_few_files_lead_to_the_first_step(runs: dict[str, list[CALL]]) -> None:
    assert len({file for file, _ in documented("train")}) <= MOST_FILES
    assert len({file for file, _ in runs["train"]}) <= MOST_FILES_IN_ALL
