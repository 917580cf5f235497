"""Rows to judge a ranker by: a context, its candidates, and which of them are right."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from twofold.data.files import Row
from twofold.data.ranking import RankingReader, candidates_of
from twofold.errors import TwofoldError


@dataclass(frozen=True)
class Question:
    """One context, its candidates, and which of them are right."""

    context: list[str]
    candidates: list[str]
    gains: list[float]
    """Of each candidate how relevant it is: 0 is wrong, above 0 is right."""
    place: str

    @property
    def right(self) -> list[int]:
        """The numbers of the right candidates."""
        return [number for number, gain in enumerate(self.gains) if gain > 0]


def questions(reader: RankingReader, rows: Sequence[Row], candidates: int = 10, seed: int = 1) -> list[Question]:
    """Rows of candidates as they are; pairs among responses of other pairs that are not the same text."""
    whole = [reader.row(row) if row.values.get("candidates") is None else None for row in rows]
    pool = list(dict.fromkeys(text for row in whole if row is not None for text in _responses(row)))
    found = []
    for number, (row, pair) in enumerate(zip(rows, whole, strict=True)):
        if pair is None:
            texts, gains = candidates_of(row)
            found.append(Question(reader.turns(row), texts, gains, row.place))
            continue
        right = list(dict.fromkeys(_responses(pair)))
        drawn = np.random.default_rng([seed, number]).permutation(len(pool))[: candidates - 1 + len(right)]
        wrong = [pool[one] for one in drawn if pool[one] not in right][: candidates - 1]
        if len(wrong) < candidates - 1:
            usable = len(pool) - len(right) + 1
            fewer = f", or take fewer candidates: train.candidates={usable}, evaluate --among {usable}"
            raise TwofoldError(
                f"{row.place}: {candidates} candidates need as many different responses, not {usable}; "
                f"judge by more rows (data.held_out=N, data.dev=FILE){fewer if usable > 1 else ''}"
            )
        gains = [1.0] * len(right) + [0.0] * len(wrong)
        found.append(Question(pair.values["context"], [*right, *wrong], gains, row.place))
    return found


def _responses(pair: Row) -> list[str]:
    """All right responses of a pair."""
    return [str(text) for text in (pair.values["response"], *pair.values.get("others", ()))]
