"""Rows in memory read alike from dicts, generators, datasets and DataFrames; anything else is refused in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import datasets  # type: ignore[import-untyped]
import pandas  # type: ignore[import-untyped]
import pytest

from twofold.data.files import Row, read_rows
from twofold.data.memory import is_file_name, rows_in_memory
from twofold.errors import TwofoldError

ROWS = [{"text": "a b", "label": "x", "size": 1}, {"text": "c", "label": "y", "size": 2}]
EXPECTED = [Row("data[0]", ROWS[0]), Row("data[1]", ROWS[1])]


def refusal(data: Any, **options: Any) -> str:
    """Message of the error that reading ends with."""
    with pytest.raises(TwofoldError) as caught:
        list(rows_in_memory(data, **options))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    "data",
    [
        ROWS,
        tuple(ROWS),
        (dict(row) for row in ROWS),
        datasets.Dataset.from_list(ROWS),
        datasets.Dataset.from_list(ROWS).with_format("numpy"),
        datasets.Dataset.from_list(ROWS).to_iterable_dataset(),
        pandas.DataFrame(ROWS),
        pandas.DataFrame(ROWS, index=[7, 3]),
    ],
)
def test_every_type_of_data_gives_the_same_rows_of_python_values(data: Any) -> None:
    rows = list(rows_in_memory(data))
    assert rows == EXPECTED
    assert [type(row.values["size"]) for row in rows] == [int, int]


def test_rows_are_read_one_by_one() -> None:
    taken: list[None] = []

    def endless() -> Any:
        while True:
            taken.append(None)
            yield {"text": "a"}

    next(rows_in_memory(endless()))
    assert len(taken) == 1


def test_a_missing_value_of_a_data_frame_is_none_and_a_list_stays_a_list() -> None:
    frame = pandas.DataFrame({"text": ["a", None], "size": [float("nan"), 2.0], "turns": [["b", "c"], None]})
    first, second = rows_in_memory(frame)
    assert first.values == {"text": "a", "size": None, "turns": ["b", "c"]}
    assert second.values == {"text": None, "size": 2.0, "turns": None}
    with pytest.raises(TwofoldError, match=r"^data\[1\]: 'text' is null; fill it or remove the row$"):
        second.text("text")


def test_a_bare_string_fills_a_column_only_where_the_caller_names_one() -> None:
    assert list(rows_in_memory(["a", {"text": "b"}], "texts", column="text")) == [
        Row("texts[0]", {"text": "a"}),
        Row("texts[1]", {"text": "b"}),
    ]
    assert refusal(["a"]) == "data[0]: a value of type str, where a row is wanted; give a dict of columns"


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("rows.jsonl", "data: one text, where rows are wanted"),
        ({"text": ["a"]}, "data: one dict, where rows are wanted; give a list of dicts"),
        (None, "data: None, where rows are wanted"),
        ([], "data: holds no rows"),
        (pandas.DataFrame({"text": []}), "data: holds no rows"),
        ([*ROWS, 7], "data[2]: a value of type int, where a row is wanted"),
        (pandas.DataFrame([[1, 2]], columns=["a", "a"]), "data: the column 'a' stands twice; rename one of them"),
        (
            datasets.DatasetDict({"train": datasets.Dataset.from_list(ROWS)}),
            "data: holds several splits; give one of them: train",
        ),
    ],
)
def test_other_data_is_refused_in_one_line(data: Any, said: str) -> None:
    assert refusal(data).startswith(said)


def test_a_file_is_told_from_rows_in_memory() -> None:
    assert all(map(is_file_name, ["a.tsv", Path("a.tsv"), {"de": "a.de", "en": "a.en"}]))
    splits = datasets.DatasetDict({"train": datasets.Dataset.from_list(ROWS)})
    assert not any(map(is_file_name, [ROWS, iter(ROWS), datasets.Dataset.from_list(ROWS), splits]))


CLASSES = datasets.Features(
    {
        "text": datasets.Value("string"),
        "label": datasets.ClassLabel(names=["no", "yes"]),
        "tags": datasets.List(datasets.ClassLabel(names=["O", "B-N"])),
        "right": datasets.ClassLabel(names=["0", "1"]),
    }
)
CODED = {"text": ["a b", "c"], "label": [1, -1], "tags": [[0, 1], None], "right": [1, 0]}
DECODED = [
    {"text": "a b", "label": "yes", "tags": ["O", "B-N"], "right": 1},
    {"text": "c", "label": None, "tags": None, "right": 0},
]
"""Rows with the names of their classes; names that repeat the numbers stay numbers."""


@pytest.mark.parametrize("format", [None, "numpy", "torch"])
def test_classes_of_a_dataset_are_read_by_their_names(format: str | None) -> None:
    dataset = datasets.Dataset.from_dict(CODED, features=CLASSES)
    assert [row.values for row in rows_in_memory(dataset.with_format(format))] == DECODED
    assert [row.values for row in rows_in_memory(dataset.to_iterable_dataset())] == DECODED


def test_a_saved_dataset_is_read_as_it_is_in_memory(tmp_path: Path) -> None:
    dataset = datasets.Dataset.from_dict(CODED, features=CLASSES)
    dataset.save_to_disk(str(tmp_path / "saved"))
    assert [row.values for row in read_rows(str(tmp_path / "saved"))] == DECODED
