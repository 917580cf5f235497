"""Upper bounds of scores are never below the scores."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.index.common import candidates_of, context_of, head_of, scores_of
from twofold.index import bounds, search
from twofold.index.bounds import Bounds
from twofold.index.quantized import QuantizedVectors

Floats = NDArray[np.float64]


@pytest.fixture(autouse=True, params=[True, False], ids=["by products", "by span"])
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tight bounds come from products with all vectors (torch multiplies no width of 1), or from some directions."""
    monkeypatch.setattr(bounds, "integers_pay", lambda width: request.param and width > 1)


def largest(groups: NDArray[np.float32], candidates: NDArray[np.float32]) -> Floats:
    """The sum, over groups, of the largest dot product with a vector of the group."""
    wide = candidates.astype(np.float64)
    return np.asarray(sum((wide @ group.astype(np.float64).T).max(1) for group in groups))


def check(groups: Floats, candidates: Floats) -> None:
    """Neither bound is below the largest dot products."""
    some, rows = groups.astype(np.float32), candidates.astype(np.float32)
    bound, quantized, truth = Bounds(some), QuantizedVectors.of(rows), largest(some, rows)
    for upper in (bound.loose(quantized, 0, len(rows)), bound.tight(quantized, np.arange(len(rows)))):
        assert upper.shape == truth.shape
        assert np.isfinite(upper).all()
        below = truth - upper.astype(np.float64)
        assert below.max() <= 0, (below.max(), truth[below.argmax()])


def drawn(draw: np.random.Generator, kind: str, groups: int, vectors: int, width: int) -> Floats:
    """Groups of vectors as they may lie."""
    some: Floats = draw.normal(size=(groups, vectors, width))
    match kind:
        case "collinear":
            some = draw.normal(size=(groups, 1, width)) + 0.1 * some
        case "opposite":
            some = np.concatenate([some, -some], 1)
        case "one direction":
            some = draw.normal(size=(groups, 1, width)) * draw.uniform(-2, 2, size=(groups, vectors, 1))
        case "one coordinate":
            some = np.zeros_like(some)
            some[..., 0] = draw.uniform(-1, 1, size=(groups, vectors))
        case "one long":
            some[:, 0] *= 1e4
        case "zero":
            some[:, : vectors // 2 + 1] = 0
        case "all zero":
            some = np.zeros_like(some)
    return some


KINDS = [
    "dispersed",
    "collinear",
    "opposite",
    "one direction",
    "one coordinate",
    "one long",
    "zero",
    "all zero",
]


@pytest.mark.parametrize("kind", KINDS)
def test_bounds_are_never_below_the_largest_dot_products(kind: str) -> None:
    draw = np.random.default_rng(KINDS.index(kind))
    for _ in range(60):
        groups, vectors, width = (int(draw.integers(1, most)) for most in (5, 40, 100))
        some = drawn(draw, kind, groups, vectors, width)
        near = some.reshape(-1, width)[draw.integers(some.shape[0] * some.shape[1], size=20)]
        candidates = np.concatenate([draw.normal(size=(40, width)), near, -near, near + 0.01, np.eye(width), near * 0])
        check(some * 10.0 ** draw.integers(-4, 5), candidates * 10.0 ** draw.uniform(-4, 4, size=(len(candidates), 1)))


@pytest.mark.parametrize("size", [1e-12, 1e-6, 1e6, 1e12])
@pytest.mark.parametrize("other", [1e-12, 1.0, 1e12])
def test_bounds_hold_for_very_short_and_very_long_vectors(size: float, other: float) -> None:
    draw = np.random.default_rng(3)
    check(draw.normal(size=(2, 9, 30)) * size, draw.normal(size=(200, 30)) * other)


@pytest.mark.parametrize("width", [1, 2, 3, 384, 1024, 4096])
def test_bounds_hold_for_any_width(width: int) -> None:
    draw = np.random.default_rng(width)
    check(draw.normal(size=(1, 20, width)), draw.normal(size=(60, width)))
    check(np.ones((1, 2, width)), np.concatenate([np.ones((1, width)), -np.ones((1, width)), np.eye(width)[:9]]))


@pytest.mark.parametrize("width", [2, 5, 64])
def test_bounds_hold_where_nothing_is_lost_in_integers(width: int) -> None:
    # Direction and candidate are whole numbers of steps: no rounding error hides what the difference of squares loses.
    draw = np.random.default_rng(width)
    for _ in range(300):
        center = np.zeros(width)
        center[0], center[1] = 32767, draw.integers(1, 12)
        center /= np.linalg.norm(center)
        across = np.zeros(width)
        across[0], across[1] = -center[1], center[0]
        apart = draw.uniform(0.2, 5)
        groups = np.stack([center + apart * across, center - apart * across])[None]
        check(groups * draw.uniform(0.1, 10), np.eye(width)[:1] * draw.uniform(0.1, 10, size=(30, 1)))


@pytest.mark.parametrize("kind", ["plain", "scaled", "multihead"])
@pytest.mark.parametrize("codes", ["collinear", "dispersed", "opposite", "masked"])
def test_no_score_is_above_its_bounds(kind: str, codes: str) -> None:
    draw = np.random.default_rng(5)
    head = head_of(kind, 64)
    for lengths in ("clusters", "lengths"):
        candidates = candidates_of(lengths, draw, 800, 64)
        quantized = QuantizedVectors.of(candidates)
        for scale in (0.05, 1.0, 30.0):
            query = search.Query(head, context_of(codes, draw, 16, 64, scale))
            highest = np.maximum(
                scores_of(head, kind, query.contexts, candidates), query.score(candidates).astype(np.float64)
            )
            assert (query.bounds.loose(quantized, 0, len(quantized)) >= highest).all()
            assert (query.bounds.tight(quantized, np.arange(len(quantized))) >= highest).all()


def test_bounds_of_collinear_vectors_leave_few_candidates() -> None:
    draw = np.random.default_rng(6)
    candidates = candidates_of("clusters", draw, 5000, 64)
    query = search.Query(head_of("plain", 64), context_of("collinear", draw, 16, 64))
    tenth = np.sort(query.score(candidates))[-10]
    quantized = QuantizedVectors.of(candidates)
    first = (query.bounds.loose(quantized, 0, len(quantized)) >= tenth).mean()
    second = (query.bounds.tight(quantized, np.arange(len(quantized))) >= tenth).mean()
    assert second <= first < 0.2
    assert second < 0.05


def test_bounds_of_some_rows_are_those_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "PRODUCT_BLOCK", 64)
    draw = np.random.default_rng(7)
    bound = Bounds(draw.normal(size=(2, 8, 32)).astype(np.float32))
    quantized = QuantizedVectors.of(draw.normal(size=(500, 32)).astype(np.float32))
    whole = bound.tight(quantized, np.arange(500))
    rows = np.sort(draw.permutation(500)[:170])
    np.testing.assert_allclose(bound.tight(quantized, rows), whole[rows], rtol=1e-5)
    np.testing.assert_array_equal(bound.loose(quantized, 100, 300), bound.loose(quantized, 0, 500)[100:300])


def test_what_8_bits_lose_is_known() -> None:
    draw = np.random.default_rng(8)
    vectors = draw.normal(size=(300, 50)) * 10.0 ** draw.uniform(-30, 15, size=(300, 1))
    vectors[:3] = 0
    stored = vectors.astype(np.float32)
    quantized = QuantizedVectors.of(stored)
    assert len(quantized) == 300
    assert np.abs(quantized.integers.astype(int)).max() == 127
    back = quantized.integers * quantized.steps[:, None].astype(np.float64)
    assert (np.linalg.norm(stored - back, axis=1) <= quantized.errors).all()
    assert (np.linalg.norm(stored.astype(np.float64), axis=1) <= quantized.norms).all()
