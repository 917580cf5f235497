"""Ranking rows as batches: all alike in size, shared by processes, and wrong candidates that are really wrong."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import decoder, encoder, write_jsonl
from tests.rankers import GIVEN, PAIRS, SEVERAL, batch_of, rows_of, small_ranker
from twofold.data.batches import Moment, plan_evenly
from twofold.data.ranking import text_key
from twofold.data.ranking_batches import _taken
from twofold.data.tokenizer import Frame, Ids, TextTokenizer
from twofold.errors import TwofoldError
from twofold.inputs import INPUT
from twofold.model import Ranker
from twofold.outputs.ranking import CANDIDATE, RankingTarget, Unread
from twofold.recipe import Recipe
from twofold.recipe.build import build_model, cache_rows, split_rows, training_rows
from twofold.types import Batch

ROWS: list[dict[str, Any]] = [
    *GIVEN,
    {"context": ["One hundred and two", "seven"], "response": "not what was said before"},
    {"context": "twelve", "response": "2045", "negatives": ["12 1"]},
    {"context": "forty", "response": "40"},
    {"context": "forty one", "response": "41", "negatives": ["40"]},
]
"""An odd number of rows; one has the context of another, one the response of another."""


@pytest.fixture
def ranker(tokenizer: TextTokenizer) -> Ranker:
    return small_ranker(tokenizer, encoder("rnn"), decoder("bi"))


# --- plans ---


@pytest.mark.parametrize("rows", [1, 2, 31, 32, 33, 65, 100])
@pytest.mark.parametrize("batch_rows", [2, 16, 32])
def test_batches_are_all_as_large_as_each_other_but_for_one_row(rows: int, batch_rows: int) -> None:
    plan = plan_evenly(np.arange(rows) * 3, batch_rows, seed=1, epoch=0)
    batches = [plan.rows(number).tolist() for number in range(len(plan))]
    sizes = [len(batch) for batch in batches]
    assert sorted(row for batch in batches for row in batch) == (np.arange(rows) * 3).tolist()
    assert max(sizes) <= batch_rows
    assert max(sizes) - min(sizes) <= 1
    assert len(plan) == -(-rows // batch_rows)


def test_a_plan_follows_from_seed_and_epoch() -> None:
    def batches(seed: int, epoch: int) -> list[list[int]]:
        plan = plan_evenly(np.arange(50), 8, seed, epoch)
        return [plan.rows(number).tolist() for number in range(len(plan))]

    assert batches(1, 0) == batches(1, 0)
    assert batches(1, 0) != batches(1, 1)
    assert batches(1, 0) != batches(2, 0)


# --- one batch ---


def plain(ids: Ids) -> tuple[int, ...]:
    return tuple(int(token) for token in ids)


def texts_of(batch: Batch, name: str) -> list[tuple[int, ...]]:
    """The ids of the contexts or of the candidates of a batch."""
    unread = batch.inputs[name]
    assert isinstance(unread, Unread)
    return [plain(ids) for ids in unread.items]


def target_of(batch: Batch) -> RankingTarget:
    target = batch.targets["main"]
    assert isinstance(target, RankingTarget)
    return target


def test_a_batch_holds_what_stands_in_its_rows(ranker: Ranker) -> None:
    batch = batch_of(ranker, ROWS)
    texts = [row["response"] for row in ROWS] + [text for row in ROWS for text in row.get("negatives", [])]
    candidates = ranker.candidates.items_of(texts)
    assert texts_of(batch, CANDIDATE) == list(map(tuple, candidates))
    contexts = ranker.contexts.items_of([row["context"] for row in ROWS])
    assert texts_of(batch, INPUT) == list(map(tuple, contexts))
    target = target_of(batch)
    assert target.tokens.tolist() == list(range(len(ROWS)))
    given = [[texts[number] for number in numbers] for numbers in target.negatives]
    assert given == [row.get("negatives", []) for row in ROWS]
    assert [scores.tolist() for scores in target.scores] == [row.get("scores", []) for row in ROWS]
    assert (target.sizes, target.rank, len(batch)) == ([len(texts)], 0, len(ROWS))
    assert ranker.tokens(batch) == sum(map(len, contexts)) + sum(map(len, candidates))


def described(batch: Batch) -> dict[tuple[int, ...], Any]:
    """For each context, whatever the order of the candidates: the right one, its own negatives, and all it may see."""
    texts, target = texts_of(batch, CANDIDATE), target_of(batch)
    return {
        (*context, -1, *texts[target.tokens[row]]): (
            [texts[number] for number in target.negatives[row]],
            Counter(texts[number] for number in np.flatnonzero(target.mask[row])),
            target.scores[row].tolist(),
        )
        for row, context in enumerate(texts_of(batch, INPUT))
    }


@pytest.mark.parametrize("world", [2, 3])
def test_the_shares_of_several_processes_make_the_batch_of_one(ranker: Ranker, world: int) -> None:
    whole = batch_of(ranker, ROWS)
    shares = [batch_of(ranker, ROWS, rank=rank, world=world) for rank in range(world)]
    assert sum(map(len, shares)) == len(whole)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    assert {key: value for share in shares for key, value in described(share).items()} == described(whole)
    gathered = []
    for rank, share in enumerate(shares):
        target = target_of(share)
        assert (target.rank, target.sizes) == (rank, target_of(shares[0]).sizes)
        assert texts_of(share, CANDIDATE) == texts_of(shares[0], CANDIDATE)
        assert set(target.tokens.tolist()) <= set(target.local_candidates)
        assert all(set(numbers.tolist()) <= set(target.local_candidates) for numbers in target.negatives)
        gathered += [texts_of(share, CANDIDATE)[number] for number in target.local_candidates]
    assert gathered == texts_of(shares[0], CANDIDATE)
    assert sum(ranker.tokens(share) for share in shares) == ranker.tokens(whole)


def test_more_processes_than_rows_are_refused(ranker: Ranker) -> None:
    with pytest.raises(TwofoldError, match="a batch of 5 rows cannot be shared by 6 processes"):
        batch_of(ranker, PAIRS, rank=0, world=6)


# --- several right texts ---


def batch_in(ranker: Ranker, epoch: int, drawn: int | None = None, rank: int = 0, world: int = 1) -> Batch:
    rows = rows_of(ranker, SEVERAL, drawn)
    batch = rows.batch(rows.rows, Moment(epoch=epoch, rank=rank, world=world))
    assert batch is not None
    return batch


def test_a_row_learns_from_each_of_its_right_texts_in_turn(ranker: Ranker) -> None:
    names = {tuple(ids): str(number) for number, ids in enumerate(ranker.candidates.items_of(list("0123456789")))}
    seen = []
    for epoch in range(6):
        batch = batch_in(ranker, epoch)
        candidates, target = texts_of(batch, CANDIDATE), target_of(batch)
        seen.append([names[candidates[number]] for number in target.tokens])
        first, second = seen[-1][:2]
        assert target.scores[0].tolist() == [float(first), 4.0, 5.0]
        assert target.scores[1].tolist() == [{"6": 8.0, "7": 9.0}[second], 7.0]
        assert seen[-1][2:] == ["2", "8", "9"]
    assert sorted(row[0] for row in seen[:3]) == ["1", "2", "3"]
    assert [row[0] for row in seen[3:]] == [row[0] for row in seen[:3]]
    assert [row[1] for row in seen[:2]] != [row[1] for row in seen[1:3]]
    orders = {tuple(_taken(3, [seed, 0], epoch) for epoch in range(3)) for seed in range(20)}
    assert len(orders) > 3


@pytest.mark.parametrize("world", [1, 2])
def test_no_right_text_of_a_row_is_ever_wrong_for_it(ranker: Ranker, world: int) -> None:
    right = [{"1", "2", "3", "9"}, {"6", "7"}, {"2"}, {"8"}, {"1", "2", "3", "9"}]
    keys = {
        plain(ids): text for text, ids in zip("123456789", ranker.candidates.items_of(list("123456789")), strict=True)
    }
    keys[plain(ranker.candidates.items_of([" 2"])[0])] = "2"
    for epoch in range(6):
        for rank in range(world):
            batch = batch_in(ranker, epoch, drawn=2, rank=rank, world=world)
            texts, target = [keys[ids] for ids in texts_of(batch, CANDIDATE)], target_of(batch)
            for row, number in enumerate(range(rank, len(SEVERAL), world)):
                wrong = [place for place in np.flatnonzero(target.mask[row]) if place != target.tokens[row]]
                assert not {texts[place] for place in wrong} & right[number]
                assert texts[target.tokens[row]] in right[number]
                assert target.drawn is not None
                assert not {texts[place] for place in target.drawn[row]} & right[number]


def test_several_processes_take_the_same_right_texts(ranker: Ranker) -> None:
    for epoch in range(3):
        shares = [described(batch_in(ranker, epoch, rank=rank, world=2)) for rank in range(2)]
        assert shares[0] | shares[1] == described(batch_in(ranker, epoch))


# --- wrong candidates for texts read as one ---


def drawn_texts(ranker: Ranker, drawn: int, epoch: int = 0, rank: int = 0, world: int = 1) -> dict[Any, list[Any]]:
    """For each context and its response the wrong candidates that were drawn."""
    rows = rows_of(ranker, ROWS, drawn)
    batch = rows.batch(rows.rows, Moment(epoch=epoch, rank=rank, world=world))
    assert batch is not None
    wrong = target_of(batch).drawn
    assert wrong is not None
    texts = texts_of(batch, CANDIDATE)
    keys = list(described(batch))
    return {key: [texts[number] for number in numbers] for key, numbers in zip(keys, wrong, strict=True)}


def test_wrong_candidates_are_drawn_by_seed_epoch_and_row(ranker: Ranker) -> None:
    assert drawn_texts(ranker, 3) == drawn_texts(ranker, 3)
    assert drawn_texts(ranker, 3) != drawn_texts(ranker, 3, epoch=1)


@pytest.mark.parametrize("drawn", [1, 3, 100])
def test_what_is_drawn_is_never_right_nor_equal_to_it(ranker: Ranker, drawn: int) -> None:
    rows = rows_of(ranker, ROWS, drawn)
    texts = [row["response"] for row in ROWS] + [text for row in ROWS for text in row.get("negatives", [])]
    for epoch in range(20):
        batch = rows.batch(rows.rows, Moment(epoch=epoch))
        assert batch is not None
        target = target_of(batch)
        assert target.drawn is not None
        assert target.drawn.shape[1] <= drawn
        for number, (row, chosen) in enumerate(zip(ROWS, target.drawn.tolist(), strict=True)):
            assert len(set(chosen)) == len(chosen)
            assert all(target.mask[number, place] and place != number for place in chosen)
            assert text_key(row["response"]) not in {text_key(texts[place]) for place in chosen}
            given = row.get("negatives", [])[:drawn]
            assert [texts[place] for place in chosen[: len(given)]] == given


@pytest.mark.parametrize("drawn", [3, 100])
def test_several_processes_draw_what_one_draws(ranker: Ranker, drawn: int) -> None:
    shares = [drawn_texts(ranker, drawn, rank=rank, world=2) for rank in range(2)]
    assert {**shares[0], **shares[1]} == drawn_texts(ranker, drawn)


def test_a_context_without_a_wrong_candidate_is_refused(ranker: Ranker) -> None:
    alike = [{"context": "one", "response": "1"}, {"context": "two", "response": " 1 "}]
    rows = rows_of(ranker, alike, 2)
    with pytest.raises(TwofoldError, match=r"no wrong candidate .* raise train\.batch_rows"):
        rows.batch(rows.rows, Moment())


# --- frames, files ---


def test_two_texts_are_joined_with_what_stands_between_them() -> None:
    frame = Frame((1,), (2, 3), (4,))
    assert frame.around([7, 8]).tolist() == [1, 7, 8, 4]
    ids, start = frame.joining([7, 8], [9])
    assert (ids.tolist(), start) == ([1, 7, 8, 2, 3, 9, 4], 5)
    assert frame.around([]).tolist() == [1, 4]


@pytest.mark.parametrize("rows", [ROWS, PAIRS], ids=["with negatives", "without"])
def test_a_file_gives_the_batches_of_its_rows(tokenizer: TextTokenizer, rows: Any, tmp_path: Path) -> None:
    content = {
        "data": {"train": write_jsonl(tmp_path / "rows.jsonl", rows)},
        "input": {"max_tokens": 30, "tokenizer": {"size": 80}},
        "encoder": {"kind": "rnn", "embedding": 4, "width": 4},
        "decoder": {"kind": "bi"},
        "output": {"candidate": {"max_tokens": 20}},
        "train": {"batch_rows": 20},
    }
    recipe = Recipe.of(content)
    model = build_model(recipe, tmp_path / "tokenizers")
    assert isinstance(model, Ranker)
    cache = cache_rows(recipe, model)
    split = split_rows(recipe, cache, model)
    assert split.rows.tolist() == list(range(cache.rows))
    batch = training_rows(recipe, cache, split, model).batch(split.rows, Moment())
    assert batch is not None
    expected = batch_of(model, rows)
    assert described(batch) == described(expected)
    assert texts_of(batch, CANDIDATE) == texts_of(expected, CANDIDATE)
    assert (target_of(batch).mask == target_of(expected).mask).all()
