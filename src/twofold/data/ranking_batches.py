"""The candidates of a ranking batch: whose they are, and which of them may be wrong for whom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twofold.data.batches import Moment
from twofold.data.cache import Cache
from twofold.data.tokenizer import Ids
from twofold.errors import TwofoldError


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
    right: NDArray[np.int64]
    """For each of this process's contexts the number of its response."""
    negatives: list[NDArray[np.int64]]
    """For each of this process's contexts the numbers of the negatives that were given with it."""
    allowed: NDArray[np.bool_]
    """(contexts, candidates): false where a candidate may be as right as the response without being it."""
    drawn: NDArray[np.int64] | None
    """(contexts, negatives): the wrong candidates to read each context with, where the two are read as one."""
    scores: list[NDArray[np.float32]]
    """A teacher's scores of each context's response and given negatives; empty where there is no teacher."""


def ranking_rows(
    cache: Cache, rows: NDArray[np.int64], moment: Moment, seed: int, negatives: int | None
) -> RankingRows:
    """The share of one process in a batch; each context is read with so many `negatives` where they are read as one."""
    if len(rows) < moment.world:
        raise TwofoldError(f"a batch of {len(rows)} rows cannot be shared by {moment.world} processes")
    pool = _Pool.of(cache, rows, [_taken(cache, row, seed, moment.epoch) for row in rows.tolist()])
    # The order of the batch is the same for any number of processes; what is gathered has their shares in turn.
    shares = [np.arange(len(rows))[rank :: moment.world] for rank in range(moment.world)]
    gathered = [np.concatenate([share, *(pool.given[row] for row in share)]) for share in shares]
    order = np.concatenate(gathered)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    own = shares[moment.rank]
    drawn = _draw(rows, pool, own, [seed, moment.epoch], negatives) if negatives else None
    return RankingRows(
        contexts=[cache.columns["context"].row(rows[row]) for row in own],
        candidates=[pool.texts[number] for number in order],
        sizes=[len(share) for share in gathered],
        rank=moment.rank,
        right=place[own],
        negatives=[place[pool.given[row]] for row in own],
        allowed=pool.allowed[own][:, order],
        drawn=None if drawn is None else place[drawn],
        scores=[pool.scores[row] for row in own],
    )


def _taken(cache: Cache, row: int, seed: int, epoch: int) -> int:
    """The number of the right text that a row learns from in an epoch: each in turn, in an order of its own."""
    count = 1 + len(cache.columns["other_keys"].row(row))
    if count == 1:
        return 0
    return int(np.random.default_rng([seed, row]).permutation(count)[epoch % count])


def _draw(
    rows: NDArray[np.int64], pool: _Pool, own: NDArray[np.int64], seeds: list[int], most: int
) -> NDArray[np.int64]:
    """For each context its given negatives, then others of the batch at random, as many as there are for all."""
    usable = pool.allowed.copy()
    usable[np.arange(len(rows)), np.arange(len(rows))] = False
    fewest = min(int(usable.sum(1).min()), most)
    if not fewest:
        raise TwofoldError("a batch has no wrong candidate for one of its contexts; raise train.batch_rows")
    chosen = []
    for row in own:
        draw = np.random.default_rng([*seeds, int(rows[row])])
        given = pool.given[row][usable[row, pool.given[row]]]
        usable[row, given] = False
        others = draw.permutation(np.flatnonzero(usable[row]))
        chosen.append(np.concatenate([given, others])[:fewest])
    return np.stack(chosen)


@dataclass(frozen=True)
class _Pool:
    """All candidates of a batch: the responses of its rows, then the negatives given with them, row by row."""

    texts: list[Ids]
    given: list[NDArray[np.int64]]
    """For each row the numbers of its given negatives."""
    allowed: NDArray[np.bool_]
    """(rows, candidates): false where a candidate may be as right as the row's response without being it."""
    scores: list[NDArray[np.float32]]
    """A teacher's scores of each row's response and given negatives."""

    @classmethod
    def of(cls, cache: Cache, rows: NDArray[np.int64], taken: Sequence[int]) -> _Pool:
        """taken: for each row which of its right texts is its response now"""
        column, count = cache.columns, len(rows)
        found = [column["keys"].row(row) for row in rows]
        right = [
            np.concatenate([keys[1:2], column["other_keys"].row(row)]) for keys, row in zip(found, rows, strict=True)
        ]
        texts: list[Ids] = [_right_text(cache, row, number) for row, number in zip(rows, taken, strict=True)]
        given = []
        for row in rows:
            negatives = list(_split(column["negatives"].row(row)))
            given.append(np.arange(len(texts), len(texts) + len(negatives)))
            texts += negatives
        contexts = np.array([one[0] for one in found], np.uint64)
        responses = np.array([keys[number] for keys, number in zip(right, taken, strict=True)], np.uint64)
        keys = np.concatenate([responses, *(one[2:] for one in found)])
        same = responses[:, None] == keys
        same[:, :count] |= contexts[:, None] == contexts  # the response to the same context is as right
        for number in (number for number, own in enumerate(right) if len(own) > 1):
            # All that is right for a context is right for it wherever it stands, and for every row of this context.
            same[contexts == contexts[number]] |= np.isin(keys, right[number])
        same[np.arange(count), np.arange(count)] = False
        whole = [column["scores"].row(row) for row in rows]
        scores = [
            np.concatenate([given_scores[number : number + 1], given_scores[len(right_keys) :]])
            for given_scores, number, right_keys in zip(whole, taken, right, strict=True)
        ]
        return cls(texts, given, ~same, scores)


def _right_text(cache: Cache, row: int, number: int) -> Ids:
    """The ids of one of a row's right texts."""
    if number == 0:
        return cache.columns["response"].row(row)
    return list(_split(cache.columns["others"].row(row)))[number - 1]


def _split(flat: NDArray[Any]) -> Iterator[NDArray[Any]]:
    start = 0
    while start < len(flat):
        stop = start + 1 + int(flat[start])
        yield flat[start + 1 : stop]
        start = stop
