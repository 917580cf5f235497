"""Reads texts to choose from: lines of text, or rows with `text` and perhaps `id`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from twofold.data.files import Row, Where, read_rows
from twofold.errors import TwofoldError


@dataclass(frozen=True)
class Candidate:
    """One text and what it is called: its own id, or the number of its line or row from 1."""

    text: str
    id: Any


def read_candidates(where: Where) -> Iterator[Candidate]:
    """Every candidate of a file; blank lines are passed over."""
    found = False
    for number, row in enumerate(read_rows(where), start=1):
        text = row.values.get("text")
        if not isinstance(text, str):
            raise TwofoldError(f"{row.place}: no 'text' here; give lines of text, or rows with 'text' and 'id'")
        title = row.values.get("title")
        whole = f"{title} {text}" if isinstance(title, str) and title else text
        if whole.strip():
            Row(row.place, {"text": whole}).text("text")  # whole characters only
            found = True
            yield Candidate(whole, row.values.get("id", number))
    if not found:
        raise TwofoldError(f"{where}: holds no candidates; give one on each line")
