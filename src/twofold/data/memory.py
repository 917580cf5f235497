"""Reads rows that are in memory: dicts from any iterable, a `datasets.Dataset`, or a pandas DataFrame."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from twofold.data.class_names import dataset_rows
from twofold.data.files import Row
from twofold.errors import TwofoldError, as_list, kind_of_value
from twofold.types import Example

RowsInMemory = Iterable[Any]
"""Rows as dicts from columns to values: any iterable, a `datasets.Dataset` or a pandas DataFrame."""
FRAME_ROWS = 1024
"""Rows of a DataFrame that are converted at a time."""
WANTED = "give dicts of columns, a datasets.Dataset or a pandas DataFrame"


def rows_in_memory(data: Any, name: str = "data", column: str | None = None) -> Iterator[Row]:
    """Reads rows one by one; the place of a row is its number in the data, from 0: `data[0]`.

    data: dicts from a list, a generator or any other iterable; a `datasets.Dataset`; or a pandas DataFrame
    column: column that a bare string fills; by default a bare string is an error
    """
    number = -1
    for number, values in enumerate(_examples(data, name)):
        place = f"{name}[{number}]"
        if isinstance(values, str) and column is not None:
            values = {column: values}
        if not isinstance(values, Mapping):
            raise TwofoldError(f"{place}: {kind_of_value(values)}, where a row is wanted; give a dict of columns")
        yield Row(place, values)
    if number < 0:
        raise TwofoldError(f"{name}: holds no rows")


def list_in_memory(data: Any, name: str) -> list[Any]:
    """Returns the entries of any data as a list: dicts for a Dataset or a DataFrame; a bare string is an error."""
    table = hasattr(data, "with_format") or _is_frame(data)
    return list(_examples(data, name)) if table else as_list(data, name)


def is_file_name(data: Any) -> bool:
    """Returns True for the name of a file, or a mapping from columns to names, rather than rows in memory."""
    return isinstance(data, str | Path | Mapping) and not is_split(data)


def is_split(data: Any) -> bool:
    """Returns True for a `datasets.DatasetDict`, which maps names of splits to datasets."""
    return isinstance(data, Mapping) and bool(data) and all(hasattr(split, "with_format") for split in data.values())


def _examples(data: Any, name: str) -> Iterable[Any]:
    """Returns the rows of any supported type of data."""
    if _is_frame(data):
        return _frame_rows(data, name)
    if is_split(data):
        raise TwofoldError(f"{name}: holds several splits; give one of them: {', '.join(map(str, data))}")
    if hasattr(data, "with_format"):
        return dataset_rows(data)
    if isinstance(data, str | bytes):
        raise TwofoldError(f"{name}: one text, where rows are wanted; {WANTED}")
    if isinstance(data, Mapping):
        raise TwofoldError(f"{name}: one dict, where rows are wanted; give a list of dicts, one for each row")
    if not isinstance(data, Iterable):
        raise TwofoldError(f"{name}: {kind_of_value(data)}, where rows are wanted; {WANTED}")
    return data


def _is_frame(data: Any) -> bool:
    """Returns True for a pandas DataFrame."""
    pandas = sys.modules.get("pandas")  # without it loaded, nothing is a DataFrame
    return pandas is not None and isinstance(data, pandas.DataFrame)


def _frame_rows(frame: Any, name: str) -> Iterator[Example]:
    """Converts the rows of a DataFrame to dicts of Python values; a missing value becomes None."""
    import pandas  # type: ignore[import-untyped]

    if not frame.columns.is_unique:
        twice = frame.columns[frame.columns.duplicated()][0]
        raise TwofoldError(f"{name}: the column '{twice}' stands twice; rename one of them")
    for start in range(0, len(frame), FRAME_ROWS):
        for row in frame.iloc[start : start + FRAME_ROWS].to_dict("records"):
            yield {
                column: None if pandas.api.types.is_scalar(value) and pandas.isna(value) else value
                for column, value in row.items()
            }
