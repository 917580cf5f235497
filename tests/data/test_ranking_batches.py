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
from twofold.data.ranking_batches import RankingBatch
from twofold.data.tokenizer import Frame, Ids, TextTokenizer
from twofold.errors import TwofoldError
from twofold.model import Ranker
from twofold.recipe import RankingRecipe, Recipe

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
    return tuple(int(one) for one in ids)


def test_a_batch_holds_what_stands_in_its_rows(ranker: Ranker) -> None:
    batch = batch_of(ranker, ROWS)
    texts = [row["response"] for row in ROWS] + [text for row in ROWS for text in row.get("negatives", [])]
    assert [plain(one) for one in batch.candidates] == list(map(tuple, ranker.candidates.encode_texts(texts).ids))
    contexts = ranker.contexts.encode_texts([row["context"] for row in ROWS]).ids
    assert [plain(one) for one in batch.contexts] == list(map(tuple, contexts))
    assert batch.right.tolist() == list(range(len(ROWS)))
    given = [[texts[one] for one in numbers] for numbers in batch.negatives]
    assert given == [row.get("negatives", []) for row in ROWS]
    assert [one.tolist() for one in batch.scores] == [row.get("scores", []) for row in ROWS]
    assert (batch.sizes, batch.rank, len(batch)) == ([len(texts)], 0, len(ROWS))
    assert batch.tokens == sum(map(len, contexts)) + sum(map(len, batch.candidates))


def described(batch: RankingBatch) -> dict[tuple[int, ...], Any]:
    """For each context, whatever the order of the candidates: the right one, its own negatives, and all it may see."""
    texts = [plain(one) for one in batch.candidates]
    return {
        (*plain(context), -1, *texts[batch.right[row]]): (
            [texts[one] for one in batch.negatives[row]],
            Counter(texts[one] for one in np.flatnonzero(batch.allowed[row])),
            batch.scores[row].tolist(),
        )
        for row, context in enumerate(batch.contexts)
    }


@pytest.mark.parametrize("world", [2, 3])
def test_the_shares_of_several_processes_make_the_batch_of_one(ranker: Ranker, world: int) -> None:
    whole = batch_of(ranker, ROWS)
    shares = [batch_of(ranker, ROWS, rank=rank, world=world) for rank in range(world)]
    assert sum(map(len, shares)) == len(whole)
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
    assert {key: one for share in shares for key, one in described(share).items()} == described(whole)
    gathered = []
    for rank, share in enumerate(shares):
        assert (share.rank, share.sizes) == (rank, shares[0].sizes)
        assert list(map(plain, share.candidates)) == list(map(plain, shares[0].candidates))
        assert set(share.right.tolist()) <= set(share.own)
        assert all(set(numbers.tolist()) <= set(share.own) for numbers in share.negatives)
        gathered += [plain(share.candidates[one]) for one in share.own]
    assert gathered == list(map(plain, shares[0].candidates))
    assert sum(share.tokens for share in shares) == whole.tokens


def test_more_processes_than_rows_are_refused(ranker: Ranker) -> None:
    with pytest.raises(TwofoldError, match="a batch of 5 rows cannot be shared by 6 processes"):
        batch_of(ranker, PAIRS, rank=0, world=6)


# --- several right texts ---


def batch_in(ranker: Ranker, epoch: int, drawn: int | None = None, rank: int = 0, world: int = 1) -> RankingBatch:
    rows = rows_of(ranker, SEVERAL, drawn)
    return rows.batch(rows.rows, Moment(epoch=epoch, rank=rank, world=world))


def test_a_row_learns_from_each_of_its_right_texts_in_turn(ranker: Ranker) -> None:
    names = {
        tuple(ids): str(number) for number, ids in enumerate(ranker.candidates.encode_texts(list("0123456789")).ids)
    }
    seen = []
    for epoch in range(6):
        batch = batch_in(ranker, epoch)
        seen.append([names[plain(batch.candidates[one])] for one in batch.right])
        first, second = seen[-1][:2]
        assert batch.scores[0].tolist() == [float(first), 4.0, 5.0]
        assert batch.scores[1].tolist() == [{"6": 8.0, "7": 9.0}[second], 7.0]
        assert seen[-1][2:] == ["2", "8", "9"]
    assert sorted(row[0] for row in seen[:3]) == ["1", "2", "3"]
    assert [row[0] for row in seen[3:]] == [row[0] for row in seen[:3]]
    assert [row[1] for row in seen[:2]] != [row[1] for row in seen[1:3]]
    orders = {tuple(rows_of(ranker, SEVERAL, seed=seed)._taken(0, epoch) for epoch in range(3)) for seed in range(20)}
    assert len(orders) > 3


@pytest.mark.parametrize("world", [1, 2])
def test_no_right_text_of_a_row_is_ever_wrong_for_it(ranker: Ranker, world: int) -> None:
    right = [{"1", "2", "3", "9"}, {"6", "7"}, {"2"}, {"8"}, {"1", "2", "3", "9"}]
    keys = {
        plain(ids): text
        for text, ids in zip("123456789", ranker.candidates.encode_texts(list("123456789")).ids, strict=True)
    }
    keys[plain(ranker.candidates.encode_texts([" 2"]).ids[0])] = "2"
    for epoch in range(6):
        for rank in range(world):
            batch = batch_in(ranker, epoch, drawn=2, rank=rank, world=world)
            texts = [keys[plain(ids)] for ids in batch.candidates]
            for row, number in enumerate(range(rank, len(SEVERAL), world)):
                wrong = [one for one in np.flatnonzero(batch.allowed[row]) if one != batch.right[row]]
                assert not {texts[one] for one in wrong} & right[number]
                assert texts[batch.right[row]] in right[number]
                assert batch.drawn is not None
                assert not {texts[one] for one in batch.drawn[row]} & right[number]


def test_several_processes_take_the_same_right_texts(ranker: Ranker) -> None:
    for epoch in range(3):
        shares = [described(batch_in(ranker, epoch, rank=rank, world=2)) for rank in range(2)]
        assert shares[0] | shares[1] == described(batch_in(ranker, epoch))


# --- wrong candidates for texts read as one ---


def drawn_texts(ranker: Ranker, drawn: int, epoch: int = 0, rank: int = 0, world: int = 1) -> dict[Any, list[Any]]:
    """For each context and its response the wrong candidates that were drawn."""
    rows = rows_of(ranker, ROWS, drawn)
    batch = rows.batch(rows.rows, Moment(epoch=epoch, rank=rank, world=world))
    assert batch.drawn is not None
    texts = list(map(plain, batch.candidates))
    keys = list(described(batch))
    return {key: [texts[one] for one in numbers] for key, numbers in zip(keys, batch.drawn, strict=True)}


def test_wrong_candidates_are_drawn_by_seed_epoch_and_row(ranker: Ranker) -> None:
    assert drawn_texts(ranker, 3) == drawn_texts(ranker, 3)
    assert drawn_texts(ranker, 3) != drawn_texts(ranker, 3, epoch=1)


@pytest.mark.parametrize("drawn", [1, 3, 100])
def test_what_is_drawn_is_never_right_nor_equal_to_it(ranker: Ranker, drawn: int) -> None:
    rows = rows_of(ranker, ROWS, drawn)
    texts = [row["response"] for row in ROWS] + [text for row in ROWS for text in row.get("negatives", [])]
    for epoch in range(20):
        batch = rows.batch(rows.rows, Moment(epoch=epoch))
        assert batch.drawn is not None
        assert batch.drawn.shape[1] <= drawn
        for number, (row, chosen) in enumerate(zip(ROWS, batch.drawn.tolist(), strict=True)):
            assert len(set(chosen)) == len(chosen)
            assert all(batch.allowed[number, one] and one != number for one in chosen)
            assert text_key(row["response"]) not in {text_key(texts[one]) for one in chosen}
            given = row.get("negatives", [])[:drawn]
            assert [texts[one] for one in chosen[: len(given)]] == given


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
    limits = {"max_context": 30, "max_candidate": 20}
    content = {
        "data": {"train": write_jsonl(tmp_path / "rows.jsonl", rows), **limits},
        "tokenizer": {"size": 80},
        "encoder": {"kind": "rnn", "embedding": 4, "width": 4},
        "decoder": {"kind": "bi"},
        "train": {"batch_rows": 20},
    }
    recipe = Recipe.of(content)
    assert isinstance(recipe, RankingRecipe)
    model = recipe.model(tmp_path / "tokenizers")
    cache = recipe.cache(model)
    found = recipe.rows(cache, np.arange(cache.rows), model).batch(np.arange(cache.rows), Moment())
    expected = batch_of(model, rows)
    assert described(found) == described(expected)
    assert list(map(plain, found.candidates)) == list(map(plain, expected.candidates))
    assert (found.allowed == expected.allowed).all()
