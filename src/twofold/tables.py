"""Tables of plain text for terminals, pipes and logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from unicodedata import east_asian_width


def table_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Lays rows out under their headings: numbers to the right, texts to the left."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = []
    for name in names:
        values = [row.get(name) for row in rows]
        cells = [name, *map(cell, values)]
        width = max(map(width_of, cells))
        numeric = all(value is None or isinstance(value, int | float) for value in values)
        gaps = [" " * (width - width_of(text)) for text in cells]
        columns.append([gap + text if numeric else text + gap for text, gap in zip(cells, gaps, strict=True)])
    return ["  ".join(line).rstrip() for line in zip(*columns, strict=True)]


def width_of(text: str) -> int:
    """Number of columns of a terminal that a text takes; a Korean or Chinese letter takes two."""
    return sum(2 if east_asian_width(letter) in "WF" else 1 for letter in text)


def cell(value: Any) -> str:
    """Text of one value: four significant digits, thousands apart, nothing for None."""
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value)
