"""Ubuntu Dialogue Corpus V2: train.csv gives pairs, valid.csv and test.csv give candidates to rank."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from twofold.data.files import Row, read_table
from twofold.errors import TwofoldError, one_line

WHAT = "a csv file of the Ubuntu Dialogue Corpus V2"
END_OF_TURN, END_OF_UTTERANCE = "__eot__", "__eou__"
RIGHT, DISTRACTOR = "Ground Truth Utterance", "Distractor_"
# The script writes numbers with a decimal point unless it tokenizes.
LABELS = {"1": True, "1.0": True, "0": False, "0.0": False}


def read(path: Path) -> Iterator[Row]:
    """Reads all rows.

    Wrong pairs and pairs with an empty side are skipped. Ranking rows keep all candidates, even empty ones, so that
    metrics stay comparable with published ones.
    """
    rows = read_table(path, csv.QUOTE_MINIMAL, ",")
    first = next(rows, None)
    if first is None:
        return
    columns = list(first.values)
    distractors = sum(column.startswith(DISTRACTOR) for column in columns)
    ranking = RIGHT in columns or distractors > 0
    # The number of distractors is an option of the script; they are numbered without gaps.
    candidates = [RIGHT, *(f"{DISTRACTOR}{number}" for number in range(max(distractors, 1)))]
    for column in ["Context", *candidates] if ranking else ["Context", "Utterance", "Label"]:
        if column not in columns:
            raise TwofoldError(
                f"{path}:1: no column '{column}' among {one_line(', '.join(columns), 60)}; train.csv needs Context, "
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
            f"{row.place}: the label is {one_line(repr(label), 60)}; write 1 for a right pair, 0 for a wrong one"
        )
    return LABELS[label.strip()]


def _turns(context: str) -> list[str]:
    return [turn for part in context.split(END_OF_TURN) if (turn := _utterances(part))]


def _utterances(turn: str) -> str:
    """Joins the utterances of one turn."""
    parts = turn.replace(END_OF_TURN, END_OF_UTTERANCE).split(END_OF_UTTERANCE)
    return " ".join(text for part in parts if (text := part.strip()))
