"""The one exception users see: a clear line that names the place and the remedy."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

ANYWAY = "start_anyway=true leaves these out"


class TwofoldError(Exception):
    """Something about the input, the settings or the machine that its owner can put right."""


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
