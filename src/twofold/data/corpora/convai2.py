"""ConvAI2 in ParlAI's text format: each response becomes a ranking row, or a pair if no candidates are given."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from twofold.data.files import Row, lines_of
from twofold.errors import TwofoldError, one_line

WHAT = "a text file of ConvAI2"
SILENCE = "__SILENCE__"
OWN_PERSONA, OTHER_PERSONA = "your persona:", "partner's persona:"
NUMBERED = re.compile(r"([0-9]{1,9}) (.*)", re.DOTALL)


def read(path: Path) -> Iterator[Row]:
    """Reads all rows.

    The persona is the context of a response that opens its episode. Opening responses without a persona and pairs with
    an empty response are skipped.
    """
    persona: list[str] = []
    history: list[str] = []
    last = 0
    for place, line in lines_of(path):
        if not line.strip():
            continue
        number, said = _numbered(place, line, last)
        if number == 1:
            persona, history = [], []
        last = number
        if "\t" not in said and said.startswith((OWN_PERSONA, OTHER_PERSONA)):
            trait = said.removeprefix(OWN_PERSONA).strip()
            if said.startswith(OWN_PERSONA) and trait:
                persona.append(trait)
            continue
        text, response, candidates = _exchange(place, said)
        # Checked even if the row is skipped.
        label = _last(place, response, candidates) if candidates else None
        if text and text != SILENCE:
            history.append(text)
        if context := list(history or persona):
            values: dict[str, Any] = {"context": context, "persona": list(persona)}
            if candidates:
                yield Row(place, values | {"candidates": candidates, "label": label})
            elif response:
                yield Row(place, values | {"response": response})
        if response:
            history.append(response)


def _numbered(place: str, line: str, last: int) -> tuple[int, str]:
    """Returns the number of a line in its episode and the text after it."""
    match = NUMBERED.fullmatch(line)
    if match is None:
        raise TwofoldError(f"{place}: begins with {one_line(repr(line), 60)}; begin it with its number and a space")
    number = int(match[1])
    if number != 1 and (number <= last or not last):
        before = f"comes after {last}" if last else "comes first"
        raise TwofoldError(f"{place}: number {number} {before}; number an episode upwards from 1")
    return number, match[2]


def _exchange(place: str, said: str) -> tuple[str, str, list[str]]:
    """Returns a text, the response to it, and the candidates of the response."""
    fields = [field.strip() for field in said.split("\t")]
    if len(fields) not in (2, 4):
        raise TwofoldError(
            f"{place}: {len(fields)} fields between tabs; give a text and a response, "
            "or a text, a response, an empty field and candidates with | between them"
        )
    candidates = [candidate.strip() for candidate in fields[3].split("|")] if len(fields) == 4 and fields[3] else []
    return fields[0], fields[1], candidates


def _last(place: str, response: str, candidates: list[str]) -> int:
    """Returns the last position of the response, because the corpus puts the right one last."""
    if response not in candidates:
        given = f"the response {one_line(repr(response), 60)} is not among its {len(candidates)} candidates"
        raise TwofoldError(f"{place}: {given}; add it to them")
    return len(candidates) - 1 - candidates[::-1].index(response)
