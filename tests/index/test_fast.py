"""A fast search finds nearly all of the best, and says that it proved nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.index.common import TEXTS, candidates_of, check_hits, context_of, give_vectors, ranker_of, truth_of
from twofold.data.tokenizer import TextTokenizer
from twofold.decoders import Vectors
from twofold.index import Index, search
from twofold.model import Ranker
from twofold.results import Hits

ROWS, WIDTH = 4000, 64


@pytest.fixture(autouse=True)
def guesses_among_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few candidates are searched the way of many, of which a guess leaves a twentieth."""
    monkeypatch.setattr(search, "SCAN_LIMIT", 0)
    monkeypatch.setattr(search, "SHORTLIST", 300)


@pytest.fixture
def asked(tokenizer: TextTokenizer, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Ranker]:
    """A poly-encoder that reads the text of a number as a vector, and any context as the one drawn for a number."""
    ranker = ranker_of(tokenizer)
    vectors = candidates_of("clusters", np.random.default_rng(1), ROWS, WIDTH)

    def ask(number: int) -> Ranker:
        draw = np.random.default_rng(number)
        near = vectors[draw.integers(ROWS)] / 20  # contexts lie where candidates do
        codes = near + 0.16 * draw.normal(size=(16, WIDTH)) / np.sqrt(WIDTH)
        context = Vectors(torch.from_numpy(codes.astype(np.float32))[None])
        give_vectors(ranker, monkeypatch, {str(one): vector for one, vector in enumerate(vectors)}, context)
        return ranker

    return ask


def rows_of(numbers: Sequence[int]) -> list[dict[str, Any]]:
    return [{"id": number, "text": str(number), "third": number % 3} for number in numbers]


def ids(hits: Hits) -> set[Any]:
    return {hit.id for hit in hits}


def recall(index: Index, ask: Callable[[int], Ranker], **settings: Any) -> float:
    """The share of the best ten that a fast search finds."""
    recalls = []
    for number in range(20):
        ask(number)
        fast, exact = (index.search("one", 10, mode=mode, **settings) for mode in ("fast", "exact"))
        assert exact.exact
        scores = {hit.id: hit.score for hit in exact}
        assert all(hit.score == pytest.approx(scores[hit.id], abs=1e-4) for hit in fast if hit.id in scores)
        recalls.append(len(ids(fast) & ids(exact)) / len(exact))
    return float(np.mean(recalls))


def test_a_fast_search_finds_nearly_all_and_says_that_it_proved_nothing(
    tmp_path: Path, asked: Callable[[int], Ranker]
) -> None:
    index = Index.build(tmp_path / "index", asked(0), rows_of(range(ROWS)))
    assert recall(index, asked) >= 0.99
    assert index.search("one", mode="fast").exact is False
    assert len(index.search("one", 500, mode="fast")) == 500


def test_a_fast_search_keeps_to_filters_and_exclusions(tmp_path: Path, asked: Callable[[int], Ranker]) -> None:
    index = Index.build(tmp_path / "index", asked(0), rows_of(range(ROWS)))
    assert recall(index, asked, where="third = 1") >= 0.99
    best = ids(index.search("one", 20))
    hits = index.search("one", 10, "third = 1", best, "fast")
    assert len(hits) == 10
    assert not best & ids(hits)
    assert all(hit.fields["third"] == 1 for hit in hits)
    assert ids(index.search("one", 10, "third = 7", mode="fast")) == set()


def test_after_changes_a_fast_search_finds_as_much_as_after_a_fresh_build(
    tmp_path: Path, asked: Callable[[int], Ranker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twofold.index.incoming.CHUNK_SIZE", 1500)
    numbers = list(range(1000, ROWS))
    fresh = Index.build(tmp_path / "fresh", asked(0), rows_of(numbers))
    index = Index.build(tmp_path / "index", asked(0), rows_of(range(1500)))
    index.add(rows_of(range(1500, ROWS)))
    index.remove(range(1000))
    whole = recall(fresh, asked)
    assert recall(index, asked) >= whole - 0.005
    assert not ids(index.search("one", 100, mode="fast")) & set(range(1000))
    index.compact()
    assert recall(index, asked) >= whole - 0.005


def test_a_fast_search_among_few_scores_all_and_is_exact(
    tmp_path: Path, tokenizer: TextTokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "SCAN_LIMIT", 4096)
    ranker = ranker_of(tokenizer)
    index = Index.build(tmp_path / "index", ranker, TEXTS[:100])
    hits = index.search("one", 10, mode="fast")
    assert hits.exact is True
    check_hits(hits, truth_of(ranker, "one", dict(enumerate(TEXTS[:100]))), 10)


@pytest.mark.parametrize("codes", ["dispersed", "opposite", "masked"])
@pytest.mark.parametrize("attention", ["plain", "scaled", "multihead"])
def test_a_fast_search_answers_whatever_the_codes_are(
    tmp_path: Path, tokenizer: TextTokenizer, attention: str, codes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranker, draw = ranker_of(tokenizer, attention=attention), np.random.default_rng(2)
    vectors = candidates_of("lengths", draw, 1000, 16)
    read = {str(one): vector for one, vector in enumerate(vectors)}
    give_vectors(ranker, monkeypatch, read, context_of(codes, draw, 8, 16))
    index = Index.build(tmp_path / "index", ranker, rows_of(range(1000)))
    right = {hit.id: hit.score for hit in index.search("one", 1000)}
    hits = index.search("one", 10, mode="fast")
    assert len(hits) == len(ids(hits)) == 10
    assert hits.exact is False
    assert all(hit.score == pytest.approx(right[hit.id], rel=1e-4, abs=1e-4) for hit in hits)
