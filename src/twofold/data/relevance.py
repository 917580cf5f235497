"""Which candidates of a row are right, and columns that look as if they said so but are not read."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np

from twofold.data.files import Row
from twofold.errors import TwofoldError

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
"""Names of columns that may tell what is right; some kinds of rows read some of them."""
REMEDY: Mapping[Kind, str] = {
    "pair": "the response of a pair counts as right: remove wrong pairs, give several right responses as a list, wrong "
    "ones as 'negatives', or rows with 'candidates' and 'labels'",
    "candidates": "'label' or 'labels' tells which of the 'candidates' are right: rename or remove the column",
    "query": "'relevant' tells the ids of what is relevant, in a list or with their gains: rename or remove the column",
    "document": "'relevant' of a query tells what is relevant: rename or remove the column",
}


def gains_of(row: Row, count: int) -> list[float]:
    """For each of a row's candidates how relevant it is, by `label` or `labels`: 0 is wrong, above 0 is right."""
    label, labels = row.values.get("label"), row.values.get("labels")
    if labels is None:
        right = _numbers_of_label(row, label, count)
        return [float(number in right) for number in range(count)]
    gains = _gains_of_labels(row, labels, count)
    if not any(gains):
        raise TwofoldError(f"{row.place}: 'labels' marks no candidate as right; mark one or remove the row")
    right = {number for number, gain in enumerate(gains) if gain}
    if label is not None and _numbers_of_label(row, label, count) != right:
        raise TwofoldError(f"{row.place}: 'label' and 'labels' do not mark the same candidates; keep one of the two")
    return gains


def kind_of_row(row: Row) -> Kind:
    """Whether a ranking row has its candidates with it, or is a pair."""
    return "pair" if row.values.get("candidates") is None else "candidates"


def is_gain(value: Any) -> bool:
    """Whether a value is a number from 0 up."""
    return isinstance(value, Real | np.bool_) and 0 <= float(value) < math.inf


def unread_columns(row: Row, kind: Kind, read: Sequence[str | None] = ()) -> list[str]:
    """The columns of a row, but for those that are `read`, that look as if they told what is right."""
    known = LABEL_LIKE[kind]
    names = [name for name in row.values if isinstance(name, str) and name.casefold() in known and name not in read]
    return [name for name in names if row.values[name] is not None and not _is_blank(row.values[name])]


def warn_of_unread(place: str, names: Iterable[str], kind: Kind, rows: int) -> None:
    """Say once which columns that look like labels are not read, where the first is, and what to do."""
    shown = ", ".join(f"'{name}'" for name in dict.fromkeys(names))
    of_all = f" (here and in {rows - 1:,} more rows)" if rows > 1 else ""
    warnings.warn(f"{place}: {shown} is not read{of_all}; {REMEDY[kind]}", stacklevel=2)


def _numbers_of_label(row: Row, label: Any, count: int) -> set[int]:
    """The numbers of the right candidates: one, or a list of them."""
    if not _is_list(label):
        if not _is_number(label, count):
            raise TwofoldError(f"{row.place}: 'label' must be from 0 to {count - 1}, not {label!r:.60}")
        return {int(label)}
    if len(label) == count > 1:
        told = "as many numbers as candidates; name the column 'labels' if each tells whether its candidate is right"
        raise TwofoldError(f"{row.place}: 'label' has {told}")
    return _distinct(row, "label", label, count)


def _gains_of_labels(row: Row, labels: Any, count: int) -> list[float]:
    """One gain for each candidate, or the numbers of the right ones."""
    if not _is_list(labels):
        raise TwofoldError(f"{row.place}: 'labels' must be a list, of {count} numbers or of the right candidates'")
    if len(labels) != count:
        right = _distinct(row, "labels", labels, count)
        return [float(number in right) for number in range(count)]
    if not all(map(is_gain, labels)):
        raise TwofoldError(f"{row.place}: 'labels' must be {count} numbers from 0 up, one for each candidate")
    return [float(gain) for gain in labels]


def _distinct(row: Row, column: str, numbers: Any, count: int) -> set[int]:
    if not len(numbers) or not all(_is_number(one, count) for one in numbers) or len({*numbers}) < len(numbers):
        wanted = f"the numbers of the right candidates, each once, from 0 to {count - 1}"
        if column == "labels":
            wanted = f"{count} numbers, one for each candidate, or {wanted}"
        raise TwofoldError(f"{row.place}: '{column}' must be {wanted}")
    return {int(one) for one in numbers}


def _is_blank(value: Any) -> bool:
    """Whether a field of a table is empty."""
    return isinstance(value, str) and not value.strip()


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim == 1)


def _is_number(value: Any, count: int) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and 0 <= int(value) < count
