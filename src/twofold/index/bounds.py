"""Upper bounds of candidates' scores, proven from 8-bit integers: the first passes of an exact search.

A score is at most the sum, over groups of vectors v_1..v_m, of the largest c·v_i (`RankingDecoder.ceiling`). Stored is
c = step·q + r with q of 8-bit integers and ‖r‖ known, so dot products of integers and Cauchy–Schwarz bound each c·v_i:

    loose: one direction u   c·v ≤ (v·u)(c·u) + ‖v − (v·u)u‖·√(‖c‖² − (c·u)²)   good where vectors lie close
    tight: all vectors       from 8-bit integers of v too, where the processor multiplies matrices of these fast
           or directions     elsewhere the same as loose with their span in the place of u

u lies in the middle of the narrowest cone around v_1..v_m. Rounding is inside the bounds: of the candidate (‖r‖), of
the directions, and of float32 arithmetic (`margin`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twofold.index.kernels import (
    center_weights,
    dot_products,
    dot_products_of_rows,
    fill_product_bounds,
    fill_upper_bounds,
    measure_ball,
)
from twofold.index.products import integer_products, integers_pay
from twofold.index.quantized import (
    TINY,
    Floats,
    Integers,
    QuantizedDirections,
    QuantizedVectors,
    Rows,
    round_down,
    round_up,
)

BLOCK = 16_384
"""Rows that are bounded at a time: their intermediate results stay in the processor's cache."""
PRODUCT_BLOCK, SHARED_BLOCK = 2048, 4096
"""Rows that are multiplied at a time with many vectors, and with the directions of several contexts."""
CONE_STEPS = 64
"""Number of steps in which the direction is found that lies in the middle of a group of vectors."""
WIDE = 0.7
"""Distance from the middle, as a share of the longest vector, from which one direction says too little."""
FEW_VECTORS = 8
"""Number of vectors up to which directions are as good as the vectors."""
MOST_DIRECTIONS, OUTSIDE = 32, 0.4
"""Maximum number of directions of a span, and the share of the vectors outside the mean at which it gets no more."""
SAFE = np.float32(1e-6)
"""Share of a length that is subtracted before the squares are, so that float32 cancels nothing out."""


class Bounds:
    """Bounds of the scores of one context."""

    def __init__(self, groups: Floats) -> None:
        """groups (groups, vectors, width): a score is at most the sum of each group's largest dot product."""
        self.groups = groups
        count, vectors, width = groups.shape
        centers, balls = np.empty((count, width)), np.empty((count, 4))
        for group, center, ball in zip(groups, centers, balls, strict=True):
            unit = group / np.float32(max(np.abs(group).max(), TINY))  # squares stay finite
            weights = center_weights(unit @ unit.T, CONE_STEPS)
            ball[:] = measure_ball(group, weights, center)
        self.longest = float(balls[:, 3].sum())
        # What float32 can lose in a dot product of this width, in the softmax over the vectors, and here.
        self.margin = np.float32((width + vectors + 64) * 2.0**-23 * self.longest)
        self._middles = centers
        self.centers = QuantizedDirections.of(centers)
        self.balls = round_up(balls)
        self.balls[:, 0] = round_down(balls[:, 0])

    def loose(self, candidates: QuantizedVectors, start: int, stop: int) -> Floats:
        """Computes the bounds of a block of rows from one direction for each group."""
        block, dots = slice(start, stop), np.empty((len(self.centers.integers), stop - start), np.int32)
        for center, result in zip(self.centers.integers, dots, strict=True):
            dot_products(candidates.integers[block], center, result)
        bounds = np.empty(stop - start, np.float32)
        rows = candidates.steps[block], candidates.errors[block], candidates.norms[block]
        fill_upper_bounds(dots, rows, self.parameters, 0, bounds[None])
        return bounds

    @cached_property
    def parameters(self) -> tuple[NDArray[Any], ...]:
        """Parameters of the balls of this context."""
        return parameters_of([self], [self.centers])

    def tight(self, candidates: QuantizedVectors, rows: Rows) -> Floats:
        """Computes the bounds of some rows from all vectors, or from directions that nearly hold these."""
        bounds, block_bounds = np.empty(len(rows), np.float32), self._by_products if self.by_products else self._by_span
        for start in range(0, len(rows), PRODUCT_BLOCK):
            block = rows[start : start + PRODUCT_BLOCK]
            bounds[start : start + PRODUCT_BLOCK] = block_bounds(candidates, block)
        return bounds

    @cached_property
    def coarse_centers(self) -> QuantizedDirections:
        """Centers of 8 bits."""
        return QuantizedDirections.coarse(self._middles)

    @cached_property
    def wide(self) -> bool:
        """True if the vectors lie so far apart that products with all of them are the better first pass."""
        return bool(self.balls[:, 2].sum() > WIDE * self.longest) and self.by_products

    @cached_property
    def by_products(self) -> bool:
        """True if tight bounds come from products of 8-bit integers with all vectors."""
        groups, vectors, width = self.groups.shape
        return groups * vectors > FEW_VECTORS and integers_pay(width)

    def _by_span(self, candidates: QuantizedVectors, rows: Rows) -> Floats:
        span, errors, norms = self.span, candidates.errors[rows], candidates.norms[rows]
        projections = span.project(candidates, rows)
        bounds: Floats = (self.margin + span.rounding) * norms + (np.float32(self.longest) + span.rounding) * errors
        for coordinates in span.coordinates:
            bounds += (coordinates @ projections).max(0)
        return bounds

    def _by_products(self, candidates: QuantizedVectors, rows: Rows) -> Floats:
        """v = step·p + f, so c·v ≤ step_c·step·q·p + ‖r‖·‖v‖ + (‖c‖ + ‖r‖)·‖f‖."""
        integers, steps, lost = self.rounded
        dots = integer_products(integers, candidates.integers_of(rows).T).reshape(*steps.shape, len(rows))
        bounds, factors = np.empty(len(rows), np.float32), (np.float32(self.longest) + lost, self.margin + lost)
        fill_product_bounds(dots, steps, rows, (candidates.steps, candidates.errors, candidates.norms), factors, bounds)
        return bounds

    @cached_property
    def rounded(self) -> tuple[Integers, Floats, np.float32]:
        """Vectors as 8-bit integers, (vectors of all groups, width), their steps, and what that loses at most."""
        groups, vectors, width = self.groups.shape
        quantized = QuantizedVectors.of(self.groups.reshape(-1, width))
        steps, errors = (values.reshape(groups, vectors) for values in (quantized.steps, quantized.errors))
        return quantized.integers, steps, np.float32(errors.max(1).sum())

    @cached_property
    def span(self) -> Span:
        return Span.of(self.groups.astype(np.float64))


def loose_together(queries: Sequence[Bounds], candidates: QuantizedVectors, bounds: Floats) -> None:
    """Fills in loose bounds of several contexts, (contexts, rows), while every row is read once.

    The directions have 8 bits. Those of 16 would be two matrix products, which cost more than closer bounds save.
    """
    centers = [bounds.coarse_centers for bounds in queries]
    directions = np.concatenate([part.integers for part in centers])
    parameters = parameters_of(queries, centers)
    for start in range(0, len(candidates), SHARED_BLOCK):
        block = slice(start, start + SHARED_BLOCK)
        dots = integer_products(directions, candidates.integers[block].T)
        rows = candidates.steps[block], candidates.errors[block], candidates.norms[block]
        fill_upper_bounds(dots, rows, parameters, start, bounds)


def parameters_of(queries: Sequence[Bounds], centers: Sequence[QuantizedDirections]) -> tuple[NDArray[Any], ...]:
    """Parameters of the balls of several contexts around these centers, as `fill_upper_bounds` reads them."""
    owners = np.repeat(np.arange(len(queries)), [len(bounds.balls) for bounds in queries])
    rounding = np.concatenate([[part.steps, part.errors] for part in centers], 1)
    return owners, rounding, np.concatenate([part.balls for part in queries]), np.array([b.margin for b in queries])


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
        least = np.maximum(np.abs(projections[:-1]) - (errors * (1 + lost) + norms * (lost + SAFE)), 0)
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
