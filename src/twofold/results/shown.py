"""Short texts of values and settings, so that every repr fits on a screen."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

WIDTH = 60
"""Maximum number of characters of one value."""
ENTRIES = 6
"""Maximum number of entries of a list that are shown."""


def short(value: Any, width: int = WIDTH) -> str:
    """Formats a value in one short line: arrays by shape, long lists by length, long texts cut."""
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{type(value).__name__}{tuple(value.shape)}"
    if isinstance(value, Mapping | list | tuple) and len(value) > ENTRIES:
        return f"({len(value):,} entries)"
    if isinstance(value, list | tuple):
        ends = "[]" if isinstance(value, list) else "()"
        return cut(f"{ends[0]}{', '.join(short(entry) for entry in value)}{ends[1]}", width)
    return cut(repr(value), width)


def cut(text: str, width: int = WIDTH) -> str:
    """Returns the text in one line of at most `width` characters."""
    line = " ".join(text.split())
    return line if len(line) <= width else f"{line[: width - 1]}…"


def changes(settings: Any, show: Callable[[Any], str] = short, without: Collection[str] = ()) -> str:
    """Formats the fields of a dataclass that differ from their defaults: `beam=5, n_best=3`."""
    shown = []
    for setting in (field for field in dataclasses.fields(settings) if field.repr and field.name not in without):
        value, default = getattr(settings, setting.name), setting.default
        if setting.default_factory is not dataclasses.MISSING:
            default = setting.default_factory()
        if hasattr(value, "shape") or value != default:  # arrays compare element by element
            shown.append(f"{setting.name}={show(value)}")
    return ", ".join(shown)


def screen(title: str, parts: Iterable[tuple[str, str]], most: int = 12) -> str:
    """Lays out named parts under a title, one line each; at most `most` of them."""
    parts = list(parts)
    width = max((len(name) for name, _ in parts[:most]), default=0)
    lines = [title, *(f"  {name:<{width}}  {text}".rstrip() for name, text in parts[:most])]
    return "\n".join([*lines, f"  … and {len(parts) - most:,} more"] if len(parts) > most else lines)
