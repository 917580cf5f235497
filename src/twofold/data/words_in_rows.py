"""Words and names in rows, and their numbers: what inputs and outputs of words share."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from reprlib import repr as shown
from textwrap import shorten

import numpy as np
import torch

from twofold.data.files import Row
from twofold.data.tokenizer import Ids
from twofold.errors import TwofoldError, did_you_mean
from twofold.types import Classes

UNSEEN = -1
"""In the place of a name that was not seen in training, and of a head that a long sentence lost with its end."""
MOST_NAMES = 20_000
"""Different names that a column may have."""


def words_in(row: Row, column: str) -> list[str]:
    """A list of texts, or a text cut at its blanks; an empty one among them is an error."""
    given = row.values.get(column)
    words = given.split() if isinstance(given, str) else list(given) if isinstance(given, tuple) else given
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        if column in row.values:
            wrong = " ".join(shown(given).split())  # an array is shown in several lines
            raise TwofoldError(f"{row.place}: '{column}' is {wrong}; give a text, or a list of words")
        raise TwofoldError(f"{row.place}: no '{column}' here; this row has {', '.join(map(str, row.values))}")
    if not words:
        raise TwofoldError(f"{row.place}: '{column}' is empty; fill it or remove the sentence")
    if not all(words):
        raise TwofoldError(f"{row.place}: word {words.index('') + 1} of '{column}' is empty; fill it or remove it")
    Row(row.place, {column: words}).text(column)  # whole characters only
    return words


def given_words(given: object) -> tuple[str, ...]:
    """The words of a sentence as a user gave it."""
    return tuple(given.split() if isinstance(given, str) else given)  # type: ignore[arg-type]


def names_found(
    rows: Iterable[Row], names: Callable[[Row], Iterable[str]], column: str, least: int = 2
) -> tuple[str, ...]:
    """All names that a column holds, in order; fewer than `least` are said to teach nothing, none are an error."""
    found: set[str] = set()
    for row in rows:
        found.update(names(row))
        if len(found) > MOST_NAMES:
            raise TwofoldError(f"'{column}' has over {MOST_NAMES:,} different values; is it the column of labels?")
    if not found:
        raise TwofoldError(f"'{column}' holds no label")
    if len(found) < least:
        warnings.warn(f"'{column}' holds {next(iter(found))!r} and nothing else: nothing to learn", stacklevel=5)
    return tuple(sorted(found))


def numbers_of(names: Sequence[str], classes: Classes) -> list[int]:
    """The numbers of some classes; a name that was not seen in training has none."""
    return [classes.numbers.get(name, UNSEEN) for name in names]


def say_unseen(rows: Sequence[Row], names: Callable[[Row], Sequence[str]], classes: Classes) -> None:
    """One line, however many names were not seen in training."""
    unseen = [(row, name) for row in rows for name in names(row) if name not in classes.numbers]
    if unseen:
        row, name = unseen[0]
        more = f", nor {len(unseen) - 1:,} others after it" if len(unseen) > 1 else ""
        known = shorten(did_you_mean(name, classes.names), 200, placeholder=" ...")
        warnings.warn(
            f"{row.place}: '{name}' was not seen in training{more}, and can only be answered wrongly; {known}",
            stacklevel=5,
        )


def padded(rows: Sequence[Ids], empty: int) -> torch.Tensor:
    """(rows, longest)"""
    result = np.full((len(rows), max(len(row) for row in rows)), empty, np.int64)
    for line, row in zip(result, rows, strict=True):
        line[: len(row)] = row
    return torch.from_numpy(result)
