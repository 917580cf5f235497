"""Ranking metrics are the field's own where nothing is tied, and averages over all orders of what is."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import permutations, product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from twofold.data import ranks
from twofold.data.ranks import Place
from twofold.errors import TwofoldError

Metric = Callable[[Any, Any], float]
CORPUS: dict[str, Metric] = {
    "mrr": ranks.reciprocal_rank,
    "map": ranks.average_precision,
    **{f"ndcg@{k}": partial(ranks.ndcg, k=k) for k in (1, 3, 10)},
    **{f"recall@{k}": partial(ranks.recall_at, k=k) for k in (1, 3, 10)},
}


def plain(metric: str, marks: list[bool]) -> float:
    """A metric of one order without ties, straight from its definition."""
    name, k = metric.split("@")[0], int(metric.partition("@")[2] or len(marks))
    hits = [position for position, mark in enumerate(marks, 1) if mark]
    if name == "mrr":
        return 1 / hits[0]
    if name == "map":
        return sum(number / position for number, position in enumerate(hits, 1)) / len(hits)
    if name == "recall":
        return sum(position <= k for position in hits) / len(hits)
    gain = sum(1 / math.log2(position + 1) for position in hits if position <= k)
    return gain / sum(1 / math.log2(position + 1) for position in range(1, min(k, len(hits)) + 1))


def orders(scores: list[float]) -> Iterator[list[int]]:
    """Every order that the scores allow, best first."""
    levels = sorted(set(scores), reverse=True)
    groups = [[number for number, score in enumerate(scores) if score == level] for level in levels]
    for parts in product(*(permutations(group) for group in groups)):
        yield [number for part in parts for number in part]


def by_hand(metric: str, scores: list[float], marks: list[bool]) -> float:
    """The mean over every order."""
    return float(np.mean([plain(metric, [marks[number] for number in order]) for order in orders(scores)]))


def untied(rows: int, seed: int) -> list[npt.NDArray[np.float64]]:
    draw = np.random.default_rng(seed)
    return [draw.permutation(int(draw.integers(11, 40))).astype(np.float64) for _ in range(rows)]


def by_ranx(scores: list[npt.NDArray[np.float64]], gains: list[npt.NDArray[Any]]) -> dict[str, list[float]]:
    """Each metric of each row, as ranx has it; gains are whole numbers."""
    pytest.importorskip("ranx")
    right, run = {}, {}
    for number, (row, gain) in enumerate(zip(scores, gains, strict=True)):
        right[f"q{number:03}"] = {f"d{place}": int(one) for place, one in enumerate(gain)}
        run[f"q{number:03}"] = {f"d{place}": float(score) for place, score in enumerate(row)}
    # Compiled at its first use it would take a minute and warn of unsafe casts: a process of its own runs it as it is.
    program = (
        "import json, ranx, sys\n"
        "right, run, metrics = json.load(sys.stdin)\n"
        "values = ranx.evaluate(ranx.Qrels(right), ranx.Run(run), metrics, return_mean=False)\n"
        "print(json.dumps({metric: list(map(float, values[metric])) for metric in metrics}))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps([right, run, list(CORPUS)]),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
    )
    values: dict[str, list[float]] = json.loads(answer.stdout)
    return values


def test_without_ties_the_metrics_are_those_of_ranx() -> None:
    scores, draw = untied(40, seed=1), np.random.default_rng(2)
    single = [np.arange(len(row)) == draw.integers(len(row)) for row in scores[:20]]
    several = [draw.permutation(np.arange(len(row)) < draw.integers(2, 13)) for row in scores[20:]]
    reference = by_ranx(scores, single + several)
    for metric, ours in CORPUS.items():
        values = [ours(*row) for row in zip(scores, single + several, strict=True)]
        assert values == pytest.approx(reference[metric], abs=1e-9), metric
    right = [int(mark.argmax()) for mark in single]
    means = {metric: np.mean(values[:20]) for metric, values in reference.items()}
    assert ranks.summary(ranks.places(scores[:20], right), ks=(1, 3, 10)) == pytest.approx(
        {**{f"r@{k}": means[f"recall@{k}"] for k in (1, 3, 10)}, **{m: means[m] for m in ("mrr", "map", "ndcg@10")}},
        abs=1e-9,
    )


def test_gains_without_ties_give_the_metrics_of_ranx() -> None:
    scores, draw = untied(60, seed=4), np.random.default_rng(5)
    gains = [draw.choice([0, 0, 0, 1, 2, 5], len(row)) for row in scores[:40]]
    gains += [np.where(np.arange(len(row)) == draw.integers(len(row)), 3, 0) for row in scores[40:]]
    for row in gains:
        row[int(draw.integers(len(row)))] |= not row.any()
    reference = by_ranx(scores, gains)
    for metric, ours in CORPUS.items():
        graded = gains if metric.startswith("ndcg") else [row > 0 for row in gains]
        assert [ours(*row) for row in zip(scores, graded, strict=True)] == pytest.approx(reference[metric], abs=1e-9)
    means = {metric: float(np.mean(values)) for metric, values in reference.items()}
    assert ranks.summary_of_gains(scores, gains, ks=(1, 3, 10)) == pytest.approx(
        {**{f"r@{k}": means[f"recall@{k}"] for k in (1, 3, 10)}, **{m: means[m] for m in ("mrr", "map", "ndcg@10")}},
        abs=1e-9,
    )


def test_rows_of_one_right_answer_have_the_summary_of_their_places() -> None:
    draw = np.random.default_rng(6)
    rows = [draw.integers(0, 9, size=12).astype(np.float32) for _ in range(50)]
    right = [int(draw.integers(12)) for _ in rows]
    gains = [[2.5 * (number == one) for number in range(12)] for one in right]
    assert ranks.summary_of_gains(rows, gains) == ranks.summary(ranks.places(rows, right))
    with pytest.raises(TwofoldError, match="row 1: no candidate is relevant"):
        ranks.summary_of_gains(rows[:1], [[0] * 12])
    with pytest.raises(TwofoldError, match="there are no rows"):
        ranks.summary_of_gains([], [])


TIED = [
    [1.0],
    [2.0, 2.0],
    [1.0, 1.0, 1.0, 1.0, 1.0],
    [3.0, 1.0, 1.0, 1.0, 2.0],
    [0.5, 0.5, 0.1, 0.1, 0.1, 0.9],
    [math.inf, math.inf, 0.0, -0.0, -math.inf, -math.inf],
]


@pytest.mark.parametrize("scores", TIED, ids=str)
@pytest.mark.parametrize("metric", CORPUS)
def test_ties_count_as_the_mean_over_all_their_orders(metric: str, scores: list[float]) -> None:
    for chosen in product([False, True], repeat=len(scores)):
        if any(chosen):
            marks = list(chosen)
            assert CORPUS[metric](scores, marks) == pytest.approx(by_hand(metric, scores, marks), abs=1e-12)


@pytest.mark.parametrize("scores", TIED, ids=str)
@pytest.mark.parametrize("k", [1, 3, 10])
def test_gains_of_ties_count_as_the_mean_over_all_their_orders(scores: list[float], k: int) -> None:
    for gains in product([0, 1, 2.5], repeat=len(scores)):
        if not any(gains) or len({*gains}) == 1:
            continue
        ideal = sum(gain / math.log2(n + 2) for n, gain in enumerate(sorted(gains, reverse=True)[:k]))
        values = [
            sum(gains[number] / math.log2(n + 2) for n, number in enumerate(order[:k])) for order in orders(scores)
        ]
        assert ranks.ndcg(scores, gains, k) == pytest.approx(np.mean(values) / ideal, abs=1e-12)
        if len(scores) > 5 and gains[0]:
            break  # there are very many


@pytest.mark.parametrize("scores", TIED, ids=str)
def test_one_right_answer_is_judged_like_one_relevant_candidate(scores: list[float]) -> None:
    for right in range(len(scores)):
        place, marks = ranks.place_of(scores, right), [number == right for number in range(len(scores))]
        assert ranks.reciprocal(place) == pytest.approx(by_hand("mrr", scores, marks))
        for k in (1, 2, 3, 10):
            assert ranks.recall(place, k) == pytest.approx(by_hand(f"recall@{k}", scores, marks))
            assert ranks.discounted(place, k) == pytest.approx(by_hand(f"ndcg@{k}", scores, marks))


@pytest.mark.parametrize("count", [1, 2, 7, 20, 100])
def test_a_constant_scorer_gets_exactly_chance_wherever_the_right_answer_stands(count: int) -> None:
    for right in range(count):
        place = ranks.place_of(np.full(count, 0.3, dtype=np.float32), right)
        assert place == Place(0, count - 1, count)
        assert [ranks.recall(place, k) for k in (1, 2, 10)] == [min(k / count, 1) for k in (1, 2, 10)]
        assert ranks.reciprocal(place) == pytest.approx(sum(1 / n for n in range(1, count + 1)) / count)


def test_a_large_tie_is_judged_without_overflow() -> None:
    marks = np.arange(100_000) < 1_000
    scores = np.zeros(len(marks))
    # So many make the draws all but independent, each relevant by p = 0.01: then E[1 / first] = p ln(1 / p) / (1 - p).
    assert ranks.reciprocal_rank(scores, marks) == pytest.approx(0.01 * math.log(100) / 0.99, rel=1e-3)
    assert ranks.average_precision(scores, marks) == pytest.approx(0.01, rel=0.02)
    assert ranks.ndcg(scores, marks, 10) == pytest.approx(0.01)
    assert ranks.recall_at(scores, marks, 1_000) == 0.01


@pytest.mark.parametrize("relevant", range(1, 200, 7))
def test_an_ideal_order_gets_exactly_one(relevant: int) -> None:
    scores, marks = -np.arange(200.0), np.arange(200) < relevant
    assert ranks.reciprocal_rank(scores, marks) == ranks.average_precision(scores, marks) == 1
    assert ranks.recall_at(scores, marks, relevant) == 1
    assert {ranks.ndcg(scores, marks, k) for k in (1, 10, 100, 1_000)} == {1.0}


def test_places_count_what_is_better_and_what_is_tied() -> None:
    assert ranks.place_of([0.1, 0.9, 0.1, 0.5], 2) == Place(2, 1, 4)
    assert ranks.place_of([-math.inf, math.inf, -math.inf], 0) == Place(1, 1, 3)
    assert ranks.place_of([-math.inf, math.inf, 3], 1) == Place(0, 0, 3)
    assert ranks.place_of(np.array([1, 2, 3]), np.int64(0).item()) == Place(2, 0, 3)


def test_rows_of_differing_lengths_are_placed_as_one_by_one() -> None:
    draw = np.random.default_rng(3)
    rows = [draw.integers(0, 4, size=draw.integers(1, 9)).astype(np.float32) for _ in range(300)]
    right = [int(draw.integers(len(row))) for row in rows]
    assert ranks.places(rows, right) == [ranks.place_of(*one) for one in zip(rows, right, strict=True)]
    assert ranks.places([rows[0].tolist(), [1]], [0, 0])[0] == ranks.place_of(rows[0], 0)
    assert ranks.places([], []) == []


def test_what_cannot_be_placed_is_named() -> None:
    with pytest.raises(TwofoldError, match="line 7: the score of candidate 2 of 3 is not a number"):
        ranks.place_of([0.0, math.nan, 1.0], 0, "line 7")
    with pytest.raises(TwofoldError, match="row 2: the score of candidate 1 of 1 is not a number"):
        ranks.places([[1.0, 2.0], [math.nan]], [0, 0])
    with pytest.raises(TwofoldError, match="b: the right candidate is -1, counted from 0, but there are 1"):
        ranks.places([[1.0, 2.0], [1.0]], [0, -1], ["a", "b"])
    with pytest.raises(TwofoldError, match="row 1: the right candidate is 2"):
        ranks.places([[1.0, 2.0]], [2])
    with pytest.raises(TwofoldError, match="row 1: scores are one number for each candidate"):
        ranks.places([[]], [0])
    with pytest.raises(TwofoldError, match="2 rows of scores, but 1 right answers"):
        ranks.places([[1.0], [1.0]], [0])


@pytest.mark.parametrize("metric", CORPUS)
def test_what_no_ranking_can_be_judged_by_is_one_line(metric: str) -> None:
    with pytest.raises(TwofoldError, match="this query: no candidate is relevant"):
        CORPUS[metric]([1.0, 2.0], [False, False])
    with pytest.raises(TwofoldError, match="this query: the score of candidate 2 of 2 is not a number"):
        CORPUS[metric]([1.0, math.nan], [True, False])
    graded = metric.startswith("ndcg")
    for wrong in ([True], [-1, 1] if graded else [0, 1], [math.nan, 1.0], ["a", "b"], [[True, False]]):
        with pytest.raises(
            TwofoldError, match="gains are numbers from 0 up" if graded else "relevance must be 2 bools"
        ):
            CORPUS[metric]([1.0, 2.0], wrong)
    with pytest.raises(TwofoldError, match="query 9"):
        ranks.average_precision([], [], "query 9")


def test_k_is_at_least_one() -> None:
    for k in (0, -1):
        with pytest.raises(TwofoldError, match="at least 1"):
            ranks.recall(Place(0, 0, 1), k)
        with pytest.raises(TwofoldError, match="at least 1"):
            ranks.discounted(Place(0, 0, 1), k)
        with pytest.raises(TwofoldError, match="at least 1"):
            ranks.ndcg([1.0], [True], k)
        with pytest.raises(TwofoldError, match="at least 1"):
            ranks.recall_at([1.0], [True], k)


def test_a_summary_is_the_mean_over_rows() -> None:
    chosen = [Place(0, 0, 6), Place(1, 1, 9), Place(11, 0, 20)]
    summary = ranks.summary(chosen)
    mrr = (1 + (1 / 2 + 1 / 3) / 2 + 1 / 12) / 3
    ndcg = (1 + (1 / math.log2(3) + 1 / 2) / 2 + 0) / 3
    expected = {"r@1": 1 / 3, "r@2": 1.5 / 3, "r@5": 2 / 3, "mrr": mrr, "map": mrr, "ndcg@10": ndcg}
    assert summary == pytest.approx(expected)
    assert list(summary) == list(expected)
    assert all(type(value) is float for value in summary.values())


def test_a_single_candidate_leaves_nothing_to_recall() -> None:
    assert ranks.summary(ranks.places([[0.5]], [0])) == {"mrr": 1.0, "map": 1.0, "ndcg@10": 1.0}


def test_a_summary_of_nothing_is_one_line() -> None:
    with pytest.raises(TwofoldError, match="no rows to evaluate"):
        ranks.summary([])
