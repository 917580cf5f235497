"""Reads dialogue corpora in the form they were published in, as rows of the uniform form."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from twofold.data.files import Row, lines_of, read_table
from twofold.errors import TwofoldError

END_OF_TURN, END_OF_UTTERANCE = "__eot__", "__eou__"
RIGHT, DISTRACTOR = "Ground Truth Utterance", "Distractor_"
# The script writes numbers with a point unless it was asked to tokenize.
LABELS = {"1": True, "1.0": True, "0": False, "0.0": False}

SILENCE = "__SILENCE__"
OWN_PERSONA, OTHER_PERSONA = "your persona:", "partner's persona:"
NUMBERED = re.compile(r"([0-9]{1,9}) (.*)", re.DOTALL)


def read_ubuntu_v2(path: str | Path) -> Iterator[Row]:
    """The Ubuntu Dialogue Corpus V2: train.csv gives pairs, valid.csv and test.csv give candidates to rank.

    Wrong pairs, and pairs of which one side is empty, are left out. Ranking rows are all kept with all their
    candidates, even an empty one, so that scores stay comparable with published ones.
    """
    return _at_least_one(path, _ubuntu_rows(Path(path)), "a csv file of the Ubuntu Dialogue Corpus V2")


def read_convai2(path: str | Path) -> Iterator[Row]:
    """ConvAI2 in ParlAI's text form: each response becomes a row to rank, or a pair where no candidates are given.

    A response that opens its episode has the persona for its context; without one it is left out, and so is a pair
    whose response is empty.
    """
    return _at_least_one(path, _convai2_rows(Path(path)), "a text file of ConvAI2")


READERS: dict[str, Callable[[str | Path], Iterator[Row]]] = {"ubuntu_v2": read_ubuntu_v2, "convai2": read_convai2}
"""The readers by the name of their form."""


def _at_least_one(path: str | Path, rows: Iterator[Row], form: str) -> Iterator[Row]:
    empty = True
    for row in rows:
        empty = False
        yield row
    if empty:
        raise TwofoldError(f"{path}: holds no rows to use; give {form}")


def _ubuntu_rows(path: Path) -> Iterator[Row]:
    rows = read_table(path, csv.QUOTE_MINIMAL, ",")
    first = next(rows, None)
    if first is None:
        return
    columns = list(first.values)
    distractors = sum(column.startswith(DISTRACTOR) for column in columns)
    ranking = RIGHT in columns or distractors > 0
    # How many distractors there are is an option of the script, but they are numbered without gaps.
    candidates = [RIGHT, *(f"{DISTRACTOR}{number}" for number in range(max(distractors, 1)))]
    for column in ["Context", *candidates] if ranking else ["Context", "Utterance", "Label"]:
        if column not in columns:
            raise TwofoldError(
                f"{path}:1: no column '{column}' among {_short(', '.join(columns))}; train.csv needs Context, "
                f"Utterance and Label, valid.csv and test.csv need Context, {RIGHT}, {DISTRACTOR}0, {DISTRACTOR}1, ..."
            )
    for row in chain([first], rows):
        if ranking:
            texts = [_utterances(row.values[column]) for column in candidates]
            yield Row(row.place, {"context": _turns(row.values["Context"]), "candidates": texts, "label": 0})
        elif _is_right(row):
            context, response = _turns(row.values["Context"]), _utterances(row.values["Utterance"])
            if context and response:
                yield Row(row.place, {"context": context, "response": response})


def _is_right(row: Row) -> bool:
    label: str = row.values["Label"]
    if label.strip() not in LABELS:
        raise TwofoldError(
            f"{row.place}: the label is {_short(repr(label))}; write 1 for a right pair, 0 for a wrong one"
        )
    return LABELS[label.strip()]


def _turns(context: str) -> list[str]:
    return [turn for part in context.split(END_OF_TURN) if (turn := _utterances(part))]


def _utterances(turn: str) -> str:
    """The utterances of one turn as one text."""
    parts = turn.replace(END_OF_TURN, END_OF_UTTERANCE).split(END_OF_UTTERANCE)
    return " ".join(text for part in parts if (text := part.strip()))


def _convai2_rows(path: Path) -> Iterator[Row]:
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
            own = said.removeprefix(OWN_PERSONA).strip()
            if said.startswith(OWN_PERSONA) and own:
                persona.append(own)
            continue
        text, response, candidates = _exchange(place, said)
        # Checked also where the row is left out.
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
    """The number of a line in its episode, and what follows it."""
    found = NUMBERED.fullmatch(line)
    if found is None:
        raise TwofoldError(f"{place}: begins with {_short(repr(line))}; begin it with its number and a space")
    number = int(found[1])
    if number != 1 and (number <= last or not last):
        before = f"comes after {last}" if last else "comes first"
        raise TwofoldError(f"{place}: number {number} {before}; number an episode upwards from 1")
    return number, found[2]


def _exchange(place: str, said: str) -> tuple[str, str, list[str]]:
    """A text, the response to it, and the candidates that the response stands among."""
    fields = [field.strip() for field in said.split("\t")]
    if len(fields) not in (2, 4):
        raise TwofoldError(
            f"{place}: {len(fields)} fields between tabs; give a text and a response, "
            "or a text, a response, an empty field and candidates with | between them"
        )
    candidates = [candidate.strip() for candidate in fields[3].split("|")] if len(fields) == 4 and fields[3] else []
    return fields[0], fields[1], candidates


def _last(place: str, response: str, candidates: list[str]) -> int:
    """Where the response stands: its last place, because the corpus puts the right one last."""
    for index in reversed(range(len(candidates))):
        if candidates[index] == response:
            return index
    raise TwofoldError(
        f"{place}: the response {_short(repr(response))} is not among its {len(candidates)} candidates; add it to them"
    )


def _short(text: str) -> str:
    text = " ".join(text.split())  # an error is one line
    return text if len(text) <= 60 else f"{text[:57]}..."
