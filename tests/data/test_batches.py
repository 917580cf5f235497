"""Every row comes once an epoch, in batches of like length that follow from the lengths, the seed and the epoch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations, pairwise

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from twofold.data import batches
from twofold.data.batches import Moment, Plan, hold_out, least_padded, pad_ids, plan_at_random, plan_by_length
from twofold.data.batches import by_length as greedy
from twofold.data.cache import Cache, Column
from twofold.data.tokenizer import TextTokenizer
from twofold.inputs import INPUT, BatchSizes
from twofold.inputs.text import Config as TextInputConfig
from twofold.inputs.text import Tokens, make_tokens
from twofold.model.batches import TrainingRows
from twofold.outputs.text import Config as TextOutputConfig
from twofold.types import Batch, HiddenSpec, Target, Vocabulary

VOCABULARY = Vocabulary(size=20, limit=30, pad=0, unknown=1, start=2, end=3)
TOKENS = 600
Lengths = list[NDArray[np.int64]]


def skewed(rows: int = 3000) -> Lengths:
    """Lengths as of sentences and their translations: many short ones, few long ones."""
    draw = np.random.default_rng(7)
    source = np.clip(draw.lognormal(2.3, 0.7, rows), 1, 150).astype(np.int64)
    return [source, np.maximum(1, source + draw.integers(-2, 3, rows))]


def by_length(lengths: Lengths, seed: int = 1, epoch: int = 0) -> Plan:
    return plan_by_length(lengths, np.arange(len(lengths[0])), TOKENS, seed, epoch)


def at_random(lengths: Lengths, seed: int = 1, epoch: int = 0) -> Plan:
    return plan_at_random(np.arange(len(lengths[0])), 40, seed, epoch)


def listed(plan: Plan) -> list[list[int]]:
    return [plan.rows(number).tolist() for number in range(len(plan))]


def padding(plan: Plan, lengths: Lengths) -> float:
    """The share of all positions, on both sides, that hold no token."""
    chosen = [plan.rows(number) for number in range(len(plan))]
    padded = sum(len(rows) * int(side[rows].max()) for rows in chosen for side in lengths)
    return 1 - sum(int(side.sum()) for side in lengths) / padded


MakePlan = Callable[..., Plan]
both = pytest.mark.parametrize("make", [by_length, at_random])


@both
def test_each_row_comes_once_an_epoch(make: MakePlan) -> None:
    lengths = skewed()
    for epoch in range(3):
        rows = [row for batch in listed(make(lengths, epoch=epoch)) for row in batch]
        assert sorted(rows) == list(range(len(lengths[0])))


@both
def test_a_plan_is_the_same_whenever_asked(make: MakePlan) -> None:
    lengths = skewed()
    assert listed(make(lengths, seed=3, epoch=4)) == listed(make(lengths, seed=3, epoch=4))


@both
def test_a_plan_differs_from_epoch_to_epoch_and_from_seed_to_seed(make: MakePlan) -> None:
    lengths = skewed()
    plans = [listed(make(lengths, seed, epoch)) for seed, epoch in ((1, 0), (1, 1), (2, 0), (2, 1))]
    for number, plan in enumerate(plans):
        assert plan not in plans[:number]
        # Not only the order of the batches: also who goes with whom.
        assert sorted(map(sorted, plan)) not in [sorted(map(sorted, other)) for other in plans[:number]]


@pytest.mark.parametrize("tokens", [1, 90, TOKENS, 10**9])
def test_a_batch_holds_no_more_tokens_than_allowed_unless_it_is_one_row(tokens: int) -> None:
    lengths = skewed()
    longest = np.maximum(*lengths)
    plan = plan_by_length(lengths, np.arange(len(longest)), tokens, 1, 0)
    for number in range(len(plan)):
        rows = plan.rows(number)
        assert len(rows) == 1 or len(rows) * longest[rows].max() <= tokens
    if tokens == TOKENS:
        assert len(plan) < 1.2 * longest.sum() / tokens


@pytest.mark.parametrize("tokens", [1, 90, 10**9])
def test_chunks_hold_each_row_once_and_no_more_tokens_than_allowed(tokens: int) -> None:
    lengths = [int(length) for length in skewed()[0][:200]]
    chunks = list(least_padded(lengths, tokens))
    assert sorted(number for chunk in chunks for number in chunk) == list(range(200))
    for chunk in chunks:
        assert len(chunk) == 1 or len(chunk) * max(lengths[number] for number in chunk) <= tokens
    assert not list(least_padded([], tokens))


def test_chunks_are_the_cheapest_of_all_ways_to_cut_the_rows() -> None:
    lengths, tokens, cost = [9, 2, 2, 30, 31, 7, 2, 12], 60, 5
    ordered = sorted(lengths, reverse=True)

    def total(chunks: list[list[int]]) -> int:
        return sum(cost + len(chunk) * chunk[0] for chunk in chunks)

    ways = []
    for count in range(len(ordered)):
        for cuts in combinations(range(1, len(ordered)), count):
            way = [ordered[start:stop] for start, stop in pairwise([0, *cuts, len(ordered)])]
            if all(len(chunk) == 1 or len(chunk) * chunk[0] <= tokens for chunk in way):
                ways.append(total(way))
    chosen = [[lengths[number] for number in chunk] for chunk in least_padded(lengths, tokens, cost)]
    assert total(chosen) == min(ways)
    assert total(chosen) < total([[lengths[number] for number in chunk] for chunk in greedy(lengths, tokens)])


def test_rows_of_one_length_are_not_cut_without_need() -> None:
    assert sorted(len(chunk) for chunk in least_padded([20] * 7, 100)) == [2, 5]


def test_rows_of_like_length_go_together() -> None:
    lengths = skewed()
    assert padding(by_length(lengths), lengths) < 0.1
    assert padding(at_random(lengths), lengths) > 0.3


def test_batches_of_short_and_long_rows_are_mixed() -> None:
    lengths = skewed()
    means = [lengths[0][rows].mean() for rows in map(np.array, listed(by_length(lengths)))]
    rising = sum(later >= earlier for earlier, later in pairwise(means)) / (len(means) - 1)
    assert 0.4 < rising < 0.6


def test_no_batch_reaches_over_the_end_of_a_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "POOL", 64)
    lengths = skewed(1000)
    longest = np.maximum(*lengths)
    plan = by_length(lengths)
    assert sorted(plan.order.tolist()) == list(range(1000))
    assert all(start // 64 == (stop - 1) // 64 for start, stop in zip(plan.starts, plan.stops, strict=True))
    assert all(len(rows) * longest[rows].max() <= TOKENS for rows in listed(plan))


def test_only_the_given_rows_are_planned() -> None:
    lengths, rows = skewed(), np.arange(5, 3000, 7)
    for plan in (plan_by_length(lengths, rows, TOKENS, 1, 0), plan_at_random(rows, 16, 1, 0)):
        assert sorted(plan.order.tolist()) == rows.tolist()


def test_a_single_row_is_a_plan() -> None:
    lengths = [np.array([9], np.int64)]
    assert listed(plan_by_length(lengths, np.arange(1), 4, 1, 0)) == [[0]]
    assert listed(plan_at_random(np.arange(1), 4, 1, 0)) == [[0]]


def test_batches_at_random_have_the_same_number_of_rows() -> None:
    sizes = sorted(len(rows) for rows in listed(plan_at_random(np.arange(103), 10, 1, 0)))
    assert sizes == [3] + [10] * 10


def test_rows_held_out_are_disjoint_complete_and_drawn_by_seed() -> None:
    rows, held = hold_out(100, 30, seed=1)
    assert len(held) == 30
    assert sorted([*rows.tolist(), *held.tolist()]) == list(range(100))
    assert np.all(np.diff(rows) > 0)
    assert np.all(np.diff(held) > 0)
    assert np.array_equal(held, hold_out(100, 30, seed=1)[1])
    assert not np.array_equal(held, hold_out(100, 30, seed=2)[1])


def test_targets_stand_between_start_and_end() -> None:
    target = Target(*pad_ids([[9], [10, 11]], VOCABULARY.pad, VOCABULARY.start, VOCABULARY.end))
    batch = Batch({INPUT: make_tokens([[5, 6, 7], [8]], VOCABULARY)}, {"main": target}, 0.25)
    read = batch.read(Tokens)
    assert read.tokens.tolist() == [[5, 6, 7], [8, 0, 0]]
    assert read.mask.tolist() == [[True, True, True], [True, False, False]]
    assert batch.targets["main"].tokens.tolist() == [[2, 9, 3, 0], [2, 10, 11, 3]]
    assert batch.targets["main"].mask.tolist() == [[True, True, True, False], [True] * 4]
    assert read.tokens.dtype == torch.int64
    assert read.mask.dtype == torch.bool
    assert (len(batch), batch.progress) == (2, 0.25)


def test_one_row_without_a_target_is_a_batch() -> None:
    batch = Batch({INPUT: make_tokens([[5]], VOCABULARY)})
    assert batch.read(Tokens).tokens.tolist() == [[5]]
    assert batch.read(Tokens).mask.tolist() == [[True]]
    assert batch.targets == {}


def column(rows: list[list[int]]) -> Column:
    offsets = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64)
    return Column(np.array([one for row in rows for one in row], np.uint16), offsets)


def test_rows_of_a_cache_are_the_batch_of_their_ids(tokenizer: TextTokenizer) -> None:
    sources, targets = [[5], [6, 7], [8, 9, 10]], [[15, 16], [17], [18]]
    cache = Cache({INPUT: column(sources), "main": column(targets)}, 3, {})
    source = TextInputConfig(max_tokens=30).build(tokenizer)
    output = TextOutputConfig(max_tokens=30).build("main", source, tokenizer, HiddenSpec())
    vocabulary = source.vocabulary
    expected = make_tokens([sources[2], sources[0]], vocabulary)
    tokens, mask = pad_ids([targets[2], targets[0]], vocabulary.pad, vocabulary.start, vocabulary.end)
    sizes = BatchSizes(6, None, 1)
    rows = TrainingRows(cache, np.arange(3), source, [output], sizes)
    batch = rows.batch(np.array([2, 0]), Moment())
    assert batch is not None
    assert torch.equal(batch.read(Tokens).tokens, expected.tokens)
    assert torch.equal(batch.read(Tokens).mask, expected.mask)
    assert torch.equal(batch.targets["main"].tokens, tokens)
    assert torch.equal(batch.targets["main"].mask, mask)
    assert sorted(map(sorted, listed(rows.plan(0)))) == [[0], [1, 2]]
    assert sorted(map(len, listed(replace(rows, sizes=replace(sizes, rows=2)).plan(0)))) == [1, 2]
