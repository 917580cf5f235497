"""Ranking rows in a cache: contexts and candidates as their inputs encode them, and keys of equal ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from twofold.data.cache import Cache, Column, Encoded, Field
from twofold.data.files import Row
from twofold.data.label_columns import LABEL_LIKE
from twofold.data.ranking import RankingReader

Items = Callable[[str, int], list[Any]]
"""Function that returns the items in a column of a normalized ranking row: none, one or several."""
UNREAD = tuple(sorted({*LABEL_LIKE["pair"], *LABEL_LIKE["candidates"]}))
"""Column names that look like labels, numbered for the cache."""


class SideInput(Protocol):
    """Input of any type that reads contexts or candidates."""

    def columns(self) -> dict[str, Field]: ...

    def encode_values(self, column: str, values: Sequence[Any]) -> Encoded: ...

    def cached(self, cache: Cache, row: int) -> Any: ...


def ranking_columns(contexts: SideInput, candidates: SideInput, reader: RankingReader) -> dict[str, Field]:
    """Cache fields of ranking rows that `reader` reads."""
    return {
        **_value_columns(ValueInRow, "context", contexts),
        **_value_columns(ValuesInRow, "other_contexts", contexts),
        **_value_columns(ValueInRow, "response", candidates),
        **_value_columns(ValuesInRow, "others", candidates),
        **_value_columns(ValuesInRow, "negatives", candidates),
        **number_columns(reader),
    }


def number_columns(reader: RankingReader) -> dict[str, Field]:
    """Cache fields beside contexts and candidates: keys of equal texts, teacher scores, labels."""
    context_key, candidate_key = reader.context_side.key, reader.candidate_side.key

    def keys(row: Mapping[str, Any]) -> list[int]:
        """Keys of the context, the response and each negative."""
        return [context_key(row["context"]), *map(candidate_key, (row["response"], *row["negatives"]))]

    return {
        "keys": NumbersInRow("uint64", ["keys", repr(reader)], keys),
        "other_keys": NumbersInRow(
            "uint64", ["other keys"], lambda row: list(map(candidate_key, row.get("others", ())))
        ),
        "other_context_keys": NumbersInRow(
            "uint64", ["other context keys"], lambda row: list(map(context_key, row.get("other_contexts", ())))
        ),
        "scores": NumbersInRow("float32", ["scores"], lambda row: row.get("scores", [])),
        "unread": NumbersInRow(
            "uint8", ["unread", *UNREAD], lambda row: [UNREAD.index(name.casefold()) for name in row.get("unread", ())]
        ),
    }


@dataclass(frozen=True)
class NumbersInRow:
    """Numbers computed from a normalized ranking row."""

    dtype: str
    depends_on: list[str]
    numbers: Callable[[Mapping[str, Any]], list[Any]]

    def settings(self) -> list[Any]:
        return self.depends_on

    def encode(self, rows: Sequence[Row]) -> Encoded:
        return Encoded([self.numbers(row.values) for row in rows])


@dataclass(frozen=True)
class ValueInRow:
    """Context or response of a row, encoded for a column of its input's cache."""

    side: SideInput
    column: str
    """Column of that cache."""
    field: Field
    name: str
    """Name in the normalized row."""

    @property
    def dtype(self) -> str:
        return self.field.dtype

    def settings(self) -> list[Any]:
        return [self.name, *self.field.settings()]

    def encode(self, rows: Sequence[Row]) -> Encoded:
        return self.side.encode_values(self.column, [row.values[self.name] for row in rows])


class ValuesInRow(ValueInRow):
    """Further contexts, further right candidates or given negatives, concatenated, each after its length."""

    @property
    def dtype(self) -> str:
        return "uint32"

    def encode(self, rows: Sequence[Row]) -> Encoded:
        values = [row.values.get(self.name, ()) for row in rows]
        whole = [value for row_values in values for value in row_values]
        encoded = self.side.encode_values(self.column, whole) if whole else Encoded([])
        numbers = iter(encoded.ids)
        flat = [[n for value in islice(numbers, len(row)) for n in (len(value), *value)] for row in values]
        return Encoded(flat, encoded.cut)


def _value_columns(kind: type[ValueInRow], name: str, side: SideInput) -> dict[str, Field]:
    return {f"{name}.{column}": kind(side, column, field, name) for column, field in side.columns().items()}


def cached_items(cache: Cache, contexts: SideInput, candidates: SideInput) -> Items:
    """Returns a function that reads the items of cached rows."""

    def items(name: str, row: int) -> list[Any]:
        side = contexts if name in ("context", "other_contexts") else candidates
        fields = side.columns()
        columns = {column: cache.columns[f"{name}.{column}"] for column in fields}
        if name in ("context", "response"):
            return [side.cached(Cache(columns, cache.rows, {}, cache.where), row)]
        split = {column: _split(columns[column].row(row)) for column in fields}
        count = len(next(iter(split.values())))
        if not count:
            return []
        ends = {column: np.cumsum([0, *map(len, values)]) for column, values in split.items()}
        flat = {column: np.concatenate(values).astype(fields[column].dtype) for column, values in split.items()}
        view = Cache({column: Column(flat[column], ends[column]) for column in fields}, count, {}, cache.where)
        return [side.cached(view, number) for number in range(count)]

    return items


def _split(flat: NDArray[Any]) -> list[NDArray[Any]]:
    """Splits concatenated values, each preceded by its length."""
    values, start = [], 0
    while start < len(flat):
        stop = start + 1 + int(flat[start])
        values.append(flat[start + 1 : stop])
        start = stop
    return values
