"""Warns of columns in ranking rows that look like labels but are not read."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from twofold.data.files import Row

Kind = Literal["pair", "candidates", "query", "document"]

_ANYWHERE = ("relevance", "is_relevant", "qrels")
_ROWS = (*_ANYWHERE, "correct", "is_correct", "gold", "target", "answer", "answers", "score")
_RIGHT_AND_WRONG = ("positive", "positives", "pos", "negative", "neg", "hard_negatives")
LABEL_LIKE: Mapping[Kind, tuple[str, ...]] = {
    "pair": (*_ROWS, *_RIGHT_AND_WRONG, "label", "labels", "relevant"),
    "candidates": (*_ROWS, *_RIGHT_AND_WRONG, "negatives", "relevant"),
    "query": (*_ROWS, *_RIGHT_AND_WRONG, "label", "labels", "scores", "negatives", "candidates", "response"),
    "document": (*_ANYWHERE, "relevant"),
}
"""Column names that may be labels; some kinds of rows read some of them."""
REMEDY: Mapping[Kind, str] = {
    "pair": "the response of a pair counts as right: remove wrong pairs, give several right responses as a list, wrong "
    "ones as 'negatives', or rows with 'candidates' and 'labels'",
    "candidates": "'label' or 'labels' tells which of the 'candidates' are right: rename or remove the column",
    "query": "'relevant' tells the ids of what is relevant, in a list or with their gains: rename or remove the column",
    "document": "'relevant' of a query tells what is relevant: rename or remove the column",
}


def kind_of_row(row: Row) -> Kind:
    """Returns the kind of a ranking row: with candidates, or a pair."""
    return "pair" if row.values.get("candidates") is None else "candidates"


def unread_columns(row: Row, kind: Kind, read: Sequence[str | None] = ()) -> list[str]:
    """Columns of a row that look like labels and are not in `read`."""
    names = [name for name in row.values if isinstance(name, str) and name.casefold() in LABEL_LIKE[kind]]
    filled = [name for name in names if row.values[name] is not None and str(row.values[name]).strip()]
    return [name for name in filled if name not in read]


def warn_of_unread_columns(rows: Iterable[Row], read: Sequence[str | None] = (), kind: Kind | None = None) -> None:
    """Warns once if rows have columns that look like labels and are not in `read`."""
    unread = [(row, names) for row in rows if (names := unread_columns(row, kind or kind_of_row(row), read))]
    if unread:
        first = unread[0][0]
        names = [name for _, names in unread for name in names]
        warn_of_unread(first.place, names, kind or kind_of_row(first), len(unread))


def warn_of_unread(place: str, names: Iterable[str], kind: Kind, rows: int) -> None:
    """Warns once about unread columns that look like labels, with the first place and the remedy."""
    shown = ", ".join(f"'{name}'" for name in dict.fromkeys(names))
    of_all = f" (here and in {rows - 1:,} more rows)" if rows > 1 else ""
    warnings.warn(f"{place}: {shown} is not read{of_all}; {REMEDY[kind]}", stacklevel=2)
