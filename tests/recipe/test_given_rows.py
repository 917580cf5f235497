"""Rows in memory are written to a file one by one, as what they are; what JSON cannot hold is named."""

from __future__ import annotations

import json
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas  # type: ignore[import-untyped]
import pytest
from PIL import Image

from tests import made
from tests.conftest import some_image
from twofold.errors import TwofoldError
from twofold.recipe.given import write_rows

ROWS: list[dict[str, Any]] = list(made.numbers(40, seed=9))


def written(rows: Iterable[Any], folder: Path) -> list[dict[str, Any]]:
    """Rows as they are read again from the file that they become."""
    path = folder / "rows" / "train.jsonl"
    write_rows(rows, path, folder, unchanged=False)
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_numbers_arrays_names_and_dates_are_written_as_what_they_are(tmp_path: Path) -> None:
    row = {
        "text": np.str_("열 하나"),
        "count": np.int64(3),
        "score": np.float32(0.5),
        "right": np.bool_(True),
        "words": np.array(["a", "b"], dtype=object),
        "tags": np.array([1, 2]),
        "nested": [np.array([0.5]), (1, None)],
        "file": Path("images/1.png"),
        "when": pandas.Timestamp("2026-01-02"),
        7: {"inner": np.int8(1)},
    }
    expected = {
        "text": "열 하나",
        "count": 3,
        "score": 0.5,
        "right": True,
        "words": ["a", "b"],
        "tags": [1, 2],
        "nested": [[0.5], [1, None]],
        "file": "images/1.png",
        "when": "2026-01-02T00:00:00",
        "7": {"inner": 1},
    }
    assert written([row], tmp_path) == [expected]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (
            Image.fromarray(some_image()),
            "data[1]: 'x' holds a value of type Image, which cannot be written; save images",
        ),
        (some_image(), "data[1]: 'x' holds an array of 3 dimensions, which cannot be written; save images and sounds"),
        (b"abc", "data[1]: 'x' holds a value of type bytes, which cannot be written"),
        ("\ud800", "data[1]: 'x' holds half a character (a lone surrogate)"),
    ],
)
def test_what_a_file_of_rows_cannot_hold_is_named_with_row_column_and_remedy(
    tmp_path: Path, value: Any, said: str
) -> None:
    with pytest.raises(TwofoldError) as caught:
        written([{"x": "a"}, {"x": value}], tmp_path)
    assert str(caught.value).startswith(said)
    assert not list((tmp_path / "rows").iterdir())


class Example(dict[str, Any]):
    """A dict that tells when it is forgotten."""


def test_rows_of_a_generator_are_written_without_keeping_them(tmp_path: Path) -> None:
    alive: list[weakref.ref[Example]] = []
    most = 0

    def rows() -> Iterator[Example]:
        nonlocal most
        for number in range(500):
            row = Example(text=str(number))
            alive[:] = [reference for reference in alive if reference() is not None]
            alive.append(weakref.ref(row))
            most = max(most, len(alive))
            yield row

    assert [int(row["text"]) for row in written(rows(), tmp_path)] == list(range(500))
    assert most <= 4


def test_a_generator_that_fails_leaves_the_rows_as_they_were(tmp_path: Path) -> None:
    before = written(ROWS, tmp_path)

    def failing() -> Iterator[dict[str, Any]]:
        yield ROWS[0]
        raise FileNotFoundError(2, "No such file or directory", "more.txt")

    with pytest.raises(TwofoldError, match=r"^data: the rows cannot be read \(No such file or directory\)$"):
        written(failing(), tmp_path)
    [path] = (tmp_path / "rows").iterdir()
    assert [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] == before
