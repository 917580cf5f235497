"""Candidates that score the same stand in the order of their ids, wherever they are kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.index.common import TEXTS, check_hits, ranker_of, scores_of, truth_of
from tests.index.common import give_vectors as give
from twofold.data.tokenizer import TextTokenizer
from twofold.decoders import Vectors
from twofold.errors import TwofoldError
from twofold.index import Index, search
from twofold.model import Ranker

Give = Callable[..., Ranker]


@pytest.fixture(params=[0, 4096], ids=["bounded", "scanned"])
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "SCAN_LIMIT", request.param)


@pytest.fixture
def reading(tokenizer: TextTokenizer, monkeypatch: pytest.MonkeyPatch) -> Give:
    """Makes a bi-encoder that reads the text of a number as the vector of that number, and any context as one."""

    def made(vectors: Sequence[Sequence[float]], context: Sequence[float] = (1.0, 0.0)) -> Ranker:
        ranker = ranker_of(tokenizer, "bi")
        read = {str(number): vector for number, vector in enumerate(vectors)}
        give(ranker, monkeypatch, read, Vectors(torch.tensor([[list(context)]])))
        return ranker

    return made


def rows_of(ids: Sequence[Any]) -> list[dict[str, Any]]:
    return [{"text": str(number), "id": id} for number, id in enumerate(ids)]


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("at_a_time", [10_000, 97])
@pytest.mark.parametrize("written", [int, "{:03d}".format], ids=["numbers", "texts"])
def test_among_equal_candidates_the_smaller_ids_are_found(
    tmp_path: Path, reading: Give, written: Callable[[int], Any], at_a_time: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twofold.index.incoming.CHUNK_SIZE", at_a_time)
    ids = [written(number) for number in np.random.default_rng(1).permutation(300).tolist()]
    index = Index.build(tmp_path / "index", reading([[0.3, 0.7]] * 300), rows_of(ids))
    for k in (1, 5, 299, 400):
        assert [hit.id for hit in index.search("one", k)] == sorted(ids)[:k]


@pytest.mark.usefixtures("both_ways")
def test_a_better_candidate_stands_before_equal_ones_of_smaller_id(tmp_path: Path, reading: Give) -> None:
    vectors = [[1.0, 0.0]] * 1000 + [[2.0, 0.0]] * 3 + [[0.5, 0.0]] * 500
    index = Index.build(tmp_path / "index", reading(vectors), rows_of(range(1503)))
    assert [hit.id for hit in index.search("one", 6)] == [1000, 1001, 1002, 0, 1, 2]


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("kind", ["poly", "late"])
def test_equal_texts_score_the_same_and_stand_in_the_order_of_their_ids(
    tmp_path: Path, tokenizer: TextTokenizer, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twofold.index.incoming.CHUNK_SIZE", 90)
    ranker = ranker_of(tokenizer, kind)
    texts = [TEXTS[number * number % 11] for number in range(400)]
    with Index.build(tmp_path / "index", ranker, texts, "float32") as index:
        hits = index.search("seven hundred", 400)
        check_hits(hits, truth_of(ranker, "seven hundred", dict(enumerate(texts))), 400)
        for text in set(texts):
            same = [hit.id for hit in hits if hit.text == text]
            assert same == [number for number, one in enumerate(texts) if one == text]
        assert [hit.id for hit in index.search("seven hundred", 50)] == [hit.id for hit in hits[:50]]


@pytest.mark.usefixtures("both_ways")
def test_zero_vectors_score_zero_and_are_found_when_nothing_is_better(tmp_path: Path, reading: Give) -> None:
    vectors = [[-1.0, 0.0]] * 300 + [[0.0, 0.0]] * 4 + [[1.0, 0.0]]
    index = Index.build(tmp_path / "index", reading(vectors), rows_of(range(305)))
    hits = index.search("one", 6)
    assert [(hit.id, hit.score) for hit in hits] == [(304, 1), (300, 0), (301, 0), (302, 0), (303, 0), (0, -1)]


@pytest.mark.usefixtures("both_ways")
def test_a_context_of_zeros_is_answered_with_the_smallest_ids(tmp_path: Path, reading: Give) -> None:
    vectors = np.random.default_rng(2).normal(size=(500, 2)).tolist()
    index = Index.build(tmp_path / "index", reading(vectors, (0.0, 0.0)), rows_of(range(500)))
    assert [(hit.id, hit.score) for hit in index.search("one", 3)] == [(0, 0), (1, 0), (2, 0)]


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("k", [10, 1000])
def test_a_chain_of_nearly_level_scores_does_not_push_out_the_best(tmp_path: Path, reading: Give, k: int) -> None:
    # Neighbours are level, the first and the last are far from it; the best have the largest ids.
    vectors = [[1.0 + number * 7e-7, 0.0] for number in range(2000)]
    ranker = reading(vectors)
    truth = scores_of(ranker.head, "bi", ranker.embed_contexts(["one"]), np.array(vectors, np.float32))
    index = Index.build(tmp_path / "index", ranker, rows_of(range(2000)))
    check = {number: float(score) for number, score in enumerate(truth)}
    check_hits(index.search("one", k), check, k)


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("size", [1e-30, 1e-12, 1e12])
def test_very_short_and_very_long_vectors_are_ordered(tmp_path: Path, reading: Give, size: float) -> None:
    draw = np.random.default_rng(3)
    vectors = draw.normal(size=(600, 2)) * size
    ranker = reading(vectors.tolist(), (0.6, -0.8))
    truth = vectors.astype(np.float32).astype(np.float64) @ np.array([0.6, -0.8], np.float32).astype(np.float64)
    index = Index.build(tmp_path / "index", ranker, rows_of(range(600)))
    check_hits(index.search("one", 10), {number: float(score) for number, score in enumerate(truth)}, 10)


@pytest.mark.parametrize("wrong", [float("nan"), -float("inf")])
@pytest.mark.parametrize("stored", ["float32", "float16"])
def test_a_vector_that_is_not_finite_is_named_with_its_text(
    tmp_path: Path, reading: Give, wrong: float, stored: str
) -> None:
    with pytest.raises(TwofoldError, match="the vector of '1' is not finite"):
        Index.build(tmp_path / "index", reading([[1.0, 0.0], [0.0, wrong], [1.0, 1.0]]), rows_of("abc"), stored)


def test_a_vector_too_long_for_float16_is_named(tmp_path: Path, reading: Give) -> None:
    with pytest.raises(TwofoldError, match=r"the vector of '1' is not finite.*float16"):
        Index.build(tmp_path / "index", reading([[1.0, 0.0], [0.0, 1e6]]), rows_of("ab"), "float16")


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_a_context_that_is_not_finite_is_refused(tmp_path: Path, reading: Give, wrong: float) -> None:
    index = Index.build(tmp_path / "index", reading([[1.0, 0.0]] * 300, (wrong, 0.0)), rows_of(range(300)))
    with pytest.raises(TwofoldError, match=r"not numbers|not finite"):
        index.search("one")
