"""Batches of ranking rows: in-batch negatives and the mask of false negatives, across processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twofold.data.batches import Moment
from twofold.data.cache import Cache
from twofold.data.ranking_columns import Items
from twofold.errors import TwofoldError

Numbers = NDArray[np.int64]


@dataclass(frozen=True)
class RankingRows:
    """Share of a training batch that belongs to one process, and the facts it needs about the other shares.

    Candidates are in the order in which the processes' shares are gathered: the responses of each process's rows, then
    their given negatives. Contexts are in the order of their shares.
    """

    contexts: list[Any]
    """Contexts of this process."""
    candidates: list[Any]
    """Candidates of all processes."""
    context_seeds: list[list[int]]
    """Random seeds for reading each context of this process (noise, augmentation)."""
    candidate_seeds: list[list[int]]
    """Random seeds for reading each candidate."""
    sizes: list[int]
    """Number of candidates of each process."""
    context_sizes: list[int]
    """Number of contexts of each process."""
    rank: int
    right: Numbers
    """Position of the right candidate of each context of this process."""
    negatives: list[Numbers]
    """Positions of the given negatives of each context of this process."""
    allowed: NDArray[np.bool_]
    """Mask (contexts, candidates); false for possible false negatives, which may be as right as the response."""
    allowed_contexts: NDArray[np.bool_]
    """Mask (responses, contexts of all processes); false where the response may be right for another context too."""
    drawn: Numbers | None
    """Negatives (contexts, negatives) to read together with each context, for cross-encoders."""
    scores: list[NDArray[np.float32]]
    """Teacher's scores of each context's response and given negatives; empty without a teacher."""


def ranking_rows(
    cache: Cache, items: Items, rows: Numbers, moment: Moment, seed: int, negatives: int | None
) -> RankingRows:
    """Builds one process's share of a batch; a cross-encoder reads `negatives` wrong candidates with each context."""
    if len(rows) < moment.world:
        raise TwofoldError(f"a batch of {len(rows)} rows cannot be shared by {moment.world} processes")
    taken = [_taken(len(_right_keys(cache, row)), [seed, row], moment.epoch) for row in rows.tolist()]
    asked = [_taken(len(_context_keys(cache, row)), [seed, row, 1], moment.epoch) for row in rows.tolist()]
    texts, given = _candidates(items, rows, taken)
    allowed = _allowed(cache, rows, taken, asked)
    # The order of the batch is the same for any number of processes; gathering orders by process.
    shares = [np.arange(len(rows))[rank :: moment.world] for rank in range(moment.world)]
    gathered = [np.concatenate([share, *(given[row] for row in share)]) for share in shares]
    order = np.concatenate(gathered)
    place = np.argsort(order)  # position of each candidate of the batch among the gathered ones
    share = shares[moment.rank]
    drawn = _draw(rows, share, given, allowed, [seed, moment.epoch], negatives) if negatives else None
    seeds = [[seed, moment.epoch, row] for row in rows.tolist()]
    owners = [*range(len(rows)), *(row for row, numbers in enumerate(given) for _ in numbers)]
    return RankingRows(
        contexts=[_contexts(items, rows[row])[asked[row]] for row in share],
        candidates=[texts[number] for number in order],
        context_seeds=[[*seeds[row], 0] for row in share],
        candidate_seeds=[[*seeds[owners[number]], 1, int(number)] for number in order],
        sizes=[len(numbers) for numbers in gathered],
        context_sizes=[len(numbers) for numbers in shares],
        rank=moment.rank,
        right=place[share],
        negatives=[place[given[row]] for row in share],
        allowed=allowed[share][:, order],
        allowed_contexts=allowed[:, share].T[:, np.concatenate(shares)],
        drawn=None if drawn is None else place[drawn],
        scores=[_teacher_scores(cache, rows[row], taken[row]) for row in share],
    )


def _taken(count: int, seeds: list[int], epoch: int) -> int:
    """Chooses which of `count` values a row uses in an epoch: each in turn, in a random order."""
    return int(np.random.default_rng(seeds).permutation(count)[epoch % count]) if count > 1 else 0


def _contexts(items: Items, row: int) -> list[Any]:
    return [*items("context", row), *items("other_contexts", row)]


def _candidates(items: Items, rows: Numbers, taken: Sequence[int]) -> tuple[list[Any], list[Numbers]]:
    """Returns the responses of the rows, then their given negatives, and the positions of each row's negatives.

    taken: index of the right candidate that serves as each row's response in this epoch
    """
    given: list[Numbers] = []
    candidates: list[Any] = []
    for row, number in zip(rows, taken, strict=True):
        candidates.append([*items("response", row), *items("others", row)][number])
    for row in rows:
        negatives = items("negatives", row)
        given.append(np.arange(len(candidates), len(candidates) + len(negatives)))
        candidates += negatives
    return candidates, given


def _allowed(cache: Cache, rows: Numbers, taken: Sequence[int], asked: Sequence[int]) -> NDArray[np.bool_]:
    """Mask (rows, candidates); false where a candidate may be as right as the row's response without being it."""
    row_keys = [cache.columns["keys"].row(row) for row in rows]  # keys of the context, the response and the negatives
    right = [_right_keys(cache, row) for row in rows]
    context_keys = [_context_keys(cache, row) for row in rows]
    contexts = np.array([keys[number] for keys, number in zip(context_keys, asked, strict=True)], np.uint64)
    responses = np.array([keys[number] for keys, number in zip(right, taken, strict=True)], np.uint64)
    candidates = np.concatenate([responses, *(keys[2:] for keys in row_keys)])
    same: NDArray[np.bool_] = responses[:, None] == candidates
    same[:, : len(rows)] |= contexts[:, None] == contexts  # the response to the same context is as right
    for number, keys in enumerate(right):
        if len(keys) > 1:
            # A right candidate is right wherever it occurs, and for every row with this context.
            same[contexts == contexts[number]] |= np.isin(candidates, keys)
    np.fill_diagonal(same[:, : len(rows)], False)
    return ~same


def _draw(
    rows: Numbers, share: Numbers, given: list[Numbers], allowed: NDArray[np.bool_], seeds: list[int], most: int
) -> Numbers:
    """Draws each context's negatives: its given ones first, then random others of the batch, equally many for all."""
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
    """Returns the teacher's scores of the row's current response and its given negatives."""
    scores = cache.columns["scores"].row(row)
    return np.append(scores[taken : taken + 1], scores[len(_right_keys(cache, row)) :])


def _right_keys(cache: Cache, row: int) -> NDArray[np.uint64]:
    """Keys of a row's right candidates."""
    return np.append(cache.columns["keys"].row(row)[1:2], cache.columns["other_keys"].row(row))


def _context_keys(cache: Cache, row: int) -> NDArray[np.uint64]:
    """Keys of a row's contexts."""
    return np.append(cache.columns["keys"].row(row)[:1], cache.columns["other_context_keys"].row(row))
