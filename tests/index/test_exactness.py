"""A search finds what scoring every candidate finds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.index.common import (
    CODES,
    HEADS,
    TEXTS,
    best_of,
    candidates_of,
    check_best,
    check_hits,
    context_of,
    give_vectors,
    head_of,
    ranker_of,
    scores_of,
    truth_of,
)
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.index import Index, bounds, search
from twofold.index.quantized import QuantizedVectors
from twofold.index.search import Query, StoredVectors, exact_top_k

ROWS, WIDTH, NUMBER = 5000, 64, 16


@pytest.fixture(autouse=True, params=[True, False], ids=["by products", "by span"])
def always_bounded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few candidates go the way of many, on processors that multiply integers fast and on others."""
    monkeypatch.setattr(search, "SCAN_LIMIT", 0)
    for module in (search, bounds):
        monkeypatch.setattr(module, "integers_pay", lambda width: request.param and width > 1)


@pytest.mark.parametrize("lengths", ["clusters", "duplicates", "lengths"])
@pytest.mark.parametrize("codes", CODES)
@pytest.mark.parametrize("kind", HEADS)
def test_the_best_are_those_of_scoring_every_candidate(kind: str, codes: str, lengths: str) -> None:
    draw = np.random.default_rng(1)
    head = head_of(kind, WIDTH)
    vectors = candidates_of(lengths, draw, ROWS, WIDTH)
    stored = StoredVectors(QuantizedVectors.of(vectors), vectors.__getitem__)
    # From a flat softmax to one that takes the largest: too sharp for float32 where logits are not the values.
    for scale, ks in {0.02: (1, 10), 1.0: (10, ROWS + 5), 0.3 if kind == "multihead" else 20.0: (1, 10)}.items():
        context = context_of(codes, draw, NUMBER, WIDTH, scale)
        truth = scores_of(head, kind, context, vectors)
        for k in ks:
            check_best(exact_top_k(Query(head, context), stored, k), truth, k)


@pytest.mark.parametrize("codes", ["collinear", "dispersed"])
@pytest.mark.parametrize("kind", HEADS)
def test_the_best_of_wide_vectors_are_found(kind: str, codes: str) -> None:
    draw = np.random.default_rng(2)
    head = head_of(kind, 384)
    vectors = candidates_of("clusters", draw, 2500, 384)
    for _ in range(3):
        context = context_of(codes, draw, 64, 384)
        check_best(best_of(Query(head, context), vectors, 10), scores_of(head, kind, context, vectors), 10)


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("share", [0.0, 0.001, 0.3, 0.999])
def test_rows_that_do_not_count_are_never_found_and_the_rest_is_exact(kind: str, share: float) -> None:
    draw = np.random.default_rng(3)
    head = head_of(kind, WIDTH)
    vectors = candidates_of("clusters", draw, ROWS, WIDTH)
    for codes in ("collinear", "dispersed"):
        context = context_of(codes, draw, NUMBER, WIDTH)
        truth = scores_of(head, kind, context, vectors)
        out = draw.random(ROWS) >= share
        out[np.argsort(-truth)[:50]] = True  # those that would be found are among them
        check_best(best_of(Query(head, context), vectors, 10, out), np.where(out, -np.inf, truth), 10)


def test_no_row_that_counts_is_no_answer() -> None:
    draw = np.random.default_rng(4)
    vectors = candidates_of("clusters", draw, 300, WIDTH)
    query = Query(head_of("plain", WIDTH), context_of("collinear", draw, NUMBER, WIDTH))
    assert len(best_of(query, vectors, 10, np.ones(300, bool)).keys) == 0
    assert len(search.search([], [query], 10)[0].keys) == 0


@pytest.mark.parametrize("floor", [-np.inf, -1.0, 5.0, 1e9])
def test_what_does_not_reach_the_floor_is_left_out(floor: float) -> None:
    draw = np.random.default_rng(5)
    head = head_of("plain", WIDTH)
    vectors = candidates_of("clusters", draw, ROWS, WIDTH)
    context = context_of("dispersed", draw, NUMBER, WIDTH)
    truth = scores_of(head, "plain", context, vectors)
    best = best_of(Query(head, context), vectors, 10, floor=floor)
    reached = np.sort(truth[truth >= floor])[::-1][:10]
    np.testing.assert_allclose(np.sort(best.scores)[::-1][: len(reached)], reached, rtol=1e-5)
    assert (best.scores >= floor).all()


@pytest.mark.parametrize("kind", HEADS)
@pytest.mark.parametrize("scanned", [0, 10**9])
@pytest.mark.parametrize("few", [300, 10**9])
def test_the_answer_is_the_same_by_every_way(
    kind: str, few: int, scanned: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"SCAN_LIMIT": scanned, "FEW": few, "SEEDS": 1, "BLOCK": 300, "SCAN_BLOCK": 300}.items():
        monkeypatch.setattr(search, name, value)
    monkeypatch.setattr("twofold.index.top_k.CHUNK", 7)
    draw = np.random.default_rng(6)
    head = head_of(kind, WIDTH)
    vectors = candidates_of("clusters", draw, 1000, WIDTH)
    for codes in CODES:
        context = context_of(codes, draw, NUMBER, WIDTH)
        check_best(best_of(Query(head, context), vectors, 10), scores_of(head, kind, context, vectors), 10)


def test_blocks_that_several_threads_bound_are_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "BLOCK", 512)
    draw = np.random.default_rng(7)
    quantized = QuantizedVectors.of(candidates_of("clusters", draw, ROWS, WIDTH))
    bound = Query(head_of("plain", WIDTH), context_of("collinear", draw, NUMBER, WIDTH)).bounds
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        together = search.loose_bounds(bound, quantized)
    finally:
        torch.set_num_threads(threads)
    np.testing.assert_array_equal(together, bound.loose(quantized, 0, ROWS))


SETTINGS: dict[str, dict[str, Any]] = {
    "bi": {"kind": "bi"},
    "plain": {},
    "scaled": {"attention": "scaled"},
    "multihead": {"attention": "multihead", "heads": 2},
    "first": {"code_kind": "first", "codes": 8},
    "unnormalized": {"normalize": "none"},
    "late": {"kind": "late"},
    "late, pooled": {"kind": "late", "max_vectors": 3, "normalize": False},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_an_index_answers_as_its_ranker_does(tmp_path: Path, tokenizer: TextTokenizer, name: str) -> None:
    ranker = ranker_of(tokenizer, **SETTINGS[name])
    texts = dict(enumerate(TEXTS[:300]))
    with Index.build(tmp_path / "index", ranker, TEXTS[:300], "float32") as index:
        contexts: list[str | list[str]] = ["seven hundred", "one", ["삼백", "two", "nine"], "nine " * 50]
        for context, together in zip(contexts, index.search_many(contexts, 7), strict=True):
            truth = truth_of(ranker, context, texts)
            check_hits(together, truth, 7)
            for k in (1, 10, 301):
                hits = index.search(context, k)
                check_hits(hits, truth, k)
                assert hits.exact
                assert hits.milliseconds > 0
                assert [hit.text for hit in hits] == [texts[hit.id] for hit in hits]


@pytest.mark.parametrize("stored", ["float32", "float16"])
@pytest.mark.parametrize("kind", HEADS)
def test_several_shards_are_searched_as_one_over_vectors_as_they_are_stored(
    tmp_path: Path, tokenizer: TextTokenizer, kind: str, stored: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twofold.index.incoming.CHUNK_SIZE", 170)
    draw = np.random.default_rng(9)
    ranker = ranker_of(tokenizer, "bi") if kind == "bi" else ranker_of(tokenizer, attention=kind)
    vectors = ranker.embed_candidates(TEXTS).single.numpy() * 10.0 ** draw.uniform(-3, 2, (len(TEXTS), 1))
    vectors[::7] = vectors[1]
    context = ranker.embed_contexts(["seven hundred"])
    give_vectors(ranker, monkeypatch, dict(zip(TEXTS, vectors, strict=True)), context)
    truth = scores_of(ranker.head, kind, context, vectors.astype(np.float32).astype(stored))
    with Index.build(tmp_path / "index", ranker, TEXTS, stored) as index:
        for k in (1, 10, 1000):
            check_hits(index.search("seven hundred", k), dict(enumerate(truth.tolist())), k)
        assert index.info()["stored"] == stored


@pytest.mark.parametrize("kind", ["poly", "late"])
def test_a_filter_and_exclusions_leave_an_exact_answer_among_the_rest(
    tmp_path: Path, tokenizer: TextTokenizer, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twofold.index.incoming.CHUNK_SIZE", 100)  # several shards
    ranker = ranker_of(tokenizer, kind)
    rows: list[dict[str, Any]] = [
        {"text": text, "id": f"n{number}", "third": number % 3} for number, text in enumerate(TEXTS[:300])
    ]
    with Index.build(tmp_path / "index", ranker, rows, "float32") as index:
        for context in ("one", "삼백"):
            best = [hit.id for hit in index.search(context, 20)]
            for where, thirds in {
                None: (0, 1, 2),
                "third = 1": (1,),
                "third in (0, 2)": (0, 2),
                "third > 5": (),
            }.items():
                left = {row["id"]: row["text"] for row in rows if row["third"] in thirds and row["id"] not in best[::2]}
                hits = index.search(context, 10, where, [*best[::2], "nobody", 5])
                check_hits(hits, truth_of(ranker, context, left) if left else {}, 10)
                assert all(hit.fields == {"third": int(hit.id[1:]) % 3} for hit in hits)


@pytest.mark.parametrize("k", [0, -1])
def test_fewer_than_one_or_no_context_is_refused(tmp_path: Path, tokenizer: TextTokenizer, k: int) -> None:
    index = Index.build(tmp_path / "index", ranker_of(tokenizer), ["one"])
    with pytest.raises(TwofoldError, match=f"k must be at least 1, not {k}"):
        index.search("one", k)
    with pytest.raises(TwofoldError):
        index.search_many([])


@pytest.mark.bench
@pytest.mark.parametrize("codes", CODES)
@pytest.mark.parametrize("kind", HEADS)
def test_hundreds_of_contexts_among_a_hundred_thousand_are_answered_exactly(kind: str, codes: str) -> None:
    draw = np.random.default_rng(10)
    head = head_of(kind, WIDTH)
    for lengths in ("clusters", "duplicates", "lengths"):
        vectors = candidates_of(lengths, draw, 100_000, WIDTH)
        stored = StoredVectors(QuantizedVectors.of(vectors), vectors.__getitem__)
        for _ in range(60):
            context = context_of(codes, draw, NUMBER, WIDTH, 10 ** draw.uniform(-2, 0 if kind == "multihead" else 1.5))
            check_best(exact_top_k(Query(head, context), stored, 10), scores_of(head, kind, context, vectors), 10)
