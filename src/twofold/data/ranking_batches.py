"""Ranking rows of a cache as the batches of a training: whose candidates they are, and which may be wrong for whom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twofold.data.batches import Moment, Plan, plan_evenly
from twofold.data.cache import Cache
from twofold.data.tokenizer import Ids
from twofold.errors import TwofoldError


@dataclass(frozen=True)
class RankingBatch:
    """Rows of a training step: this process's share of them, and what it must know of the others'.

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

    def __len__(self) -> int:
        return len(self.contexts)

    @property
    def own(self) -> range:
        """The numbers of this process's candidates."""
        start = sum(self.sizes[: self.rank])
        return range(start, start + self.sizes[self.rank])

    @property
    def asked(self) -> NDArray[np.int64]:
        """(contexts, 1 + negatives): the candidates to read each context with as one text, the response first."""
        assert self.drawn is not None
        return np.concatenate([self.right[:, None], self.drawn], 1)

    @property
    def tokens(self) -> int:
        """How many tokens this process reads."""
        own = self.own
        return sum(map(len, self.contexts)) + sum(len(self.candidates[number]) for number in own)

    def to(self, device: Any) -> RankingBatch:
        """Itself: tensors are made piece by piece, where they are needed."""
        return self


@dataclass(frozen=True)
class RankingRows:
    """Which rows of a cache to learn from, in batches of a fixed number of rows drawn at random.

    Batches of like length would make the wrong candidates look alike in length, so rows are not sorted here.
    """

    cache: Cache
    rows: NDArray[np.int64]
    batch_rows: int
    seed: int
    drawn: int | None = None
    """How many wrong candidates each context is read with, where the two are read as one."""

    def plan(self, epoch: int) -> Plan:
        """The batches of an epoch, the same whenever asked."""
        return plan_evenly(self.rows, self.batch_rows, self.seed, epoch)

    def batch(self, rows: NDArray[np.int64], moment: Moment) -> RankingBatch:
        """The share of one process in a batch."""
        if len(rows) < moment.world:
            raise TwofoldError(f"a batch of {len(rows)} rows cannot be shared by {moment.world} processes")
        pool = _Pool.of(self.cache, rows, [self._taken(row, moment.epoch) for row in rows.tolist()])
        # The order of the batch is the same for any number of processes; what is gathered has their shares in turn.
        shares = [np.arange(len(rows))[rank :: moment.world] for rank in range(moment.world)]
        gathered = [np.concatenate([share, *(pool.given[row] for row in share)]) for share in shares]
        order = np.concatenate(gathered)
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        own = shares[moment.rank]
        drawn = self._draw(rows, pool, own, moment.epoch) if self.drawn else None
        column = self.cache.columns
        return RankingBatch(
            contexts=[column["context"].row(rows[row]) for row in own],
            candidates=[pool.texts[number] for number in order],
            sizes=[len(share) for share in gathered],
            rank=moment.rank,
            right=place[own],
            negatives=[place[pool.given[row]] for row in own],
            allowed=pool.allowed[own][:, order],
            drawn=None if drawn is None else place[drawn],
            scores=[pool.scores[row] for row in own],
        )

    def _taken(self, row: int, epoch: int) -> int:
        """The number of the right text that a row learns from in an epoch: each in turn, in an order of its own."""
        count = 1 + len(self.cache.columns["other_keys"].row(row))
        if count == 1:
            return 0
        return int(np.random.default_rng([self.seed, row]).permutation(count)[epoch % count])

    def _draw(self, rows: NDArray[np.int64], pool: _Pool, own: NDArray[np.int64], epoch: int) -> NDArray[np.int64]:
        """For each context its given negatives, then others of the batch at random, as many as there are for all."""
        usable = pool.allowed.copy()
        usable[np.arange(len(rows)), np.arange(len(rows))] = False
        fewest = min(int(usable.sum(1).min()), self.drawn or 0)
        if not fewest:
            raise TwofoldError("a batch has no wrong candidate for one of its contexts; raise train.batch_rows")
        chosen = []
        for row in own:
            draw = np.random.default_rng([self.seed, epoch, int(rows[row])])
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
