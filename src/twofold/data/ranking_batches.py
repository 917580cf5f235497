"""Ranking rows in a cache, column by column, and batches of them: whose candidates may be wrong for whom."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twofold.data.batches import Moment
from twofold.data.cache import Cache, Encoded, Field
from twofold.data.columns import TextColumn
from twofold.data.files import Row
from twofold.data.ranking import LABEL_LIKE, RankingReader, text_key
from twofold.data.tokenizer import Ids
from twofold.errors import TwofoldError

Numbers = NDArray[np.int64]
UNREAD = tuple(sorted({*LABEL_LIKE["pair"], *LABEL_LIKE["candidates"]}))
"""Names that look like labels, as they are numbered in a cache."""


def ranking_columns(contexts: TextColumn, candidates: TextColumn, reader: RankingReader) -> dict[str, Field]:
    """What a cache keeps of rows that `reader` reads."""
    return {
        "context": TextInRow(contexts, "context"),
        "response": TextInRow(candidates, "response"),
        "others": TextsInRow(candidates, "others"),
        "negatives": TextsInRow(candidates, "negatives"),
        # Hashes tell equal texts.
        "keys": NumbersInRow("uint64", ["keys", repr(reader)], _keys),
        "other_keys": NumbersInRow("uint64", ["other keys"], lambda row: list(map(text_key, row.get("others", ())))),
        "scores": NumbersInRow("float32", ["scores"], lambda row: row.get("scores", [])),
        "unread": NumbersInRow(
            "uint8", ["unread", *UNREAD], lambda row: [UNREAD.index(name.casefold()) for name in row.get("unread", ())]
        ),
    }


def _keys(row: Mapping[str, Any]) -> list[int]:
    """Of the context, of the response, and of each negative."""
    return [text_key(text) for text in (" \n".join(row["context"]), row["response"], *row["negatives"])]


@dataclass(frozen=True)
class NumbersInRow:
    """Numbers that follow from a row in the one form of ranking rows."""

    dtype: str
    depends_on: list[str]
    numbers: Callable[[Mapping[str, Any]], list[Any]]

    def settings(self) -> list[Any]:
        return self.depends_on

    def encode(self, rows: Sequence[Row]) -> Encoded:
        return Encoded([self.numbers(row.values) for row in rows])


@dataclass(frozen=True)
class TextInRow:
    """One side of a pair, in the one form of ranking rows."""

    side: TextColumn
    column: str

    @property
    def dtype(self) -> str:
        return self.side.dtype

    def settings(self) -> list[Any]:
        return [self.column, *self.side.settings()]

    def encode(self, rows: Sequence[Row]) -> Encoded:
        return self.side.encode_texts([row.text(self.column) for row in rows])


class TextsInRow(TextInRow):
    """The given negatives of a row, or its other right texts, one after the other, each with its length before it."""

    @property
    def dtype(self) -> str:
        return "uint32"

    def encode(self, rows: Sequence[Row]) -> Encoded:
        texts = [row.values.get(self.column, ()) for row in rows]
        whole = [text for row_texts in texts for text in row_texts]
        encoded = self.side.encode_texts(whole) if whole else Encoded([])
        ids = iter(encoded.ids)
        flat = [[n for text_ids in islice(ids, len(row)) for n in (len(text_ids), *text_ids)] for row in texts]
        return Encoded(flat, encoded.cut)


@dataclass(frozen=True)
class RankingRows:
    """This process's share of the rows of a training step, and what it must know of the others'.

    Candidates stand in the order in which the processes' shares are gathered: of each process its rows' responses,
    then their given negatives.
    """

    contexts: list[Ids]
    """The ids of this process's contexts."""
    candidates: list[Ids]
    """The ids of all processes' candidates."""
    sizes: list[int]
    """How many of the candidates are whose, process by process."""
    rank: int
    right: Numbers
    """For each of this process's contexts the number of its response."""
    negatives: list[Numbers]
    """For each of this process's contexts the numbers of the negatives that were given with it."""
    allowed: NDArray[np.bool_]
    """(contexts, candidates): false where a candidate may be as right as the response without being it."""
    drawn: Numbers | None
    """(contexts, negatives): the wrong candidates to read each context with, where the two are read as one."""
    scores: list[NDArray[np.float32]]
    """A teacher's scores of each context's response and given negatives; empty where there is no teacher."""


def ranking_rows(cache: Cache, rows: Numbers, moment: Moment, seed: int, negatives: int | None) -> RankingRows:
    """The share of one process in a batch; each context is read with so many `negatives` where they are read as one."""
    if len(rows) < moment.world:
        raise TwofoldError(f"a batch of {len(rows)} rows cannot be shared by {moment.world} processes")
    taken = [_taken(cache, row, seed, moment.epoch) for row in rows.tolist()]
    texts, given = _candidates(cache, rows, taken)
    allowed = _allowed(cache, rows, taken)
    # The order of the batch is the same for any number of processes; what is gathered has their shares in turn.
    shares = [np.arange(len(rows))[rank :: moment.world] for rank in range(moment.world)]
    gathered = [np.concatenate([share, *(given[row] for row in share)]) for share in shares]
    order = np.concatenate(gathered)
    place = np.argsort(order)  # where each candidate of the batch stands among those gathered
    share = shares[moment.rank]
    drawn = _draw(rows, share, given, allowed, [seed, moment.epoch], negatives) if negatives else None
    return RankingRows(
        contexts=[cache.columns["context"].row(rows[row]) for row in share],
        candidates=[texts[number] for number in order],
        sizes=[len(numbers) for numbers in gathered],
        rank=moment.rank,
        right=place[share],
        negatives=[place[given[row]] for row in share],
        allowed=allowed[share][:, order],
        drawn=None if drawn is None else place[drawn],
        scores=[_teacher_scores(cache, rows[row], taken[row]) for row in share],
    )


def _taken(cache: Cache, row: int, seed: int, epoch: int) -> int:
    """The number of the right text that a row learns from in an epoch: each in turn, in an order of its own."""
    count = 1 + len(cache.columns["other_keys"].row(row))
    if count == 1:
        return 0
    return int(np.random.default_rng([seed, row]).permutation(count)[epoch % count])


def _candidates(cache: Cache, rows: Numbers, taken: Sequence[int]) -> tuple[list[Ids], list[Numbers]]:
    """The responses of the rows, then the negatives given with them; and for each row the numbers of its negatives.

    taken: for each row which of its right texts is its response now
    """
    column, given = cache.columns, []
    texts: list[Ids] = []
    for row, number in zip(rows, taken, strict=True):
        texts.append([column["response"].row(row), *_split(column["others"].row(row))][number])
    for row in rows:
        negatives = _split(column["negatives"].row(row))
        given.append(np.arange(len(texts), len(texts) + len(negatives)))
        texts += negatives
    return texts, given


def _allowed(cache: Cache, rows: Numbers, taken: Sequence[int]) -> NDArray[np.bool_]:
    """(rows, candidates): false where a candidate may be as right as the row's response without being it."""
    row_keys = [cache.columns["keys"].row(row) for row in rows]  # of the context, the response and the negatives
    right = [_right_keys(cache, row) for row in rows]
    contexts = np.array([keys[0] for keys in row_keys], np.uint64)
    responses = np.array([keys[number] for keys, number in zip(right, taken, strict=True)], np.uint64)
    candidates = np.concatenate([responses, *(keys[2:] for keys in row_keys)])
    same: NDArray[np.bool_] = responses[:, None] == candidates
    same[:, : len(rows)] |= contexts[:, None] == contexts  # the response to the same context is as right
    for number, keys in enumerate(right):
        if len(keys) > 1:
            # All that is right for a context is right for it wherever it stands, and for every row of this context.
            same[contexts == contexts[number]] |= np.isin(candidates, keys)
    np.fill_diagonal(same[:, : len(rows)], False)
    return ~same


def _draw(
    rows: Numbers, share: Numbers, given: list[Numbers], allowed: NDArray[np.bool_], seeds: list[int], most: int
) -> Numbers:
    """For each context its given negatives, then others of the batch at random, as many as there are for all."""
    usable = allowed.copy()
    np.fill_diagonal(usable[:, : len(rows)], False)
    fewest = min(int(usable.sum(1).min()), most)
    if not fewest:
        raise TwofoldError("a batch has no wrong candidate for one of its contexts; raise train.batch_rows")
    chosen = []
    for row in share:
        negatives = given[row][usable[row, given[row]]]
        usable[row, negatives] = False
        others = np.random.default_rng([*seeds, int(rows[row])]).permutation(np.flatnonzero(usable[row]))
        chosen.append(np.concatenate([negatives, others])[:fewest])
    return np.stack(chosen)


def _teacher_scores(cache: Cache, row: int, taken: int) -> NDArray[np.float32]:
    """Of the right text that a row learns from now, and of its given negatives."""
    scores = cache.columns["scores"].row(row)
    return np.append(scores[taken : taken + 1], scores[len(_right_keys(cache, row)) :])


def _right_keys(cache: Cache, row: int) -> NDArray[np.uint64]:
    """What tells the right texts of a row."""
    return np.append(cache.columns["keys"].row(row)[1:2], cache.columns["other_keys"].row(row))


def _split(flat: NDArray[Any]) -> list[NDArray[Any]]:
    """Texts that stand one after the other, each with its length before it."""
    texts, start = [], 0
    while start < len(flat):
        stop = start + 1 + int(flat[start])
        texts.append(flat[start + 1 : stop])
        start = stop
    return texts
