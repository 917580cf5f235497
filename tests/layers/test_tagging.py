"""The best path is that of a search through all sequences, and keeps to the rules whatever the scores are."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from torch import Tensor

from twofold.layers.heads import best_path, rules

BIO = ["O", "B-PER", "I-PER", "I-LOC", "B-LOC"]
LENGTHS = torch.tensor([4, 1, 3, 0, 2])
MASK = torch.arange(4) < LENGTHS[:, None]


def some_scores(seed: int, tags: int = len(BIO), words: int = 4) -> Tensor:
    """Log-probabilities (rows, words, tags)."""
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(len(LENGTHS), words, tags, generator=draw).mul(2).log_softmax(2)


def allowed(path: tuple[int, ...], first: Tensor, after: Tensor) -> bool:
    return all(bool(after[path[place - 1], tag] if place else first[tag]) for place, tag in enumerate(path))


def by_search(scores: Tensor, first: Tensor, after: Tensor) -> list[int]:
    """The best allowed sequence of one row, scores (words, tags), from all there are."""
    paths = [path for path in product(range(scores.shape[1]), repeat=len(scores)) if allowed(path, first, after)]
    return list(max(paths, key=lambda path: sum(scores[place, tag].item() for place, tag in enumerate(path))))


def test_inside_follows_the_begin_or_inside_of_its_type_alone() -> None:
    first, after = rules(BIO)
    assert first.tolist() == [True, True, False, False, True]
    assert after.int().tolist() == [
        [1, 1, 0, 0, 1],
        [1, 1, 1, 0, 1],
        [1, 1, 1, 0, 1],
        [1, 1, 0, 1, 1],
        [1, 1, 0, 1, 1],
    ]


@pytest.mark.parametrize("names", [["NOUN", "VERB", "I"], ["O", "B-A", "B-B"], ["I"], ["O", "BI-A"], ["B", "I", "X"]])
def test_without_an_inside_everything_is_allowed(names: list[str]) -> None:
    first, after = rules(names)
    assert first.all()
    assert after.all()
    assert after.shape == (len(names), len(names))


def test_a_type_is_the_whole_name_after_the_first_hyphen() -> None:
    _, after = rules(["B-A-B", "I-A-B", "B-A", "I-A", "A"])
    assert after[:, 1].tolist() == [True, True, False, False, False]
    assert after[:, 3].tolist() == [False, False, True, True, False]


def test_bare_tags_mark_spans_too() -> None:
    first, after = rules(["B", "I", "O"])
    assert first.tolist() == [True, False, True]
    assert after[:, 1].tolist() == [True, True, False]
    assert after[:, [0, 2]].all()


def test_an_inside_without_a_begin_is_never_reached() -> None:
    first, after = rules(["I-X", "O", "I-Y", "B-Y"])
    scores = torch.tensor([[[0.0, -9, -1, -9], [0, -9, -1, -9], [0, -9, -1, -9]]])
    assert best_path(scores, torch.ones(1, 3, dtype=torch.bool), first, after).tolist() == [[3, 2, 2]]


def test_insides_alone_are_an_error() -> None:
    with pytest.raises(ValueError, match="may come first"):
        rules(["I-X", "I-Y"])


@pytest.mark.parametrize("seed", range(10))
def test_the_path_is_that_of_a_search_through_all(seed: int) -> None:
    scores, (first, after) = some_scores(seed), rules(BIO)
    paths = best_path(scores, MASK, first, after)
    for row, length in enumerate(LENGTHS.tolist()):
        assert paths[row, :length].tolist() == by_search(scores[row, :length], first, after)
        assert not paths[row, length:].any()


@pytest.mark.parametrize("seed", range(10))
def test_any_rules_are_searched_through(seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    first, after = torch.rand(4, generator=draw) < 0.5, torch.rand(4, 4, generator=draw) < 0.4
    first[0] = after[:, 1] = True  # so that there is a path
    scores = some_scores(seed, tags=4, words=6).double()
    paths = best_path(scores, torch.ones(scores.shape[:2], dtype=torch.bool), first, after)
    assert paths.tolist() == [by_search(row, first, after) for row in scores]


@pytest.mark.parametrize("size", [1e-6, 1.0, 1e4])
def test_no_sequence_breaks_a_rule(size: float) -> None:
    first, after = rules(BIO)
    draw = torch.Generator().manual_seed(0)
    scores = torch.randn(200, 40, len(BIO), generator=draw) * size
    scores[torch.rand(scores.shape, generator=draw) < 0.3] = -torch.inf
    scores[:20] = -torch.inf
    for path in best_path(scores, torch.ones(200, 40, dtype=torch.bool), first, after).tolist():
        assert allowed(tuple(path), first, after)


def test_what_has_a_chance_wins_over_what_has_none() -> None:
    first, after = rules(BIO)
    scores = torch.full((1, 2, len(BIO)), -torch.inf)
    scores[0, 0, 4], scores[0, 0, 1], scores[0, 1, 3] = -50, -1, -50
    assert best_path(scores, torch.ones(1, 2, dtype=torch.bool), first, after).tolist() == [[4, 3]]


def test_where_all_is_allowed_the_path_is_the_argmax() -> None:
    scores = some_scores(3)
    free = torch.ones(len(BIO), len(BIO), dtype=torch.bool)
    expected = scores.argmax(2).masked_fill(~MASK, 0)
    assert torch.equal(best_path(scores, MASK, free[0], free), expected)


def test_a_long_sentence_does_not_round_small_differences_away() -> None:
    first, after = rules(["O", "B-X", "I-X"])
    scores = torch.tensor([-20.0, -60, -60]).repeat(1, 2000, 1)
    scores[0, -1] = torch.tensor([-2e-7, -1e-7, -9])
    path = best_path(scores, torch.ones(1, 2000, dtype=torch.bool), first, after)
    assert path[0].tolist() == [0] * 1999 + [1]


def test_padding_does_not_change_paths() -> None:
    first, after = rules(BIO)
    scores = some_scores(4)
    changed = scores.masked_fill(~MASK[..., None], torch.nan)
    assert torch.equal(best_path(changed, MASK, first, after), best_path(scores, MASK, first, after))


def test_of_ties_the_smaller_tag_wins() -> None:
    first, after = rules(["B-X", "I-X", "O"])
    scores = torch.zeros(2, 5, 3)
    assert not best_path(scores, torch.ones(2, 5, dtype=torch.bool), first, after).any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_precisions_give_whole_numbers_too(dtype: torch.dtype) -> None:
    first, after = rules(BIO)
    scores = some_scores(5).to(dtype)
    path = best_path(scores, MASK, first, after)
    assert path.dtype == torch.long
    assert torch.equal(path, best_path(scores.double(), MASK, first, after))


@pytest.mark.parametrize("names", [BIO, ["A", "B"]])
def test_rows_without_words_have_an_empty_path(names: list[str]) -> None:
    path = best_path(torch.zeros(2, 0, len(names)), torch.zeros(2, 0, dtype=torch.bool), *rules(names))
    assert path.shape == (2, 0)
    assert path.dtype == torch.long
