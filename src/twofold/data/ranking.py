"""Ranking rows: contexts, right responses and wrong ones, in one form."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain
from typing import Any

from twofold.data.corpora import read_corpus
from twofold.data.files import Row, Sources, read_rows
from twofold.data.relevance import gains_of, kind_of_row, unread_columns, warn_of_unread
from twofold.errors import TwofoldError

AUTO = "auto"
"""The form of files whose ending tells how they are read."""


@dataclass(frozen=True)
class RankingReader:
    """Reads pairs, pairs with given negatives, and rows of candidates, as rows of one form.

    `context` a list of turns, `response` the right text, `others` further right ones if there are any, `negatives` the
    wrong ones, `scores` a teacher's for them all in this order, `unread` columns that look like labels.
    """

    context: str = "context"
    response: str = "response"
    preface: str | None = None
    """A column whose texts stand before the turns, such as a persona."""
    form: str = AUTO
    """auto, or the name of a corpus in `data/corpora`."""

    def read(self, where: Sources) -> Iterator[Row]:
        """Every row of a file."""
        return map(self.row, self.read_as_given(where))

    def read_as_given(self, where: Sources) -> Iterator[Row]:
        """Every row of a file, candidates and their label as they stand."""
        if self.form == AUTO:
            return read_rows(where)
        if isinstance(where, Mapping):
            raise TwofoldError(f"data.form={self.form}: name files, not columns")
        return chain.from_iterable(
            read_corpus(self.form, path) for path in ([where] if isinstance(where, str) else where)
        )

    def row(self, row: Row) -> Row:
        """The same row in the one form."""
        values: dict[str, Any] = {"context": self.turns(row)}
        if row.values.get("candidates") is not None:
            candidates, gains = candidates_of(row)
            order = sorted(range(len(candidates)), key=lambda number: not gains[number])  # the right ones first
            right = [candidates[number] for number in order if gains[number]]
            values |= {"response": right[0], "negatives": [candidates[number] for number in order[len(right) :]]}
        else:
            right = self._responses(row)
            values |= {"response": right[0], "negatives": _texts(row, "negatives")}
            order = list(range(len(right) + len(values["negatives"])))
        if len(right) > 1:
            values["others"] = right[1:]
        if row.values.get("scores") is not None:
            scores = _numbers(row, len(order))
            values["scores"] = [scores[number] for number in order]
        if unread := self.unread(row):
            values["unread"] = unread
        return Row(row.place, values)

    def unread(self, row: Row) -> list[str]:
        """The columns of a row that look like labels and are not read."""
        return unread_columns(row, kind_of_row(row), (self.context, self.response, self.preface))

    def right(self, row: Row) -> list[str]:
        """All right texts of a row."""
        if row.values.get("candidates") is None:
            return self._responses(row)
        candidates, gains = candidates_of(row)
        return [text for text, gain in zip(candidates, gains, strict=True) if gain]

    def _responses(self, row: Row) -> list[str]:
        """The right responses of a pair, none of them empty."""
        response = row.text(self.response)
        right = [response] if isinstance(response, str) else response
        if not all(text.strip() for text in right):
            raise TwofoldError(f"{row.place}: '{self.response}' holds an empty text; remove it from the list")
        return right

    def turns(self, row: Row) -> list[str]:
        """The turns of the context, the preface before them."""
        found: list[str] = []
        for column in (self.preface, self.context):
            if column is not None and (column == self.context or row.values.get(column)):
                text = row.text(column)
                found += [text] if isinstance(text, str) else text
        return found


def warn_of_unread_rows(reader: RankingReader, rows: Iterable[Row]) -> None:
    """Say once if rows have columns that look like labels and are not read."""
    found = [(row, names) for row in rows if (names := reader.unread(row))]
    if found:
        first = found[0][0]
        warn_of_unread(first.place, [name for _, names in found for name in names], kind_of_row(first), len(found))


def candidates_of(row: Row) -> tuple[list[str], list[float]]:
    """The candidates of a ranking row, and how relevant each is: 0 is wrong, above 0 is right."""
    candidates = _texts(row, "candidates")
    if not candidates:
        raise TwofoldError(f"{row.place}: 'candidates' is empty; give at least one text")
    return candidates, gains_of(row, len(candidates))


def text_key(text: str) -> int:
    """The same number for texts that differ only in case, blanks or Unicode form."""
    plain = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    return int.from_bytes(blake2b(plain.encode(), digest_size=8).digest(), "little")


def _texts(row: Row, column: str) -> list[str]:
    """A list of texts, any of which may be empty."""
    found = row.values.get(column)
    if found is None:
        return []
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise TwofoldError(f"{row.place}: '{column}' is not a list of texts")
    try:
        "".join(found).encode()
    except UnicodeEncodeError:
        raise TwofoldError(f"{row.place}: '{column}' holds half a character (a lone surrogate)") from None
    return found


def _numbers(row: Row, count: int) -> list[float]:
    scores = row.values["scores"]
    right = isinstance(scores, list) and len(scores) == count
    if not right or not all(type(one) in (int, float) and math.isfinite(one) for one in scores):
        raise TwofoldError(f"{row.place}: 'scores' must be {count} numbers, one for each of its candidates")
    return [float(one) for one in scores]
