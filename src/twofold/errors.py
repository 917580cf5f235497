"""TwofoldError, the one exception that users see: a single clear line with the place and the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

NOT_NUMBERS = "not numbers; the model's weights are damaged or its training diverged"
"""Reason given when an output or a score is NaN or infinite."""
LONGEST_LINE = 800
"""Maximum number of characters of one line of an error."""
Value = TypeVar("Value")
ANYWAY = "start_anyway=true leaves these out"


class TwofoldError(Exception):
    """Error in the input, the settings or the environment that the user can fix."""


def as_list(values: Any, name: str) -> list[Any]:
    """Returns the values as a list. Refuses a bare string, which would be split into its letters."""
    if isinstance(values, str):
        raise TwofoldError(f"{name}: one text, where a list is wanted; put it in brackets: [{values[:40]!r}]")
    # Iterating over a mapping or a table would give its keys or column names.
    whole = isinstance(values, Mapping | bytes | bytearray)
    if isinstance(values, Iterable) and not whole and getattr(values, "ndim", 1) == 1:
        return list(values)
    raise TwofoldError(f"{name}: {kind_of_value(values)}, where a list is wanted; give a list")


def as_texts(values: Any, name: str) -> list[str]:
    """Returns the texts of any iterable as a list. An entry that is not a text is named by its position, from 0."""
    texts = as_list(values, name)
    for number, text in enumerate(texts):
        check_text(text, f"{name}[{number}]")
    return texts


def check_text(text: Any, name: str) -> None:
    """Raises an error if the value is not a string of valid characters."""
    if not isinstance(text, str):
        raise TwofoldError(f"{name}: {kind_of_value(text)}, where a text is wanted; give a str")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise TwofoldError(f"{name}: holds half a character (a lone surrogate); remove it") from None


def require(value: Value | None, missing: str) -> Value:
    """Returns the value, or raises an error if it is None; `missing` tells what the part did wrong."""
    if value is None:
        raise ValueError(missing)
    return value


class SeveralErrors(TwofoldError):  # noqa: N818 - it is more than one
    """Several errors reported together, one line each."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = list(dict.fromkeys(one_line(line) for line in lines))
        super().__init__("\n".join(self.lines))


def one_line(text: str, most: int = LONGEST_LINE) -> str:
    """Formats a text for one line of a terminal: escapes control characters and shortens a long middle."""
    line = "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in (text if len(text) <= 2 * most else f"{text[:most]}{text[-most:]}")
    )
    return line if len(line) <= most else f"{line[: most // 2]} … {line[-most // 2 :]}"


def listed(things: Sequence[str], most: int = 20) -> str:
    """Joins all entries, or the first ones followed by the number of the others."""
    more = f" and {len(things) - most} more" if len(things) > most else ""
    return f"{'; '.join(things[:most])}{more}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Suggests the known name closest to `word`, or lists all known names, as the end of an error message."""
    known = sorted(known)
    near = difflib.get_close_matches(word, known, n=1)
    if near:
        return f"did you mean '{near[0]}'?"
    return f"known are {', '.join(known)}" if known else "none is known here"


def kind_of_value(value: Any) -> str:
    """Describes the type of a wrong value in a few words."""
    return "None" if value is None else f"a value of type {type(value).__name__}"
