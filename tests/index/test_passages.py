"""An index of long documents: they are found by their best passages, exactly, and changed as wholes."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.index.common import (
    HEADS,
    TEXTS,
    candidates_of,
    check_hits,
    check_scores,
    context_of,
    document_truth,
    head_of,
    make_shards_small,
    ranker_of,
    rounding_of,
    scores_of,
)
from twofold.data.candidates import Candidate
from twofold.data.passages import Split
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.index import Index, search
from twofold.index.quantized import QuantizedProjections, QuantizedVectors, principal_directions
from twofold.index.search import Query, StoredVectors, approximate_top_k, exact_top_k
from twofold.model import Ranker
from twofold.model.candidates import cascade

ROWS, WIDTH = 3000, 32
SPLIT = "9:3"


def documents_of(count: int, seed: int = 0, words: int = 60) -> dict[Any, str]:
    """Documents of up to some words, by id."""
    draw = random.Random(seed)
    return {id: " ".join(draw.choices(TEXTS, k=draw.randint(1, words)))[: 8 * words].strip() for id in range(count)}


def rows_of(documents: Mapping[Any, str]) -> list[dict[str, Any]]:
    return [{"id": id, "text": text, "third": id % 3} for id, text in documents.items()]


@pytest.fixture(scope="module", params=["bi", "poly", "late"])
def ranker(tokenizer: TextTokenizer, request: pytest.FixtureRequest) -> Ranker:
    return ranker_of(tokenizer, request.param)


def texts_read(ranker: Ranker, monkeypatch: pytest.MonkeyPatch) -> list[Sequence[str]]:
    """Texts that are read as candidates from now on, those of each call."""
    texts: list[Sequence[str]] = []
    real = ranker.embed_candidates

    def embed_candidates(some: Sequence[str], report: Any = None) -> Any:
        texts.append(some)
        return real(some, report)

    monkeypatch.setattr(ranker, "embed_candidates", embed_candidates)
    return texts


def check(index: Index, ranker: Ranker, documents: Mapping[Any, str], split: str = SPLIT) -> None:
    """The index holds these documents, whole, and finds the best of them by their best passages."""
    assert len(index) == len(documents)
    assert {id: getattr(index.get(id), "text", None) for id in index} == dict(documents)
    for context in ("seven hundred", "삼백"):
        truth = document_truth(ranker, context, documents, split)
        for k in (1, 7, len(documents) + 5):
            hits = index.search(context, k)
            check_hits(hits, truth, k, rounding_of(ranker))
            assert hits.exact
            for hit in hits:
                assert hit.passage is not None
                assert hit.text == documents[hit.id][hit.passage.start : hit.passage.stop]
        shown = np.array(ranker.score([context], [hit.text for hit in hits])[0].tolist())
        check_scores(shown, np.array([hit.score for hit in hits]), rounding_of(ranker))
    assert index.info(check=True)["health"] == "good"


# --- exactness ---


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("sizes", ["several", "one long", "few", "single"])
@pytest.mark.parametrize("scanned", [0, 10**9])
def test_the_best_documents_are_found_exactly(
    kind: str, sizes: str, scanned: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "SCAN_LIMIT", scanned)
    draw = np.random.default_rng(1)
    counts = {"several": draw.integers(1, 40, ROWS), "one long": np.array([5, 2000, *[3] * ROWS])}
    counts |= {"few": np.full(ROWS, ROWS // 6), "single": np.ones(ROWS, int)}
    documents = np.repeat(np.arange(ROWS + 2)[: len(counts[sizes])] * 2 + 5, counts[sizes])[:ROWS]
    head = head_of(kind, WIDTH)
    for vectors in (candidates_of(lengths, draw, ROWS, WIDTH) for lengths in ("clusters", "duplicates", "lengths")):
        for share in (0.0, 0.5):
            out = draw.random(ROWS) < share
            stored = StoredVectors(QuantizedVectors.of(vectors), vectors.__getitem__, out, documents=documents)
            context = context_of("collinear", draw, 16, WIDTH)
            truth = np.where(out, -np.inf, scores_of(head, kind, context, vectors))
            best = {int(id): float(truth[documents == id].max()) for id in np.unique(documents[~out])}
            for k in (1, 10, 100):
                top = exact_top_k(Query(head, context), stored, k)
                rows = top.group()
                right = np.array(sorted(best.values(), reverse=True)[:k])
                order = np.argsort(-top.scores, kind="stable")[: len(right)]
                assert len(set(top.keys.tolist())) == len(top.keys) >= len(right)
                rounding = 1e-6 * float(np.abs(vectors).max()) * WIDTH
                check_scores(top.scores[order], right, rounding)
                check_scores(np.array([best[int(key)] for key in top.keys[order]]), right, rounding)
                check_scores(truth[rows], top.scores, rounding)
                assert (documents[rows] == top.keys).all()


def test_a_fast_search_finds_k_documents_and_nearly_all_of_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "SCAN_LIMIT", 0)
    monkeypatch.setattr(search, "SHORTLIST", 300)
    draw = np.random.default_rng(2)
    vectors = candidates_of("clusters", draw, ROWS, WIDTH)
    documents = np.repeat(np.arange(ROWS), draw.integers(1, 40, ROWS))[:ROWS]
    directions = principal_directions(vectors)
    projections = QuantizedProjections.of(vectors, directions)
    stored = StoredVectors(QuantizedVectors.of(vectors), vectors.__getitem__, None, projections, documents)
    common = 0
    for _ in range(10):
        context = context_of("collinear", draw, 16, WIDTH)
        exact, fast = exact_top_k(Query(head_of("plain", WIDTH), context), stored, 10), None
        fast = approximate_top_k(Query(head_of("plain", WIDTH), context, directions), stored, 10)
        assert not fast.proven
        exact.group(), fast.group()
        assert len(fast.keys) >= 10
        common += len({*exact.keys.tolist()} & {*fast.keys.tolist()})
    assert common > 90


def test_documents_are_ranked_by_their_best_passage(tmp_path: Path, ranker: Ranker) -> None:
    documents = documents_of(80)
    with Index.build(tmp_path / "index", ranker, rows_of(documents), split=SPLIT) as index:
        check(index, ranker, documents)
        assert Index(tmp_path / "index", ranker).search("seven", 3)[0] == index.search("seven", 3)[0]
        info = index.info()
        assert info["documents"] == info["candidates"] == 80
        passages = ranker.candidates.splitter(Split.of(SPLIT)).spans(
            list(ranker.candidates.candidates(rows_of(documents)))
        )
        assert info["passages"] == sum(map(len, passages)) > 200
        assert info["split"] == SPLIT


@pytest.mark.parametrize("stored", ["float16", "int8"])
def test_smaller_vectors_of_passages_are_searched_too(tmp_path: Path, tokenizer: TextTokenizer, stored: str) -> None:
    ranker, documents = ranker_of(tokenizer, "late"), documents_of(50)
    with Index.build(tmp_path / "index", ranker, rows_of(documents), stored, split=SPLIT) as index:
        truth = document_truth(ranker, "seven hundred", documents, SPLIT)
        check_hits(index.search("seven hundred", 10), truth, 10, rounding=0.05)


def test_a_filter_and_exclusions_are_of_documents(tmp_path: Path, ranker: Ranker) -> None:
    documents = documents_of(60)
    with Index.build(tmp_path / "index", ranker, rows_of(documents), split=SPLIT) as index:
        best = [hit.id for hit in index.search("seven hundred", 10)]
        left = {id: text for id, text in documents.items() if id % 3 == 1 and id not in best}
        truth = document_truth(ranker, "seven hundred", left, SPLIT)
        hits = index.search("seven hundred", 5, "third = 1", best)
        check_hits(hits, truth, 5, rounding_of(ranker))
        assert all(hit.fields == {"third": 1} for hit in hits)
        assert [hit.id for hit in index.search("one", 9, f"id = {best[0]}")] == [best[0]]


def test_equal_documents_stand_in_the_order_of_their_ids_with_their_first_best_passage(
    tmp_path: Path, ranker: Ranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twofold.index.incoming.CHUNK_SIZE", 12)  # several shards
    text = "one two three " * 30
    with Index.build(tmp_path / "index", ranker, [text] * 40, split="6:0") as index:
        whole = index.search("seven hundred", 40)
        assert [hit.id for hit in whole] == list(range(40))
        assert len({hit.passage for hit in whole}) == 1
        assert [hit.id for hit in index.search("seven hundred", 5)] == [0, 1, 2, 3, 4]
        spans = ranker.candidates.splitter(Split.of("6:0")).spans([Candidate(text, 0)])[0]
        passages = [span.passage(text) for span in spans]
        assert len(passages) > len(set(passages))
        assert whole[0].passage is not None
        assert whole[0].passage.number == passages.index(whole[0].text)


def test_a_title_is_read_before_every_passage(tmp_path: Path, ranker: Ranker) -> None:
    text = " ".join(TEXTS[:20])
    with Index.build(tmp_path / "index", ranker, [{"title": "seven", "text": text}], split="12:2") as index:
        [hit] = index.search("three hundred")
        document = index.get(0)
        assert document is not None
        assert document.text == f"seven {text}"
        assert hit.passage is not None
        assert hit.text == f"seven {document.text[hit.passage.start : hit.passage.stop]}"
        assert hit.score == pytest.approx(float(ranker.score(["three hundred"], [hit.text])), abs=0.02)


# --- changes ---


def test_documents_are_added_updated_and_removed_as_wholes(
    tmp_path: Path, ranker: Ranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_shards_small(monkeypatch)
    documents, draw = documents_of(20), random.Random(4)
    index = Index.build(tmp_path / "index", ranker, rows_of(documents), split=SPLIT)
    for seed in range(1, 7):
        added = {id + 100 * seed: text for id, text in documents_of(5, seed).items()}
        assert index.add(rows_of(added)) == 5
        documents |= added
        changed = dict(zip(draw.sample(list(documents), 4), documents_of(4, 50 + seed).values(), strict=True))
        assert index.update(rows_of(changed)) == 4
        documents |= changed
        removed = draw.sample(list(documents), 3)
        assert index.remove(removed) == 3
        documents = {id: text for id, text in documents.items() if id not in removed}
    check(index, ranker, documents)
    index.compact()
    assert index.info()["removed"] == 0
    check(index, ranker, documents)
    index.copy(tmp_path / "copy")
    check(Index(tmp_path / "copy", ranker), ranker, documents)


def test_only_documents_that_changed_are_read_again(
    tmp_path: Path, ranker: Ranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = documents_of(10)
    index = Index.build(tmp_path / "index", ranker, rows_of(documents), split=SPLIT)
    read = texts_read(ranker, monkeypatch)
    assert index.update([{**row, "third": 5} for row in rows_of(documents)]) == 10
    assert not read
    assert index.update([{"id": 3, "text": documents[4]}]) == 1
    assert read
    assert all(passage in documents[4] for passages in read for passage in passages)
    assert len(index.search("one", 20, "third = 5")) == 9


def test_a_part_holds_few_passages_and_documents_stay_whole(
    tmp_path: Path, ranker: Ranker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twofold.index.incoming.CHUNK_SIZE", 16)
    read = texts_read(ranker, monkeypatch)
    documents = {**documents_of(12, words=5), 50: " ".join(TEXTS[:60])}
    with Index.build(tmp_path / "index", ranker, rows_of(documents), split=SPLIT) as index:
        counts = list(map(len, read))
        assert max(counts[:-1]) <= 16 < counts[-1]
        monkeypatch.undo()
        check(index, ranker, documents)


def test_an_index_without_documents_and_one_of_short_ones_answer(tmp_path: Path, ranker: Ranker) -> None:
    with Index.build(tmp_path / "index", ranker, ["one", "two"], split="15:5") as index:
        assert [hit.text for hit in index.search("one", 5)] in (["one", "two"], ["two", "one"])
        index.remove([0, 1])
        assert not len(index.search("one"))
        index.compact()
        assert not len(index.search("one"))
        assert index.info(check=True)["passages"] == 0
        index.add(["three"])
        assert index.search("one")[0].text == "three"


# --- answers and refusals ---


def test_a_reranker_sees_the_best_passage_and_proves_nothing_of_the_rest(
    tmp_path: Path, tokenizer: TextTokenizer
) -> None:
    first, last = ranker_of(tokenizer, "bi"), ranker_of(tokenizer, "cross")
    with Index.build(tmp_path / "index", first, rows_of(documents_of(6)), split=SPLIT) as index:
        before = {hit.id: hit for hit in index.search("one", 6)}
        hits = cascade(lambda depth: index.search("one", depth), 6, [(last, 6)], "one", 6)
        assert not hits.exact
        assert {hit.id: (hit.text, hit.passage, hit.fields) for hit in hits} == {
            id: (hit.text, hit.passage, hit.fields) for id, hit in before.items()
        }


def test_passages_longer_than_the_model_reads_are_refused_before_anything_is_made(
    tmp_path: Path, tokenizer: TextTokenizer
) -> None:
    ranker = ranker_of(tokenizer)
    with pytest.raises(
        TwofoldError, match=r"split: passages of 5000 tokens are longer than the model reads; give at most \d+"
    ):
        Index.build(tmp_path / "index", ranker, ["one"], split="5000:1")
    assert not (tmp_path / "index").exists()


def test_a_build_does_not_go_on_with_another_split(tmp_path: Path, tokenizer: TextTokenizer, monkeypatch: Any) -> None:
    ranker = ranker_of(tokenizer)
    monkeypatch.setattr("twofold.index.incoming.CHUNK_SIZE", 4)
    real, calls = ranker.embed_candidates, []

    def fails_the_third_time(some: Any, report: Any = None) -> Any:
        calls.append(some)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(some, report)

    documents = documents_of(12)
    monkeypatch.setattr(ranker, "embed_candidates", fails_the_third_time)
    with pytest.raises(KeyboardInterrupt):
        Index.build(tmp_path / "index", ranker, rows_of(documents), split=SPLIT)
    for other in (None, "10:3"):
        with pytest.raises(TwofoldError, match="was begun with other texts or settings"):
            Index.build(tmp_path / "index", ranker, rows_of(documents), split=other)
    check(Index.build(tmp_path / "index", ranker, rows_of(documents), split=SPLIT), ranker, documents)
