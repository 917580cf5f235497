"""The certificate of a search holds: what was not scored cannot be among the best, and is shown not to be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.conftest import decoder, encoder
from tests.index.common import TEXTS
from tests.rankers import small_ranker
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.index import Index, search

ROWS = [{"text": text, "id": number, "lang": "ko" if number % 3 else "en"} for number, text in enumerate(TEXTS)]
CONTEXTS = ("one hundred and two", "seven thousand", "삼백")


@pytest.fixture(autouse=True)
def always_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few candidates go the way of many."""
    monkeypatch.setattr(search, "SCAN_LIMIT", 0)


@pytest.fixture(params=["bi", "poly"])
def index(request: pytest.FixtureRequest, tokenizer: TextTokenizer, tmp_path: Path) -> Index:
    ranker = small_ranker(tokenizer, encoder("transformer"), decoder(request.param)).eval()
    return Index.build(tmp_path / "index", ranker, ROWS)


@pytest.mark.parametrize("context", CONTEXTS)
def test_no_bound_is_below_its_score_and_none_that_was_left_out_reaches_the_floor(index: Index, context: str) -> None:
    hits, certificate = index.explain(context, 5)
    scores = np.sort(index.model.score([context], TEXTS)[0].cpu().numpy())[::-1]
    assert certificate.bounds is not None
    assert certificate.candidates == len(ROWS) == len(TEXTS)
    assert certificate.scored < len(ROWS)
    assert certificate.gap is not None
    assert certificate.gap > -1e-4 * (1 + abs(certificate.floor))
    assert certificate.floor == pytest.approx(hits[-1].score)
    # The sorted bounds are above the sorted scores, place by place.
    places = certificate.bounds.rank.astype(int) - 1
    assert (certificate.bounds.bound >= scores[places] - 1e-4).all()
    assert places[0] == 0
    assert places[-1] == len(ROWS) - 1
    for each in certificate.scores:
        assert each.bound is not None
        assert each.score <= each.bound + 1e-4
    assert certificate.scores[0].score == pytest.approx(hits[0].score, rel=1e-5)
    assert list(certificate.scores) == sorted(certificate.scores, key=lambda each: -each.score)


@pytest.mark.parametrize("where", [None, "lang = 'ko'"])
def test_hits_are_those_of_a_search(index: Index, where: str | None) -> None:
    excluded = [index.search(CONTEXTS[0], 1, where)[0].id]
    hits, certificate = index.explain(CONTEXTS[0], 7, where, excluded)
    expected = index.search(CONTEXTS[0], 7, where, excluded)
    assert [(hit.id, hit.text, hit.score) for hit in hits] == [(hit.id, hit.text, hit.score) for hit in expected]
    passing = [row for row in ROWS if (where is None or row["lang"] == "ko") and row["id"] not in excluded]
    assert certificate.candidates == len(passing)
    assert {each.id for each in certificate.scores} <= {row["id"] for row in passing}


def test_removed_candidates_have_no_bounds(index: Index) -> None:
    best = index.search(CONTEXTS[0], 1)[0].id
    index.remove([best])
    index.add([{"text": "a new text", "id": "new"}])
    _, certificate = index.explain(CONTEXTS[0], 3)
    assert certificate.candidates == len(ROWS)
    assert best not in {each.id for each in certificate.scores}


def test_a_scan_of_several_vectors_scores_all(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    ranker = small_ranker(tokenizer, encoder("transformer"), decoder("late")).eval()
    with Index.build(tmp_path / "index", ranker, ROWS[:40]) as index:
        hits, certificate = index.explain(CONTEXTS[0], 3)
        assert [hit.id for hit in hits] == [hit.id for hit in index.search(CONTEXTS[0], 3)]
    assert (certificate.candidates, certificate.scored) == (40, 40)
    assert certificate.bounds is None
    assert certificate.gap is None
    assert "bounds" not in certificate.as_dict()


def test_passages_are_explained_as_candidates(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    ranker = small_ranker(tokenizer, encoder("transformer"), decoder("poly")).eval()
    texts = [{"text": " ".join(TEXTS[start : start + 6]), "id": f"d{start}"} for start in range(0, 60, 6)]
    with Index.build(tmp_path / "index", ranker, texts, split="12:3") as index:
        hits, certificate = index.explain(CONTEXTS[0], 2)
        found = index.search(CONTEXTS[0], 2)
        assert [(hit.id, hit.passage) for hit in hits] == [(hit.id, hit.passage) for hit in found]
        assert certificate.candidates > len(texts)


def test_an_empty_filter_has_nothing_to_prove(index: Index) -> None:
    hits, certificate = index.explain(CONTEXTS[0], 3, "lang = 'fr'")
    assert (len(hits), certificate.candidates, certificate.scored) == (0, 0, 0)


def test_a_wrong_filter_is_refused(index: Index) -> None:
    with pytest.raises(TwofoldError, match="filter"):
        index.explain(CONTEXTS[0], 3, "lang")
