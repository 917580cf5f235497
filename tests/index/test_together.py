"""Contexts that are searched together get the answers that each gets alone; vectors of 8 bits are searched exactly."""

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
    Floats,
    candidates_of,
    check_best,
    check_hits,
    context_of,
    give_vectors,
    head_of,
    ranker_of,
    scores_of,
)
from twofold.data.tokenizer import TextTokenizer
from twofold.decoders import Vectors
from twofold.index import Index, bounds, search
from twofold.index.bounds import Bounds, loose_together
from twofold.index.quantized import QuantizedVectors, widened
from twofold.index.search import Query, StoredVectors, exact_top_k
from twofold.index.top_k import TopK
from twofold.model import Ranker

ROWS, WIDTH, NUMBER = 3000, 64, 16


@pytest.fixture(autouse=True)
def shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few contexts share the first pass over few candidates, whatever the processor."""
    monkeypatch.setattr(search, "SCAN_LIMIT", 0)
    monkeypatch.setattr(search, "TOGETHER", 2)
    for module in (search, bounds):
        monkeypatch.setattr(module, "integers_pay", lambda width: width > 1)


class Place:
    """Candidates that are searched like a shard."""

    def __init__(self, stored: StoredVectors) -> None:
        self.stored = stored

    def top_k(self, query: Query, k: int, floor: float) -> TopK:
        return exact_top_k(query, self.stored, k, floor)


def stored_of(vectors: Floats, **more: Any) -> StoredVectors:
    return StoredVectors(QuantizedVectors.of(vectors), vectors.__getitem__, **more)


@pytest.mark.parametrize("width", [2, 30, 384, 4096])
def test_bounds_computed_together_are_close_to_those_of_each_alone(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "SHARED_BLOCK", 128)
    draw = np.random.default_rng(2)
    vectors = draw.normal(size=(500, width)).astype(np.float32)
    vectors[::7, 0] *= 100  # one number is so large that 8 bits lose most of the others
    quantized = QuantizedVectors.of(vectors)
    queries = [Bounds(draw.normal(size=(3, count, width)).astype(np.float32)) for count in (1, 5, 40)]
    filled = np.empty((len(queries), len(vectors)), np.float32)
    loose_together(queries, quantized, filled)
    for query, together in zip(queries, filled, strict=True):
        largest = np.einsum("gvw,rw->grv", query.groups.astype(float), vectors.astype(float)).max(2).sum(0)
        assert (together >= largest).all()
        length = query.longest * np.linalg.norm(vectors, axis=1)
        assert (together <= query.loose(quantized, 0, 500) + 0.1 * length).all()


@pytest.mark.parametrize("kind", HEADS)
def test_contexts_find_together_what_each_finds_alone(kind: str) -> None:
    draw = np.random.default_rng(3)
    head = head_of(kind, WIDTH)
    contexts = [context_of(codes, draw, NUMBER, WIDTH, scale) for codes in CODES for scale in (0.1, 1.0)]
    places, truths = [], []
    for lengths in ("clusters", "duplicates", "lengths"):
        vectors, out = candidates_of(lengths, draw, ROWS, WIDTH), draw.random(ROWS) < 0.3
        places.append(Place(stored_of(vectors, excluded=out)))
        truths.append([np.where(out, -np.inf, scores_of(head, kind, context, vectors)) for context in contexts])
    for place, truth in zip(places, truths, strict=True):
        for k in (1, 10, ROWS):
            together = search.search([place], [Query(head, context) for context in contexts], k)
            for context, top, right in zip(contexts, together, truth, strict=True):
                [alone] = search.search([place], [Query(head, context)], k)
                check_best(top, right, k)
                np.testing.assert_array_equal(np.sort(top.keys), np.sort(alone.keys))
                # Rows that are scored beside others may differ in the last digit of float32.
                np.testing.assert_allclose(np.sort(top.scores), np.sort(alone.scores), rtol=1e-6)


def test_documents_are_found_together_as_alone() -> None:
    draw = np.random.default_rng(4)
    head, vectors = head_of("plain", WIDTH), candidates_of("clusters", draw, ROWS, WIDTH)
    documents = np.repeat(np.arange(ROWS), draw.integers(1, 30, ROWS))[:ROWS]
    contexts = [context_of("collinear", draw, NUMBER, WIDTH) for _ in range(5)]
    place = Place(stored_of(vectors, documents=documents))
    queries = [Query(head, context) for context in contexts]
    search.share_pass(queries)
    for query, context in zip(queries, contexts, strict=True):
        top, truth = place.top_k(query, 10, -np.inf), scores_of(head, "plain", context, vectors)
        top.group()
        best = sorted((float(truth[documents == id].max()) for id in np.unique(documents)), reverse=True)[:10]
        np.testing.assert_allclose(np.sort(top.scores)[::-1][:10], best, rtol=1e-5)


@pytest.mark.parametrize("kind", ["bi", "poly", "late"])
@pytest.mark.parametrize("stored", ["float32", "float16", "int8"])
@pytest.mark.parametrize("split", [None, "4:1"])
def test_an_index_answers_many_contexts_as_it_answers_each(
    tmp_path: Path, tokenizer: TextTokenizer, kind: str, stored: str, split: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twofold.index.incoming.CHUNK_SIZE", 100)  # several shards
    monkeypatch.setattr("twofold.index.index.AT_A_TIME", 4)
    ranker = ranker_of(tokenizer, kind)
    rows = [{"text": text, "id": number, "third": number % 3} for number, text in enumerate(TEXTS[:250])]
    contexts = ["seven hundred", "one", "삼백", "nine " * 50, "two", "one", "eleven"]
    with Index.build(tmp_path / "index", ranker, rows, stored, split=split) as index:
        index.add([{"text": "twelve", "id": 999, "third": 1}])
        for where, exclude in ((None, ()), ("third = 1", [1, 4, 7])):
            for context, hits in zip(contexts, index.search_many(contexts, 6, where, exclude), strict=True):
                alone = index.search(context, 6, where, exclude)
                # Contexts that are read together may differ in the last digit of float32.
                check_hits(hits, {hit.id: hit.score for hit in index.search(context, 999, where, exclude)}, 6)
                assert [round(hit.score, 3) for hit in hits] == [round(hit.score, 3) for hit in alone]
                assert hits.exact


@pytest.mark.parametrize("kind", HEADS)
def test_vectors_of_8_bits_are_searched_exactly_over_what_is_stored(
    tmp_path: Path, tokenizer: TextTokenizer, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = np.random.default_rng(5)
    ranker: Ranker = ranker_of(tokenizer, "bi") if kind == "bi" else ranker_of(tokenizer, attention=kind)
    vectors = ranker.embed_candidates(TEXTS).single.numpy() * 10.0 ** draw.uniform(-3, 2, (len(TEXTS), 1))
    vectors[::7], vectors[3] = vectors[1], 0
    context = ranker.embed_contexts(["seven hundred"])
    give_vectors(ranker, monkeypatch, dict(zip(TEXTS, vectors, strict=True)), context)
    quantized = QuantizedVectors.of(vectors.astype(np.float32))
    truth = scores_of(ranker.head, kind, context, widened(quantized.integers, quantized.steps))
    rounding = 1e-6 * float(np.abs(truth).max())  # of a small sum of large products
    with Index.build(tmp_path / "index", ranker, TEXTS, "int8") as index:
        for k in (1, 10, 1000):
            check_hits(index.search("seven hundred", k), dict(enumerate(truth.tolist())), k, rounding)
        about = index.info(check=True)
        assert (about["stored"], about["vectors"], about["health"]) == ("int8", len(TEXTS), "good")
        with Index.build(tmp_path / "float16", ranker, TEXTS, "float16") as other:
            saved = other.info()["bytes"]["shards"] - about["bytes"]["shards"]
        assert abs(saved - vectors.size * 2) < 256


def test_the_center_of_vectors_lies_closer_to_the_furthest_than_their_mean() -> None:
    draw = np.random.default_rng(6)
    center = draw.normal(size=384)
    vectors = center + 0.2 * draw.normal(size=(64, 384))
    vectors[:3] += 0.5 * draw.normal(size=384)  # a few lie apart from the others
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    mean = vectors.mean(0) / np.linalg.norm(vectors.mean(0))
    furthest = np.linalg.norm(vectors - (vectors @ mean)[:, None] * mean, axis=1).max()
    assert Bounds(vectors[None].astype(np.float32)).balls[0, 2] < 0.9 * furthest


def test_one_vector_is_its_own_center_and_vectors_of_any_length_have_one() -> None:
    draw = np.random.default_rng(7)
    for length in (1e-18, 1.0, 1e18):
        vectors = (draw.normal(size=(1, 1, 32)) * length).astype(np.float32)
        bound = Bounds(vectors)
        assert bound.balls[0, 2] <= 1e-6 * bound.longest
        assert bound.longest == pytest.approx(float(np.linalg.norm(vectors.astype(float))))


def test_dispersed_codes_are_all_scored_without_bounding_all(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = np.random.default_rng(8)
    vectors, bounded = candidates_of("clusters", draw, ROWS, WIDTH), []
    real = Bounds.tight

    def tight(self: Bounds, candidates: QuantizedVectors, rows: Any) -> Floats:
        bounded.append(len(rows))
        return real(self, candidates, rows)

    monkeypatch.setattr(Bounds, "tight", tight)
    context = Vectors(torch.from_numpy((0.05 * draw.normal(size=(1, 64, WIDTH)) / 8).astype(np.float32)))
    head = head_of("plain", WIDTH)
    check_best(
        exact_top_k(Query(head, context), stored_of(vectors), 10), scores_of(head, "plain", context, vectors), 10
    )
    assert 0 < sum(bounded) <= 2 * search.SAMPLE_SIZE


@pytest.mark.parametrize("pays", [True, False])
def test_dispersed_codes_get_no_bounds_from_one_direction_alone_or_together(
    pays: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "LOOKUP_COST", 0.0 if pays else 1e9)
    for module, name in ((Bounds, "loose"), (search, "loose_together")):
        monkeypatch.setattr(module, name, lambda *_: pytest.fail("bounds from one direction"))
    draw = np.random.default_rng(9)
    vectors, out = candidates_of("clusters", draw, ROWS, WIDTH), draw.random(ROWS) < 0.2
    head, place = head_of("plain", WIDTH), Place(stored_of(vectors, excluded=out))
    contexts = [context_of("dispersed", draw, NUMBER, WIDTH) for _ in range(3)]
    for context, top in zip(
        contexts, search.search([place], [Query(head, context) for context in contexts], 10), strict=True
    ):
        check_best(top, np.where(out, -np.inf, scores_of(head, "plain", context, vectors)), 10)
