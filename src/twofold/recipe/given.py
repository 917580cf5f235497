"""Data given to `train` from Python: names of files, or rows in memory, which become files in the training's folder."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twofold import storage
from twofold.data.files import Row, Where
from twofold.data.memory import RowsInMemory, is_file_name, is_split, rows_in_memory
from twofold.data.ranking import AUTO
from twofold.errors import TwofoldError, kind_of_value
from twofold.recipe.file import read_yaml

DataSource = Where | Path | Sequence[str | Path] | RowsInMemory
"""Name of a file, several names, names of plain text files by column, or rows in memory."""
ROWS, RECIPE = "rows", "recipe.yaml"
"""Folder of rows that were in memory, and the recipe, in the folder of a training."""
ARGUMENTS = {"train": "data", "dev": "dev"}
"""Arguments of `train`, by the setting of `data` that they take the place of."""
VALIDATION_SPLITS = ("validation", "valid", "val", "dev")
"""Names of the split of a `datasets.DatasetDict` that holds the validation rows; the first that is there counts."""


@dataclass(frozen=True)
class GivenData:
    """Data given to `train`, as the recipe names it."""

    settings: dict[str, Any] = field(default_factory=dict)
    """Settings of `data` that take the place of those in the recipe."""
    rows: dict[Path, RowsInMemory] = field(default_factory=dict)
    """Rows to write, by the file that they become."""


def given_data(
    folder: Path, data: DataSource | None, dev: DataSource | None, changes: Sequence[str], resume: bool
) -> GivenData:
    """Returns what the arguments `data` and `dev` of `train` change in the recipe, and the rows to write.

    resume: take the rows that the training was begun with where none are given
    """
    given = GivenData()
    train, validation = _splits(data)
    for name, source in {"train": train, "dev": validation if dev is None else dev}.items():
        path, changed = folder / ROWS / f"{name}.jsonl", any(change.startswith(f"data.{name}=") for change in changes)
        if source is None and (changed or not (resume and _begun_with(path, folder / RECIPE))):
            continue
        if changed:
            raise TwofoldError(
                f"data.{name}: given twice, as {ARGUMENTS[name]}= and in `changes`; leave one of them out"
            )
        names = _file_names(source)
        if names is None:
            given.settings[name] = str(path)
            if source is not None:
                given.rows[path] = source
            if name == "train":
                given.settings["form"] = AUTO
        else:
            given.settings[name] = names
        if name == "dev":
            given.settings["held_out"] = 0
    return given


def write_rows(rows: RowsInMemory, path: Path, folder: Path, unchanged: bool) -> None:
    """Writes rows in memory to a jsonl file, one by one.

    unchanged: refuse rows that differ from those in the file, which the training in `folder` was begun with
    """
    name, digest = ARGUMENTS[path.stem], hashlib.sha256()
    with storage.new_file(path) as file:
        for line in _lines(rows, name):
            file.write(line)
            digest.update(line)
        if unchanged and not (path.exists() and storage.sha256(path) == digest.hexdigest()):
            remedy = f"resume without {name}=, train in another folder, or go on with resume_anyway=True"
            raise TwofoldError(f"{name}: not the rows that the training in {folder} was begun with; {remedy}")


def is_moved(folder: Path, old: Any, new: Any) -> bool:
    """Returns True if both settings name the same file of rows in the folder, before and after it was moved."""
    path = Path(str(new))
    return path.parent == folder / ROWS and Path(str(old)).parts[-2:] == path.parts[-2:]


def _splits(data: Any) -> tuple[Any, Any]:
    """Training and validation rows of a `datasets.DatasetDict`; all other data is training rows."""
    if not is_split(data):
        return data, None
    if "train" not in data:
        raise TwofoldError(f"data: holds no split 'train'; give one of its splits: {', '.join(map(str, data))}")
    return data["train"], next((data[name] for name in VALIDATION_SPLITS if name in data), None)


def _file_names(source: Any) -> Any:
    """Names of files as a recipe holds them; None for rows in memory."""
    if isinstance(source, str | Path):
        return str(source)
    if is_file_name(source) and source and all(isinstance(name, str | Path) for name in source.values()):
        return {column: str(name) for column, name in source.items()}
    several = isinstance(source, list | tuple) and source and all(isinstance(name, str | Path) for name in source)
    return list(map(str, source)) if several else None


def _begun_with(path: Path, recipe: Path) -> bool:
    """Returns True if the recipe in the folder learns from, or is judged by, the rows at `path`."""
    if not (path.exists() and recipe.exists()):
        return False
    data = read_yaml(recipe).get("data")
    return isinstance(data, dict) and is_moved(path.parents[1], data.get(path.stem), path)


def _lines(rows: RowsInMemory, name: str) -> Iterator[bytes]:
    """Lines of the jsonl file."""
    given = rows_in_memory(rows, name)
    while True:
        try:
            row = next(given, None)
        except OSError as error:  # otherwise taken for one of the file that is written
            raise TwofoldError(f"{name}: the rows cannot be read ({error.strerror or error})") from error
        if row is None:
            return
        yield _line(row)


def _line(row: Row) -> bytes:
    """Row as a line of JSON; what JSON cannot hold is refused with its column."""
    values = []
    for column, value in row.values.items():
        try:
            text = f"{json.dumps(str(column))}: {json.dumps(value, ensure_ascii=False, default=_plain)}"
            values.append(text.encode())
        except UnicodeEncodeError:
            raise TwofoldError(f"{row.place}: '{column}' holds half a character (a lone surrogate)") from None
        except (TypeError, ValueError) as error:
            remedy = "save images and sounds as files, give their names and set input.folder; or remove the column"
            raise TwofoldError(f"{row.place}: '{column}' holds {error}, which cannot be written; {remedy}") from None
    return b"{" + b", ".join(values) + b"}\n"


def _plain(value: Any) -> Any:
    """Converts numbers and lists of numpy and torch, names of files, and dates to what JSON can hold."""
    if hasattr(value, "tolist") and getattr(value, "ndim", 2) < 2:
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "isoformat"):
        return value.isoformat()
    shape = f"an array of {value.ndim} dimensions" if hasattr(value, "ndim") else kind_of_value(value)
    raise TypeError(shape)
