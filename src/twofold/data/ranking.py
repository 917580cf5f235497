"""Ranking rows in one form: contexts, right responses and wrong ones, as labels mark them; and rows to judge by."""

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
"""The form of files whose ending tells how they are read."""


class Side(Protocol):
    """How contexts or candidates of a type stand in rows."""

    def context(self, row: Row, column: str, preface: str | None) -> Any:
        """The context in a column; of a text the list of its turns, those of the preface first."""

    def right(self, row: Row, column: str) -> list[Any]:
        """The right candidate in a column, or several in a list."""

    def listed(self, row: Row, column: str) -> list[Any]:
        """The candidates in a list, any of which may be empty."""

    def key(self, value: Any) -> int:
        """The same number for contexts or candidates that are the same to whoever reads them."""


@dataclass(frozen=True)
class TextSide:
    """Texts, or the turns of dialogues."""

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
    """Reads pairs, pairs with given negatives, and rows of candidates, as rows of one form.

    `context` what is asked, of a text the list of its turns, `other_contexts` further ones of the same response if
    there are any, `response` the right candidate, `others` further right ones if there are any, `negatives` the wrong
    ones, `scores` a teacher's for them all in this order, `unread` columns that look like labels.
    """

    context: str = "context"
    response: str = "response"
    preface: str | None = None
    """A column whose texts stand before the turns, such as a persona."""
    form: str = AUTO
    """auto, or the name of a corpus in `data/corpora`."""
    contexts: tuple[str, ...] = ()
    """The columns of contexts where there are several, such as the captions of one image."""
    responses: tuple[str, ...] = ()
    """The columns of right candidates where there are several."""
    context_side: Side = TEXTS
    candidate_side: Side = TEXTS

    def read(self, where: Sources) -> Iterator[Row]:
        """Every row of a file."""
        return map(self.row, self.read_as_given(where))

    def read_as_given(self, where: Sources) -> Iterator[Row]:
        """Every row of a file, candidates and their label as they stand."""
        if self.form == AUTO:
            return read_rows(where)
        if isinstance(where, Mapping):
            raise TwofoldError(f"data.form={self.form}: name files, not columns")
        paths = [where] if isinstance(where, str) else where
        return chain.from_iterable(read_corpus(self.form, path) for path in paths)

    def row(self, row: Row) -> Row:
        """The same row in the one form."""
        context, *others = self.asked(row)
        values: dict[str, Any] = {"context": context, **({"other_contexts": others} if others else {})}
        candidates, gains = self.candidates(row)
        order = sorted(range(len(candidates)), key=lambda number: not gains[number])  # the right ones first
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
        """The columns of a row that look like labels and are not read."""
        return unread_columns(row, kind_of_row(row), self.columns)

    @property
    def columns(self) -> tuple[str | None, ...]:
        """The columns of contexts and of right candidates."""
        return (*(self.contexts or (self.context,)), *(self.responses or (self.response,)), self.preface)

    def right(self, row: Row) -> list[Any]:
        """All right candidates of a row."""
        return [value for value, gain in zip(*self.candidates(row), strict=True) if gain]

    def asked(self, row: Row) -> list[Any]:
        """The contexts of a row."""
        return [self.context_side.context(row, name, self.preface) for name in self.contexts or (self.context,)]

    def candidates(self, row: Row) -> tuple[list[Any], list[float]]:
        """All candidates of a row, right and wrong, and how relevant each is: 0 is wrong, above 0 is right."""
        side = self.candidate_side
        if row.values.get("candidates") is not None:
            return candidates_of(row, side)
        right = [value for column in self.responses or (self.response,) for value in side.right(row, column)]
        wrong = side.listed(row, "negatives")
        return [*right, *wrong], [1.0] * len(right) + [0.0] * len(wrong)


@dataclass(frozen=True)
class Question:
    """A row to judge a ranker by: one context, its candidates, and which of them are right."""

    context: Any
    candidates: list[Any]
    gains: list[float]
    """Of each candidate how relevant it is: 0 is wrong, above 0 is right."""
    place: str

    @property
    def right(self) -> list[int]:
        """The numbers of the right candidates."""
        return [number for number, gain in enumerate(self.gains) if gain > 0]


def questions(reader: RankingReader, rows: Sequence[Row], candidates: int = 10, seed: int = 1) -> list[Question]:
    """Rows of candidates as they are; pairs among responses of other pairs that are not the same text."""
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
                f"judge by more rows (data.held_out=N, data.dev=FILE){fewer if usable > 1 else ''}"
            )
        gains = [1.0] * len(right) + [0.0] * len(wrong)
        contexts = [pair["context"], *pair.get("other_contexts", ())]
        asked += [Question(context, [*right, *wrong], gains, row.place) for context in contexts]
    return asked


def candidates_of(row: Row, side: Side = TEXTS) -> tuple[list[Any], list[float]]:
    """The candidates of a ranking row, and how relevant each is by `label` or `labels`: above 0 is right."""
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
    """The same number for texts that differ only in case, blanks or Unicode form."""
    plain = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    return int.from_bytes(blake2b(plain.encode(), digest_size=8).digest(), "little")


def is_gain(value: Any) -> bool:
    """Whether a value is a number from 0 up."""
    return isinstance(value, Real | np.bool_) and 0 <= float(value) < math.inf


def _text_or_texts(row: Row, column: str) -> list[str]:
    """The text of a column in a list, or the texts of its list."""
    text = row.text(column)
    return [text] if isinstance(text, str) else text


def _texts(row: Row, column: str) -> list[str]:
    """A list of texts, any of which may be empty."""
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
    """1 for the right candidates, 0 for the others: `label` is the number of one, or a list of them."""
    if not _is_list(label):
        if not _is_number(label, count):
            raise TwofoldError(f"{row.place}: 'label' must be from 0 to {count - 1}, not {label!r:.60}")
        label = [label]
    elif len(label) == count > 1:
        told = "as many numbers as candidates; name the column 'labels' if each tells whether its candidate is right"
        raise TwofoldError(f"{row.place}: 'label' has {told}")
    return _marked(row, "label", label, count)


def _gains_of_labels(row: Row, labels: Any, count: int) -> list[float]:
    """One gain for each candidate: `labels` are these, or the numbers of the right ones."""
    if not _is_list(labels):
        raise TwofoldError(f"{row.place}: 'labels' must be a list, of {count} numbers or of the right candidates'")
    if len(labels) != count:
        return _marked(row, "labels", labels, count)
    if not all(map(is_gain, labels)):
        raise TwofoldError(f"{row.place}: 'labels' must be {count} numbers from 0 up, one for each candidate")
    return [float(gain) for gain in labels]


def _marked(row: Row, column: str, numbers: Any, count: int) -> list[float]:
    """1 where a candidate's number is among those of the right ones, 0 elsewhere."""
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
