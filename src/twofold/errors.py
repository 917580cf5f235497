"""The one exception users see: a clear line that names the place and the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

NOT_NUMBERS = "not numbers; the model's weights are damaged or its training diverged"
"""What is wrong with an answer that holds nan or an infinity."""
LONGEST_LINE = 800
"""Characters of a line of an error at most."""
ANYWAY = "start_anyway=true leaves these out"


class TwofoldError(Exception):
    """Something about the input, the settings or the machine that its owner can put right."""


def as_list(values: Any, name: str) -> list[Any]:
    """A list of the given values; a bare text is refused, because it would be taken for a list of its letters."""
    if isinstance(values, str | bytes):
        short = values if len(values) <= 40 else values[:40]
        raise TwofoldError(f"{name}: one text, where a list is wanted; put it in brackets: [{short!r}]")
    # Of a mapping, or of a table of several dimensions, a loop gives the keys or the columns' names.
    if isinstance(values, Iterable) and not isinstance(values, Mapping) and getattr(values, "ndim", 1) == 1:
        return list(values)
    raise TwofoldError(f"{name}: {kind_of_value(values)}, where a list is wanted; give a list")


def as_texts(values: Any, name: str) -> list[str]:
    """A list of the given texts, whatever they came in; one that is no text is named by its place from 0."""
    texts = as_list(values, name)
    for number, text in enumerate(texts):
        check_text(text, f"{name}[{number}]")
    return texts


def check_text(text: Any, name: str) -> None:
    """Refuse what is not a text of whole characters."""
    if not isinstance(text, str):
        raise TwofoldError(f"{name}: {kind_of_value(text)}, where a text is wanted; give a str")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise TwofoldError(f"{name}: holds half a character (a lone surrogate); remove it") from None


class SeveralErrors(TwofoldError):  # noqa: N818 - it is more than one
    """Several things that are wrong at once, a line each."""

    def __init__(self, lines: Iterable[str]) -> None:
        self.lines = list(dict.fromkeys(one_line(line) for line in lines))
        super().__init__("\n".join(self.lines))


def one_line(text: str, most: int = LONGEST_LINE) -> str:
    """A text on one line that a terminal only shows: what it would obey is spelled out, a long middle left out."""
    line = "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in (text if len(text) <= 2 * most else f"{text[:most]}{text[-most:]}")
    )
    return line if len(line) <= most else f"{line[: most // 2]} … {line[-most // 2 :]}"


def listed(things: Sequence[str], most: int = 20) -> str:
    """All of them, or the first ones and how many more there are."""
    more = f" and {len(things) - most} more" if len(things) > most else ""
    return f"{'; '.join(things[:most])}{more}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The tail of an error about an unknown `word`: the nearest known one, or all of them."""
    known = sorted(known)
    near = difflib.get_close_matches(word, known, n=1)
    if near:
        return f"did you mean '{near[0]}'?"
    return f"known are {', '.join(known)}" if known else "none is known here"


def kind_of_value(value: Any) -> str:
    """What a wrong value is, in a few words."""
    return "None" if value is None else f"a value of type {type(value).__name__}"
