"""An index of late interaction finds what a loop over the vectors that are stored finds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

from tests.commands import answer
from tests.index.commands import ROWS, done, ids, save_models
from tests.index.common import TEXTS, Floats, check_best, check_hits, ranker_of
from twofold.data.tokenizer import TextTokenizer
from twofold.decoders import Vectors
from twofold.errors import TwofoldError
from twofold.index import Index, products, scan
from twofold.index.new_rows import NewRows
from twofold.index.places import Places
from twofold.index.quantized import widened
from twofold.index.scan import SeveralVectors
from twofold.index.search import Query
from twofold.model import Ranker
from twofold.model.candidates import cascade

WIDTH = 12


@pytest.fixture(scope="module")
def ranker(tokenizer: TextTokenizer) -> Ranker:
    return ranker_of(tokenizer, "late")


@pytest.fixture(params=[False, True], ids=["all scored", "bounded"])
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Integers bound the scores first, or not."""
    monkeypatch.setattr(scan, "integers_pay", lambda _: request.param)
    monkeypatch.setattr(scan, "SEEDS", 1)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, tokenizer: TextTokenizer) -> Path:
    return save_models(tmp_path_factory.mktemp("models"), tokenizer)


def rounded(vectors: Floats, stored: str) -> Floats:
    """Vectors as they are stored: of float16, or of whole numbers to 127 times a scale for each."""
    if stored == "int8":
        scales = np.abs(vectors).max(1, keepdims=True) / np.float32(127)
        vectors = np.rint(vectors / scales) * scales
        stored = "float32"
    return np.asarray(vectors.astype(stored), np.float32)


def sum_of_maxima(context: Floats, candidate: Floats) -> float:
    """Σ_t max_j q_t·c_j, number by number in float64."""
    dots = [[float(np.dot(query.astype(float), token.astype(float))) for token in candidate] for query in context]
    return sum(map(max, dots))


def truth_of(ranker: Ranker, context: str, texts: Mapping[Any, str], stored: str) -> dict[Any, float]:
    """The score of each text, by id, over its vectors as they are stored."""
    asked = ranker.embed_contexts([context]).present.numpy()
    kept = ranker.embed_candidates(list(texts.values()))
    rows = [rounded(kept[row : row + 1].present.numpy(), stored) for row in range(len(texts))]
    return {id: sum_of_maxima(asked, row) for id, row in zip(texts, rows, strict=True)}


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("at_a_time", [10_000, 70])
@pytest.mark.parametrize("stored", ["float32", "float16", "int8"])
@pytest.mark.parametrize("max_vectors", [None, 3])
def test_scores_are_exact_over_the_vectors_that_are_stored(
    tmp_path: Path, tokenizer: TextTokenizer, max_vectors: int | None, stored: str, at_a_time: int, monkeypatch: Any
) -> None:
    monkeypatch.setattr("twofold.index.incoming.CHUNK_SIZE", at_a_time)
    monkeypatch.setattr("twofold.index.encoding.PIECE", 50)
    ranker = ranker_of(tokenizer, "late", max_vectors=max_vectors)
    texts = dict(enumerate(TEXTS[:200]))
    with Index.build(tmp_path / "index", ranker, TEXTS[:200], stored) as index:
        assert index.info()["stored"] == stored
        for context in ("seven hundred", "one", "삼백 nine " * 20):
            truth = truth_of(ranker, context, texts, stored)
            # A text read beside others may differ in the last digit of float32, and so in the last that is stored.
            rounding = {"float32": 0.0, "float16": 0.002, "int8": 0.02}[stored]
            for k in (1, 10, 300):
                hits = index.search(context, k)
                check_hits(hits, truth, k, rounding)
                assert hits.exact


def integers_of(vectors: Floats, places: Places, excluded: Any = None) -> SeveralVectors:
    """Vectors as an index stores them with int8."""
    new = NewRows.several(np.arange(len(places.counts)), vectors, places.counts, "int8").arrays

    def integers(rows: Any) -> Any:
        return new["vectors"][places.of(rows)], new["scales"][places.of(rows)]

    return SeveralVectors(places, lambda rows: widened(*integers(rows)), excluded, integers, new["norms"])


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize("block", [1, 7, 50, 10**6])
@pytest.mark.parametrize("share", [0.0, 0.1, 0.9, 1.0])
def test_every_way_through_the_blocks_gives_the_same_answer(
    ranker: Ranker, share: float, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan, "BLOCK_VECTORS", block)
    draw = np.random.default_rng(1)
    counts = draw.integers(1, 20, 150)
    vectors = draw.normal(size=(counts.sum(), WIDTH)).astype(np.float32)
    places = Places(counts)
    context = torch.from_numpy(draw.normal(size=(1, 6, WIDTH)).astype(np.float32))
    mask = torch.tensor([[True, True, False, True, True, False]])
    query = Query(ranker.head, Vectors(context, mask))
    excluded = draw.random(len(counts)) < share
    stored = integers_of(vectors, places, excluded)
    rows = np.split(rounded(vectors, "int8"), np.cumsum(counts)[:-1])
    truth = np.array([sum_of_maxima(context[mask].numpy(), row) for row in rows])
    for k in (1, 10, 200):
        check_best(scan.scan(query, stored, k), np.where(excluded, -np.inf, truth), k)
    floor = float(np.sort(truth)[-5])
    assert set(scan.scan(query, stored, 50, floor).keys.tolist()) <= set(np.flatnonzero(truth >= floor - 1e-4).tolist())


@pytest.mark.parametrize("length", [1e-12, 1.0, 1e12])
@pytest.mark.parametrize("size", [1, 3])
def test_no_score_is_above_its_bound(size: int, length: float) -> None:
    draw = np.random.default_rng(3)
    counts = draw.integers(1, 9, 400)
    vectors = draw.normal(size=(counts.sum(), 96)) * length * 10.0 ** draw.uniform(-3, 1, (counts.sum(), 1))
    vectors[::9] = 0
    stored = integers_of(vectors.astype(np.float32), Places(counts))
    for scale in (0.0, 1e-6, 1.0, 1e6):
        groups = (draw.normal(size=(20, size, 96)) * scale).astype(np.float32)
        groups[::5] = 0
        query = cast(Query, SimpleNamespace(groups=groups))
        scores, bounds = scan.scores_of(query, stored, slice(0, 400)), scan.upper_bounds(query, stored)
        assert (scores <= bounds).all()
        # The context's rounding to 127 levels is all that is between them.
        longest = np.linalg.norm(groups, axis=2).max(1).sum()
        assert stored.norms is not None
        assert (bounds - scores <= 0.03 * longest * stored.norms + 1e-25).all()


def test_integers_bound_nothing_where_their_products_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    real = products.integer_products
    monkeypatch.setattr(products, "PAYS", 0.0)
    assert products.tried.__wrapped__(96)
    monkeypatch.setattr(products, "integer_products", lambda first, second: real(first, second) + 1)
    assert not products.tried.__wrapped__(96)


def test_a_group_of_several_vectors_counts_its_largest_product() -> None:
    draw = np.random.default_rng(2)
    groups, counts = draw.normal(size=(4, 3, WIDTH)), np.array([2, 5, 1])
    vectors = draw.normal(size=(8, WIDTH))
    out = np.empty(3, np.float32)
    scales, steps = draw.random(8).astype(np.float32), draw.random(12).astype(np.float32)
    products = (vectors @ groups.reshape(-1, WIDTH).T).astype(np.float32)
    scan.sums_of_maxima(products, scales, steps, counts, 3, out)
    rows = np.split(vectors * scales[:, None], np.cumsum(counts)[:-1])
    stepped = groups * steps.reshape(4, 3, 1)
    expected = [sum((row @ group.T).max() for group in stepped) for row in rows]
    np.testing.assert_allclose(out, expected, rtol=1e-5)


def test_the_rows_of_a_shard_are_where_their_counts_say() -> None:
    counts = np.array([2, 0, 3, 1])
    places, numbers = Places(counts), np.arange(6)
    assert numbers[places.of(slice(1, 3))].tolist() == [2, 3, 4]
    assert numbers[places.of(slice(2, 99))].tolist() == [2, 3, 4, 5]
    assert numbers[places.of(np.array([3, 0, 1, 3]))].tolist() == [5, 0, 1, 5]
    assert len(numbers[places.of(np.array([], int))]) == 0
    assert places.blocks(3) == [(0, 2), (2, 3), (3, 4)]
    assert places.blocks(1) == [(0, 1), (1, 2), (2, 3), (3, 4)]
    assert places.blocks(100) == [(0, 4)]


def test_a_fast_search_scans_too_and_is_proven(tmp_path: Path, ranker: Ranker) -> None:
    with Index.build(tmp_path / "index", ranker, TEXTS[:100]) as index:
        fast, exact = (index.search("one", 5, mode=mode) for mode in ("fast", "exact"))
        assert fast.exact
        assert list(fast) == list(exact)


def test_vectors_are_stored_as_float16_unless_told_and_int8_takes_half_as_much(tmp_path: Path, ranker: Ranker) -> None:
    vectors = int(ranker.embed_candidates(TEXTS[:100]).counts.sum())
    sizes = {}
    for stored in (None, "float32", "int8"):
        about = Index.build(tmp_path / f"{stored}", ranker, TEXTS[:100], stored).info(check=True)
        assert about["stored"] == (stored or "float16")
        assert (about["vectors"], about["width"], about["health"]) == (vectors, WIDTH, "good")
        assert about["decoder"] == "late"
        sizes[about["stored"]] = about["bytes"]["shards"]
        assert about["bytes_per_candidate"] == round(about["bytes"]["shards"] / 100)
    assert sizes["float32"] - sizes["float16"] == vectors * WIDTH * 2
    # Each vector has a scale, each candidate the length of its longest; headers are padded.
    assert abs(sizes["float16"] - sizes["int8"] - vectors * (WIDTH - 4) + 100 * 4) <= 192


def test_the_file_of_a_shard_is_safetensors(tmp_path: Path, ranker: Ranker) -> None:
    from safetensors.numpy import load_file

    Index.build(tmp_path / "index", ranker, TEXTS[:30], "int8").close()
    [path] = (tmp_path / "index" / "shards").iterdir()
    arrays, kept = load_file(path), ranker.embed_candidates(TEXTS[:30])
    assert arrays["counts"].tolist() == kept.counts.tolist()
    stored = arrays["vectors"] * arrays["scales"][:, None]
    np.testing.assert_allclose(stored, kept.present.numpy(), atol=1 / 127)


@pytest.mark.parametrize("wrong", [float("nan"), 1e6])
def test_a_vector_that_cannot_be_stored_is_named_with_its_text(
    tmp_path: Path, ranker: Ranker, wrong: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = ranker.embed_candidates

    def embed_candidates(texts: Any, report: Any = None) -> Vectors:
        kept = real(texts, report)
        kept.vectors[2, 1, 0] = wrong
        return kept

    monkeypatch.setattr(ranker, "embed_candidates", embed_candidates)
    with pytest.raises(TwofoldError, match=f"the vector of '{TEXTS[2]}' is not finite.*float16"):
        Index.build(tmp_path / "index", ranker, TEXTS[:5])


@pytest.mark.parametrize(("first", "then"), [("late", "poly"), ("bi", "late"), ("late", "cross")])
def test_late_interaction_is_the_first_or_the_later_stage_of_a_cascade(
    models: Path, tmp_path: Path, first: str, then: str
) -> None:
    rows = tmp_path / "rows.jsonl"
    rows.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    index, context = tmp_path / "index", "seven hundred"
    done("index", "build", index, "--model", models / first, "--texts", rows)
    searched = answer("search", index, context, "--then", f"{models / then}:7", "-k", "3")
    ranked = answer("rank", models / first, context, "--candidates", rows, "--then", f"{models / then}:7", "-k", "3")
    first_ranker, two = Ranker.from_pretrained(models / first), Ranker.from_pretrained(models / then)
    texts = first_ranker.prepare(ROWS)
    expected = cascade(lambda depth: first_ranker.rank(context, texts, depth), len(texts), [(two, 7)], context, 3)
    assert ids(searched) == ids(ranked) == [hit.id for hit in expected]
    assert not searched["exact"]  # what the first left out, the second never saw
    everything = answer("search", index, context, "--then", f"{models / then}:{len(ROWS)}", "-k", "3")
    assert everything["exact"]
