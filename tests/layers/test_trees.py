"""The best tree is that of a search through all trees, and of Edmonds' algorithm as networkx has it."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from twofold.layers.trees import best_tree

Scores = NDArray[Any]


def is_tree(heads: tuple[int, ...]) -> bool:
    """Returns True if one word hangs from the root, and every other from it in the end."""
    for start in range(1, len(heads) + 1):
        place, steps = start, 0
        while place and steps <= len(heads):
            place, steps = heads[place - 1], steps + 1
        if place:
            return False
    return heads.count(0) == 1


def total(scores: Scores, heads: Any) -> float:
    return float(sum(scores[word, head] for word, head in enumerate(heads)))


def by_search(scores: Scores) -> tuple[int, ...]:
    words = len(scores)
    trees = [heads for heads in product(range(words + 1), repeat=words) if is_tree(heads)]
    return max(trees, key=lambda heads: total(scores, heads))


def by_networkx(scores: Scores) -> float:
    """The largest sum, trying each word at the root."""
    networkx = pytest.importorskip("networkx")
    words, sums = len(scores), []
    for root in range(1, words + 1):
        graph = networkx.DiGraph()
        graph.add_edge(0, root, weight=float(scores[root - 1, 0]))
        for word, head in product(range(1, words + 1), repeat=2):
            if word != head and word != root:
                graph.add_edge(head, word, weight=float(scores[word - 1, head]))
        tree = networkx.maximum_spanning_arborescence(graph)
        sums.append(float(tree.size(weight="weight")))
    return max(sums)


def some_scores(seed: int, words: int) -> Scores:
    return np.random.default_rng(seed).normal(size=(words, words + 1)) * 3


@pytest.mark.parametrize(("words", "rounds"), [(1, 3), (2, 20), (3, 60), (4, 60), (5, 12)])
def test_the_tree_is_that_of_a_search_through_all(words: int, rounds: int) -> None:
    for seed in range(rounds):
        scores = some_scores(seed, words)
        if seed % 2:
            scores[:, 0] += 20  # every word would rather hang from the root
        assert tuple(best_tree(scores).tolist()) == by_search(scores)


@pytest.mark.parametrize("words", [2, 3, 4])
def test_among_ties_the_sum_is_the_largest(words: int) -> None:
    for seed in range(40):
        scores = np.random.default_rng(seed).integers(3, size=(words, words + 1)).astype(np.float64)
        heads = tuple(best_tree(scores).tolist())
        assert is_tree(heads)
        assert total(scores, heads) == total(scores, by_search(scores))


@pytest.mark.parametrize("words", [7, 10, 14, 18])
@pytest.mark.parametrize("towards_root", [-10, 0, 10])
def test_the_sum_is_that_of_networkx(words: int, towards_root: float) -> None:
    scores = some_scores(words, words)
    scores[:, 0] += towards_root
    heads = best_tree(scores)
    assert is_tree(tuple(heads.tolist()))
    assert total(scores, heads) == pytest.approx(by_networkx(scores), abs=1e-9)


@pytest.mark.parametrize("words", [9, 60])
def test_a_right_tree_that_is_every_words_best_is_found(words: int) -> None:
    draw = np.random.default_rng(words)
    order = draw.permutation(words) + 1
    right = np.zeros(words, np.int64)
    for place in range(1, words):
        right[order[place] - 1] = order[draw.integers(place)]
    scores = some_scores(words, words)
    scores[np.arange(words), right] += 100
    assert best_tree(scores).tolist() == right.tolist()


def test_cycles_within_cycles_are_broken_where_it_costs_least() -> None:
    scores = np.full((4, 5), -50.0)
    scores[0, 2] = scores[1, 1] = scores[2, 4] = scores[3, 3] = 10  # 1 and 2, and 3 and 4, hang from each other
    scores[1, 3], scores[2, 1] = 8, 7  # and so do both pairs
    scores[:, 0] = [-3, -9, -1, -9]
    assert best_tree(scores).tolist() == list(by_search(scores)) == [2, 3, 0, 3]


def test_many_words_that_want_the_root_share_it() -> None:
    scores = some_scores(1, 40)
    scores[:, 0] = 1e6 + np.arange(40)
    heads = best_tree(scores)
    assert is_tree(tuple(heads.tolist()))
    assert np.flatnonzero(heads == 0).tolist() == [39]


def test_small_differences_count_beside_large_scores_of_the_root() -> None:
    scores = np.zeros((3, 4))
    scores[:, 0] = 1e9
    scores[1, 3] = scores[0, 2] = 1e-7
    assert best_tree(scores).tolist() == [2, 3, 0]


def test_a_word_never_hangs_from_itself() -> None:
    scores = some_scores(2, 5)
    expected = best_tree(scores).tolist()
    for value in (1e9, np.inf, np.nan, -np.inf):
        scores[np.arange(5), np.arange(5) + 1] = value
        assert best_tree(scores).tolist() == expected


def test_barred_edges_are_not_taken() -> None:
    count = 0
    for seed in range(60):
        scores = some_scores(seed, 4)
        scores[np.random.default_rng(seed).random(scores.shape) < 0.5] = -np.inf
        best = by_search(scores)
        if np.isneginf(total(scores, best)):
            with pytest.raises(ValueError, match="no tree"):
                best_tree(scores)
        else:
            count += 1
            assert tuple(best_tree(scores).tolist()) == best
    assert 10 < count < 50


def test_a_single_tree_that_is_left_is_found() -> None:
    right = [2, 3, 4, 0, 4, 4]
    scores = np.full((6, 7), -np.inf)
    scores[np.arange(6), right] = -1e30
    assert best_tree(scores).tolist() == right


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_scores_of_any_precision_are_kept_as_they_were(dtype: Any) -> None:
    scores = some_scores(3, 8).astype(dtype)
    kept = scores.copy()
    heads = best_tree(scores)
    assert heads.dtype == np.int64
    assert heads.tolist() == best_tree(scores.astype(np.float64)).tolist()
    assert (scores == kept).all()
    assert heads.tolist() == best_tree(np.asfortranarray(scores)).tolist()


def test_few_words_have_few_trees() -> None:
    assert best_tree(np.zeros((0, 1))).tolist() == []
    assert best_tree(np.array([[-5.0, 7.0]])).tolist() == [0]
    assert best_tree(np.array([[3.0, 0, 1], [3, 0, 0]])).tolist() == [2, 0]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_no_number_is_an_error(value: float) -> None:
    scores = some_scores(4, 3)
    scores[1, 0] = value
    with pytest.raises(ValueError, match="nan or inf"):
        best_tree(scores)


@pytest.mark.parametrize("shape", [(3, 3), (3,), (4, 3), (1, 2, 3)])
def test_scores_of_another_shape_are_an_error(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"\(words, words \+ 1\)"):
        best_tree(np.zeros(shape))
