"""Upper bounds of candidates' scores, proven from 8-bit integers: the first passes of an exact search.

A score is at most the sum, over groups of vectors v_1..v_m, of the largest c·v_i (`RankingDecoder.ceiling`). Stored is
c = step·q + r with q of 8-bit integers and ‖r‖ known, so dot products of integers and Cauchy–Schwarz bound each c·v_i:

    loose: one direction u        c·v ≤ (v·u)(c·u) + ‖v − (v·u)u‖·√(‖c‖² − (c·u)²)     good where vectors lie close
    tight: several directions     the same with their span in the place of u           for what is left

Rounding is inside the bounds: of the candidate (‖r‖), of the directions, and of float32 arithmetic (`margin`).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

from twofold.index.quantized import TINY, Floats, QuantizedDirections, QuantizedVectors, Rows, round_down, round_up

Kernel = TypeVar("Kernel", bound=Callable[..., Any])
BLOCK = 16_384
"""Rows that are bounded at a time: their intermediate results stay in the processor's cache."""
MOST_DIRECTIONS, OUTSIDE = 32, 0.4
"""Maximum number of directions of a span, and the share of the vectors outside the mean at which it gets no more."""
SAFE = np.float32(1e-6)
"""Share of a length that is subtracted before the squares are, so that float32 cancels nothing out."""


class Bounds:
    """Bounds of the scores of one context."""

    def __init__(self, groups: Floats) -> None:
        """groups (groups, vectors, width): a score is at most the sum of each group's largest dot product."""
        self.vectors = groups.astype(np.float64)
        lengths = np.sqrt(np.einsum("gvw,gvw->gv", self.vectors, self.vectors))
        longest = lengths.max(1)
        self.longest = float(longest.sum())
        # What float32 can lose in a dot product of this width, in the softmax over the vectors, and here.
        self.margin = np.float32((groups.shape[2] + groups.shape[1] + 64) * 2.0**-23 * self.longest)
        centers = self.vectors.sum(1)
        sizes = np.sqrt(np.einsum("gw,gw->g", centers, centers))
        canceled = sizes <= 1e-6 * longest  # any direction will do
        centers[canceled], sizes[canceled] = self.vectors[canceled, 0], lengths[canceled, 0]
        centers /= np.maximum(sizes, TINY)[:, None]
        along = np.einsum("gvw,gw->gv", self.vectors, centers)
        across = self.vectors - along[..., None] * centers[:, None]
        distances = np.sqrt(np.einsum("gvw,gvw->gv", across, across))
        self.centers = QuantizedDirections.of(centers)
        self.balls = np.stack([round_down(along.min(1)), round_up(along.max(1)), round_up(distances.max(1))], 1)

    def loose(self, candidates: QuantizedVectors, start: int, stop: int) -> Floats:
        """Computes the bounds of a block of rows from one direction for each group."""
        integers, steps = candidates.integers[start:stop], candidates.steps[start:stop]
        errors, norms = candidates.errors[start:stop], candidates.norms[start:stop]
        bounds = self.margin * norms
        dots = np.empty(stop - start, np.int32)
        centers = self.centers
        for center, step, error, ball in zip(centers.integers, centers.steps, centers.errors, self.balls, strict=True):
            dot_products(integers, center, dots)
            add_upper_bounds(dots, steps, errors, norms, step, error, ball, bounds)
        return bounds

    def tight(self, candidates: QuantizedVectors, rows: Rows) -> Floats:
        """Computes the bounds of some rows from several directions."""
        span, bounds = self.span, np.empty(len(rows), np.float32)
        for start in range(0, len(rows), BLOCK):
            block = rows[start : start + BLOCK]
            errors, norms = candidates.errors[block], candidates.norms[block]
            projections = span.project(candidates, block)
            bound = (self.margin + span.rounding) * norms + np.float32(self.longest) * errors
            for coordinates in span.coordinates:
                bound += (coordinates @ projections).max(0)
            bounds[start : start + BLOCK] = bound
        return bounds

    @functools.cached_property
    def span(self) -> Span:
        return Span.of(self.vectors)


@dataclass(frozen=True)
class Span:
    """Orthonormal directions that nearly hold all vectors, and each vector in them."""

    directions: QuantizedDirections
    coordinates: Floats
    """(groups, vectors, directions + 1): each vector in these directions, and last its length outside."""
    rounding: np.float32
    """Error that rounding the directions may add to a bound, for a candidate of length one."""

    @classmethod
    def of(cls, vectors: NDArray[np.float64]) -> Span:
        """vectors (groups, vectors, width)"""
        flat = vectors.reshape(-1, vectors.shape[2])
        basis = _spanning(np.concatenate([flat.mean(0, keepdims=True), flat]))
        inside = flat @ basis.T
        across = flat - inside @ basis
        outside = round_up(np.sqrt(np.einsum("vw,vw->v", across, across)))
        directions = QuantizedDirections.of(basis)
        rounding = (np.abs(inside) @ directions.errors).reshape(vectors.shape[:2]).max(1).sum()
        coordinates = np.concatenate([inside.astype(np.float32), outside[:, None]], 1)
        return cls(directions, coordinates.reshape(*vectors.shape[:2], -1), np.float32(rounding))

    def project(self, candidates: QuantizedVectors, rows: Rows) -> Floats:
        """Projects candidates on these directions; their largest length outside is last: (directions + 1, rows)."""
        steps, lost = self.directions.steps[:, None], self.directions.errors[:, None]
        errors, norms = candidates.errors[rows], candidates.norms[rows]
        dots = np.empty((len(steps), len(rows)), np.int32)
        dot_products_of_rows(candidates.integers, rows, self.directions.integers, dots)
        projections = np.empty((len(steps) + 1, len(rows)), np.float32)
        np.multiply(dots, candidates.steps[rows] * steps, out=projections[:-1])
        least = np.maximum(np.abs(projections[:-1]) - (errors + norms * (lost + SAFE)), 0)
        projections[-1] = np.sqrt(np.maximum(norms * norms - (least * least).sum(0), 0))
        return projections


def _spanning(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Returns orthonormal directions: that of the first row, then repeatedly that of the row furthest outside.

    This is the Cholesky decomposition with pivoting, which needs only the rows' dot products.
    """
    products = rows @ rows.T
    outside = products.diagonal().copy()  # the squared length of each row outside
    longest = outside.max()
    coordinates = np.zeros((len(rows), min(MOST_DIRECTIONS, *rows.shape)))
    pivots: list[int] = []
    enough = 1e-14 * longest
    while len(pivots) < coordinates.shape[1]:
        count = len(pivots)
        pivot = int(outside.argmax()) if count or outside[0] <= 1e-12 * longest else 0
        if outside[pivot] <= enough:
            break
        explained = coordinates[:, :count] @ coordinates[pivot, :count]
        coordinates[:, count] = (products[:, pivot] - explained) / np.sqrt(outside[pivot])
        outside = np.maximum(outside - coordinates[:, count] ** 2, 0)
        outside[[*pivots, pivot]] = 0
        pivots.append(pivot)
        if count == 0:
            enough = max(enough, OUTSIDE**2 * outside.max())
    if not pivots:
        return np.eye(1, rows.shape[1])
    return np.linalg.solve(coordinates[pivots, : len(pivots)], rows[pivots]).astype(np.float64)


# --- loops over all candidates, compiled by numba ---


def compiled(**options: Any) -> Callable[[Kernel], Kernel]:
    """Compiles on first use, and caches the result for the next process if numba finds a folder to write to."""

    def compile_(function: Kernel) -> Kernel:
        uncached: Any = njit(nogil=True, **options)(function)
        try:
            cached: Any = njit(nogil=True, cache=True, **options)(function)
        except RuntimeError:  # no folder can be written to
            return cast(Kernel, uncached)

        @functools.wraps(function)
        def kernel(*arguments: Any) -> Any:
            try:
                return cached(*arguments)
            except OSError:  # the folder is full, or cannot be written to any more
                return uncached(*arguments)

        return cast(Kernel, kernel)

    return compile_


@compiled()
def dot_products(candidates: NDArray[Any], direction: NDArray[Any], out: NDArray[Any]) -> None:
    """Computes dot products: candidates (rows, width) int8, direction (width,) int16, out (rows,) int32."""
    for row in range(len(candidates)):
        total = np.int32(0)
        for place in range(candidates.shape[1]):
            total += np.int32(candidates[row, place]) * np.int32(direction[place])
        out[row] = total


@compiled()
def dot_products_of_rows(candidates: NDArray[Any], rows: Rows, directions: NDArray[Any], out: NDArray[Any]) -> None:
    """Computes dot products of some rows: directions (directions, width), out (directions, rows)."""
    for number in range(len(rows)):
        row = rows[number]
        for direction in range(len(directions)):
            total = np.int32(0)
            for place in range(candidates.shape[1]):
                total += np.int32(candidates[row, place]) * np.int32(directions[direction, place])
            out[direction, number] = total


# Sums may be taken in another order: what that changes is inside the bounds' margin.
@compiled(fastmath={"reassoc", "contract", "nsz", "arcp", "nnan"})
def add_upper_bounds(
    dots: NDArray[Any], steps: Any, errors: Any, norms: Any, center_step: Any, center_error: Any, ball: Any, bounds: Any
) -> None:
    """Adds to `bounds` the largest dot product that any vector of a ball can have.

    dots: of integers, with the direction of the ball's center. ball: the least and the largest share of the vectors
    along the direction, and their largest distance from it.
    """
    least, most, distance = ball[0], ball[1], ball[2]
    for row in range(len(dots)):
        norm = norms[row]
        along = np.float32(dots[row]) * (steps[row] * center_step)
        # Without the millionth, the squares below could cancel out in float32.
        slack = errors[row] + norm * (center_error + np.float32(1e-6))
        low, high = along - slack, along + slack
        near = max(abs(along) - slack, np.float32(0.0))
        share = max(max(least * low, least * high), max(most * low, most * high))
        bounds[row] += share + distance * math.sqrt(max(norm * norm - near * near, np.float32(0.0)))
