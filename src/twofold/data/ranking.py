"""Ranking rows in one normalized form: contexts, right responses, wrong candidates and labels; and evaluation rows."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain
from numbers import Integral, Real
from typing import Any, Protocol

import numpy as np

from twofold.data.corpora import read_corpus
from twofold.data.files import Row, Sources, read_rows
from twofold.data.label_columns import kind_of_row, unread_columns
from twofold.errors import TwofoldError

AUTO = "auto"
"""Default form, which follows from the file's suffix."""


class Side(Protocol):
    """Reader of one side of a ranker: turns columns of rows into contexts or candidates of a type."""

    def context(self, row: Row, column: str, preface: str | None) -> Any:
        """Returns the context in a column; a text becomes the list of its turns after those of the preface."""

    def right(self, row: Row, column: str) -> list[Any]:
        """Returns the right candidates in a column: one or a list."""

    def listed(self, row: Row, column: str) -> list[Any]:
        """Returns a list of candidates, any of which may be empty."""

    def key(self, value: Any) -> int:
        """Hash that is equal for contexts or candidates that read the same."""


@dataclass(frozen=True)
class TextSide:
    """Texts or dialogue turns."""

    def context(self, row: Row, column: str, preface: str | None) -> list[str]:
        before = [preface] if preface is not None and row.values.get(preface) else []
        return [turn for column in (*before, column) for turn in _text_or_texts(row, column)]

    def right(self, row: Row, column: str) -> list[str]:
        texts = _text_or_texts(row, column)
        if not all(text.strip() for text in texts):
            raise TwofoldError(f"{row.place}: '{column}' holds an empty text; remove it from the list")
        return texts

    def listed(self, row: Row, column: str) -> list[str]:
        return _texts(row, column)

    def key(self, value: str | list[str]) -> int:
        return text_key(value if isinstance(value, str) else " \n".join(value))


TEXTS = TextSide()


@dataclass(frozen=True)
class RankingReader:
    """Reads pairs, pairs with given negatives, and rows with candidates into one form.

    The form has `context` (for a text the list of its turns), `other_contexts` (further contexts of the same response),
    `response` (the right candidate), `others` (further right ones), `negatives` (wrong ones), `scores` (a teacher's
    scores for all of these, in this order) and `unread` (columns that look like labels).
    """

    context: str = "context"
    response: str = "response"
    preface: str | None = None
    """Column with texts put before the turns, such as a persona."""
    form: str = AUTO
    """`auto`, or the name of a corpus in `data/corpora`."""
    contexts: tuple[str, ...] = ()
    """Columns of the contexts where there are several, such as the captions of one image."""
    responses: tuple[str, ...] = ()
    """Columns of the right candidates where there are several."""
    context_side: Side = TEXTS
    candidate_side: Side = TEXTS

    def read(self, where: Sources) -> Iterator[Row]:
        """Reads all rows of a file in the normalized form."""
        return map(self.row, self.read_as_given(where))

    def read_as_given(self, where: Sources) -> Iterator[Row]:
        """Reads all rows of a file without normalizing them."""
        if self.form == AUTO:
            return read_rows(where)
        if isinstance(where, Mapping):
            raise TwofoldError(f"data.form={self.form}: name files, not columns")
        paths = [where] if isinstance(where, str) else where
        return chain.from_iterable(read_corpus(self.form, path) for path in paths)

    def row(self, row: Row) -> Row:
        """Converts a row to the normalized form."""
        context, *others = self.asked(row)
        values: dict[str, Any] = {"context": context, **({"other_contexts": others} if others else {})}
        candidates, gains = self.candidates(row)
        order = sorted(range(len(candidates)), key=lambda number: not gains[number])  # right candidates first
        right = [candidates[number] for number in order if gains[number]]
        values |= {"response": right[0], "negatives": [candidates[number] for number in order[len(right) :]]}
        if len(right) > 1:
            values["others"] = right[1:]
        if row.values.get("scores") is not None:
            scores = _teacher_scores(row, len(candidates))
            values["scores"] = [scores[number] for number in order]
        if unread := self.unread(row):
            values["unread"] = unread
        return Row(row.place, values)

    def unread(self, row: Row) -> list[str]:
        """Columns of a row that look like labels and are not read."""
        return unread_columns(row, kind_of_row(row), self.columns)

    @property
    def columns(self) -> tuple[str | None, ...]:
        """Columns of contexts and of right candidates."""
        return (*(self.contexts or (self.context,)), *(self.responses or (self.response,)), self.preface)

    def right(self, row: Row) -> list[Any]:
        """Right candidates of a row."""
        return [value for value, gain in zip(*self.candidates(row), strict=True) if gain]

    def asked(self, row: Row) -> list[Any]:
        """Contexts of a row."""
        return [self.context_side.context(row, name, self.preface) for name in self.contexts or (self.context,)]

    def candidates(self, row: Row) -> tuple[list[Any], list[float]]:
        """Candidates of a row and their gains (graded relevance): 0 is wrong, above 0 is right."""
        side = self.candidate_side
        if row.values.get("candidates") is not None:
            return candidates_of(row, side)
        right = [value for column in self.responses or (self.response,) for value in side.right(row, column)]
        wrong = side.listed(row, "negatives")
        return [*right, *wrong], [1.0] * len(right) + [0.0] * len(wrong)


@dataclass(frozen=True)
class Question:
    """Evaluation row of a ranker: one context, its candidates and their relevance."""

    context: Any
    candidates: list[Any]
    gains: list[float]
    """Gain (graded relevance) of each candidate: 0 is wrong, above 0 is right."""
    place: str

    @property
    def right(self) -> list[int]:
        """Positions of the right candidates."""
        return [number for number, gain in enumerate(self.gains) if gain > 0]


def questions(reader: RankingReader, rows: Sequence[Row], candidates: int = 10, seed: int = 1) -> list[Question]:
    """Builds evaluation rows: candidates as given, or for pairs the responses of other pairs with a different text."""
    pairs = [reader.row(row).values if row.values.get("candidates") is None else None for row in rows]
    responses = [list(dict.fromkeys([pair["response"], *pair.get("others", ())])) if pair else [] for pair in pairs]
    pool = list(dict.fromkeys(chain.from_iterable(responses)))
    asked = []
    for number, (row, pair, right) in enumerate(zip(rows, pairs, responses, strict=True)):
        if pair is None:
            values, gains = reader.candidates(row)
            asked += [Question(context, values, gains, row.place) for context in reader.asked(row)]
            continue
        drawn = np.random.default_rng([seed, number]).permutation(len(pool))[: candidates - 1 + len(right)]
        wrong = [pool[place] for place in drawn if pool[place] not in right][: candidates - 1]
        if len(wrong) < candidates - 1:
            usable = len(pool) - len(right) + 1
            fewer = f", or take fewer candidates: train.candidates={usable}, evaluate --among {usable}"
            raise TwofoldError(
                f"{row.place}: {candidates} candidates need as many different responses, not {usable}; "
                f"evaluate on more rows (data.held_out=N, data.dev=FILE){fewer if usable > 1 else ''}"
            )
        gains = [1.0] * len(right) + [0.0] * len(wrong)
        contexts = [pair["context"], *pair.get("other_contexts", ())]
        asked += [Question(context, [*right, *wrong], gains, row.place) for context in contexts]
    return asked


def candidates_of(row: Row, side: Side = TEXTS) -> tuple[list[Any], list[float]]:
    """Returns the candidates of a row and their gains from `label` or `labels`: above 0 is right."""
    candidates = side.listed(row, "candidates")
    if not candidates:
        raise TwofoldError(f"{row.place}: 'candidates' is empty; give at least one")
    label, labels, count = row.values.get("label"), row.values.get("labels"), len(candidates)
    if labels is None:
        return candidates, _gains_of_label(row, label, count)
    gains = _gains_of_labels(row, labels, count)
    if not any(gains):
        raise TwofoldError(f"{row.place}: 'labels' marks no candidate as right; mark one or remove the row")
    if label is not None and _gains_of_label(row, label, count) != [float(gain > 0) for gain in gains]:
        raise TwofoldError(f"{row.place}: 'label' and 'labels' do not mark the same candidates; keep one of the two")
    return candidates, gains


def text_key(text: str) -> int:
    """Hash that ignores case, blanks and Unicode form."""
    plain = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    return int.from_bytes(blake2b(plain.encode(), digest_size=8).digest(), "little")


def is_gain(value: Any) -> bool:
    """Returns True if a value is a number of at least 0."""
    return isinstance(value, Real | np.bool_) and 0 <= float(value) < math.inf


def _text_or_texts(row: Row, column: str) -> list[str]:
    """Returns the text of a column as a list, or its list of texts."""
    text = row.text(column)
    return [text] if isinstance(text, str) else text


def _texts(row: Row, column: str) -> list[str]:
    """Returns a list of texts, any of which may be empty."""
    texts = row.values.get(column)
    if texts is None:
        return []
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise TwofoldError(f"{row.place}: '{column}' is not a list of texts")
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        raise TwofoldError(f"{row.place}: '{column}' holds half a character (a lone surrogate)") from None
    return texts


def _teacher_scores(row: Row, count: int) -> list[float]:
    scores = row.values["scores"]
    right = isinstance(scores, list) and len(scores) == count
    if not right or not all(type(score) in (int, float) and math.isfinite(score) for score in scores):
        raise TwofoldError(f"{row.place}: 'scores' must be {count} numbers, one for each of its candidates")
    return [float(score) for score in scores]


def _gains_of_label(row: Row, label: Any, count: int) -> list[float]:
    """Converts `label`, the position of a right candidate or a list of positions, to gains of 1 and 0."""
    if not _is_list(label):
        if not _is_number(label, count):
            raise TwofoldError(f"{row.place}: 'label' must be from 0 to {count - 1}, not {label!r:.60}")
        label = [label]
    elif len(label) == count > 1:
        told = "as many numbers as candidates; name the column 'labels' if each tells whether its candidate is right"
        raise TwofoldError(f"{row.place}: 'label' has {told}")
    return _marked(row, "label", label, count)


def _gains_of_labels(row: Row, labels: Any, count: int) -> list[float]:
    """Converts `labels`, one gain for each candidate or positions of the right ones, to gains."""
    if not _is_list(labels):
        raise TwofoldError(f"{row.place}: 'labels' must be a list, of {count} numbers or of the right candidates'")
    if len(labels) != count:
        return _marked(row, "labels", labels, count)
    if not all(map(is_gain, labels)):
        raise TwofoldError(f"{row.place}: 'labels' must be {count} numbers from 0 up, one for each candidate")
    return [float(gain) for gain in labels]


def _marked(row: Row, column: str, numbers: Any, count: int) -> list[float]:
    """Returns 1 for candidates whose position is given, else 0."""
    if not len(numbers) or not all(_is_number(number, count) for number in numbers) or len({*numbers}) < len(numbers):
        wanted = f"the numbers of the right candidates, each once, from 0 to {count - 1}"
        if column == "labels":
            wanted = f"{count} numbers, one for each candidate, or {wanted}"
        raise TwofoldError(f"{row.place}: '{column}' must be {wanted}")
    right = {int(number) for number in numbers}
    return [float(number in right) for number in range(count)]


def _is_list(value: Any) -> bool:
    return isinstance(value, list | tuple) or (isinstance(value, np.ndarray) and value.ndim == 1)


def _is_number(value: Any, count: int) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and 0 <= int(value) < count
