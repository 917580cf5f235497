"""Reads texts to choose from: lines of text, or rows with `text` and perhaps `id` and further fields."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twofold.data.files import Row, Where, read_rows
from twofold.errors import TwofoldError
from twofold.types import Example

Texts = Where | Path | Sequence[Example | str]
"""A file, or texts and rows at hand."""


@dataclass(frozen=True)
class Candidate:
    """One text and what it is called."""

    text: str
    number: int
    """Of its line or row, from 1."""
    own_id: Any = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Whatever else its row holds."""
    place: str = ""

    @property
    def id(self) -> Any:
        """Its own id, or the number of its line or row."""
        return self.number if self.own_id is None else self.own_id


def read_candidates(where: Texts) -> Iterator[Candidate]:
    """Every candidate of a file, or of rows at hand; blank lines are passed over."""
    found = False
    for number, row in enumerate(_rows(where), start=1):
        text = row.values.get("text")
        if not isinstance(text, str):
            raise TwofoldError(f"{row.place}: no 'text' here; give lines of text, or rows with 'text' and 'id'")
        title = row.values.get("title")
        whole = f"{title} {text}" if isinstance(title, str) and title else text
        if whole.strip():
            Row(row.place, {"text": whole}).text("text")  # whole characters only
            found = True
            fields = {name: value for name, value in row.values.items() if name not in ("id", "text")}
            yield Candidate(whole, row.line or number, row.values.get("id"), fields, row.place)
    if not found:
        where = where if isinstance(where, str | Path) else "the texts"
        raise TwofoldError(f"{where}: holds no candidates; give one on each line")


def _rows(where: Texts) -> Iterable[Row]:
    if isinstance(where, Sequence) and not isinstance(where, str):
        shown = enumerate(where, start=1)
        return [Row(f"text {n}", {"text": one} if isinstance(one, str) else one) for n, one in shown]
    return read_rows(str(where) if isinstance(where, Path) else where)
