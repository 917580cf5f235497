"""How high a candidate can score, proven from 8-bit integers: the first passes of an exact search.

A score is at most the sum, over groups of vectors v_1..v_m, of the largest c·v_i (`RankingHead.ceiling`). Stored is
c = step·q + r with q of 8-bit integers and ‖r‖ known, so dot products of integers and Cauchy–Schwarz bound each c·v_i:

    one direction u      c·v ≤ (v·u)(c·u) + ‖v − (v·u)u‖·√(‖c‖² − (c·u)²)       quick; good where vectors lie close
    several directions   the same with their span in the place of u             for what is left

Rounding is inside the bounds: of the candidate (‖r‖), of the directions, and of float32 arithmetic (`margin`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from twofold.index.kernels import Integers, add_ceiling, products, products_of

Floats = NDArray[np.float32]
Rows = NDArray[np.int64]
BLOCK = 16_384
"""Rows that are bounded at a time: what is kept of them stays in the processor's cache."""
LARGEST = 127
MOST, CLOSE = 32, 0.4
"""How many directions span the vectors: as few as leave outside this share of what their mean leaves, and no more."""
TINY = 1e-30
SAFE = np.float32(1e-6)
"""What is taken off a length, as a share of it, before its square is: float32 must not cancel out what is left."""


@dataclass(frozen=True)
class Small:
    """Candidates as 8-bit integers, with what is lost."""

    integers: Integers
    """(rows, width) int8"""
    steps: Floats
    """(rows,): what an integer is worth."""
    errors: Floats
    """(rows,): ‖c − step·q‖, rounded up."""
    norms: Floats
    """(rows,): ‖c‖, rounded up."""

    @classmethod
    def of(cls, vectors: Floats) -> Small:
        """vectors (rows, width)"""
        steps = np.maximum(np.abs(vectors).max(1), np.finfo(np.float32).tiny) / np.float32(LARGEST)
        integers = np.rint(vectors / steps[:, None]).astype(np.int8)
        lost = np.linalg.norm(vectors - integers * steps[:, None].astype(np.float64), axis=1)
        norms = np.linalg.norm(vectors.astype(np.float64), axis=1)
        return cls(integers, steps, _up(lost), _up(norms))

    def __len__(self) -> int:
        return len(self.integers)


@dataclass(frozen=True)
class Heads:
    """Candidates in the few directions that hold most of them, as 8-bit integers: for guesses, not for proofs."""

    integers: Integers
    """(rows, directions) int8"""
    steps: Floats
    """(rows,)"""

    @classmethod
    def of(cls, vectors: Floats, directions: Floats) -> Heads:
        """vectors (rows, width), directions (directions, width)"""
        small = Small.of(vectors @ directions.T)
        return cls(small.integers, small.steps)


def main_directions(vectors: Floats) -> Floats:
    """A third of the width, orthonormal, that holds as much as possible of these vectors: (directions, width)."""
    width = vectors.shape[1]
    count = min(width, 32 * max(1, round(width / 96)))
    vectors = vectors / max(float(np.abs(vectors).max()), TINY)  # squares stay finite
    _, turned = np.linalg.eigh(vectors.T @ vectors)
    return np.ascontiguousarray(turned[:, ::-1].T[:count], np.float32)


@dataclass(frozen=True)
class Directions:
    """Unit vectors as 16-bit integers, with what is lost."""

    integers: Integers
    """(directions, width) int16"""
    worth: Floats
    """(directions, 2): what an integer is worth, and ‖u − step·q‖, rounded up."""

    @classmethod
    def of(cls, vectors: NDArray[np.float64]) -> Directions:
        # No sum of products leaves 32 bits.
        most = min(2**15 - 1, (2**31 - 1) // (LARGEST * vectors.shape[1]))
        steps = np.maximum(np.abs(vectors).max(1), np.finfo(np.float32).tiny) / most
        steps = steps.astype(np.float32).astype(np.float64)
        integers = np.clip(np.rint(vectors / steps[:, None]), -most, most).astype(np.int16)
        lost = np.linalg.norm(vectors - integers * steps[:, None], axis=1)
        return cls(integers, np.stack([steps.astype(np.float32), _up(lost)], 1))


class Bounds:
    """The bounds of one context's scores."""

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
        none = sizes <= 1e-6 * longest  # vectors that cancel out: any direction will do
        centers[none], sizes[none] = self.vectors[none, 0], lengths[none, 0]
        centers /= np.maximum(sizes, TINY)[:, None]
        shares = np.einsum("gvw,gw->gv", self.vectors, centers)
        away = self.vectors - shares[..., None] * centers[:, None]
        across = np.sqrt(np.einsum("gvw,gvw->gv", away, away))
        self.centers = Directions.of(centers)
        self.balls = np.stack([_down(shares.min(1)), _up(shares.max(1)), _up(across.max(1))], 1)

    def of(self, small: Small, start: int, stop: int) -> Floats:
        """The bounds of a block of rows, from one direction for each group."""
        steps, errors, norms = small.steps[start:stop], small.errors[start:stop], small.norms[start:stop]
        total = self.margin * norms
        dots = np.empty(stop - start, np.int32)
        for integers, worth, ball in zip(self.centers.integers, self.centers.worth, self.balls, strict=True):
            products(small.integers[start:stop], integers, dots)
            add_ceiling(dots, steps, errors, norms, worth, ball, total)
        return total

    def closer(self, small: Small, rows: Rows) -> Floats:
        """Tighter bounds of some rows, from several directions."""
        span = self.span
        step, lost = span.directions.worth[:, :1], span.directions.worth[:, 1:]
        total = np.empty(len(rows), np.float32)
        for start in range(0, len(rows), BLOCK):
            some = rows[start : start + BLOCK]
            dots = np.empty((len(step), len(some)), np.int32)
            products_of(small.integers, some, span.directions.integers, dots)
            errors, norms = small.errors[some], small.norms[some]
            along = np.empty((len(step) + 1, len(some)), np.float32)
            np.multiply(dots, small.steps[some] * step, out=along[:-1])
            near = np.maximum(np.abs(along[:-1]) - (errors + norms * (lost + SAFE)), 0)
            # The last row is what lies across: it meets the length of each vector outside the span.
            along[-1] = np.sqrt(np.maximum(norms * norms - (near * near).sum(0), 0))
            bound = (self.margin + span.rounding) * norms + np.float32(self.longest) * errors
            for shares in span.shares:
                bound += (shares @ along).max(0)
            total[start : start + BLOCK] = bound
        return total

    @property
    def sizes(self) -> tuple[int, int]:
        """How many vectors there are in all groups, and how many directions nearly hold them."""
        return self.vectors.shape[0] * self.vectors.shape[1], len(self.span.directions.worth)

    @cached_property
    def span(self) -> Span:
        return Span.of(self.vectors)


@dataclass(frozen=True)
class Span:
    """Orthonormal directions that nearly hold all vectors, and each vector in them."""

    directions: Directions
    shares: Floats
    """(groups, vectors, directions + 1): each vector in them, and last its length outside."""
    rounding: np.float32
    """What rounding the directions may add to a bound, for a candidate of length one."""

    @classmethod
    def of(cls, vectors: NDArray[np.float64]) -> Span:
        flat = vectors.reshape(-1, vectors.shape[2])
        basis = _spanning(np.concatenate([flat.mean(0, keepdims=True), flat]))
        shares = flat @ basis.T
        away = flat - shares @ basis
        outside = np.sqrt(np.einsum("vw,vw->v", away, away))
        directions = Directions.of(basis)
        rounding = (np.abs(shares) @ directions.worth[:, 1]).reshape(vectors.shape[:2]).max(1).sum()
        whole = np.concatenate([shares.astype(np.float32), _up(outside)[:, None]], 1)
        return cls(directions, whole.reshape(*vectors.shape[:2], -1), np.float32(rounding))


def _spanning(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Orthonormal directions: that of the first row, then time and again of whichever row stands furthest outside.

    This is Cholesky's method with pivots, which needs the rows' dot products only.
    """
    products = rows @ rows.T
    left = products.diagonal().copy()  # the squared length of each row outside
    whole = left.max()
    shares = np.zeros((len(rows), min(MOST, *rows.shape)))
    pivots: list[int] = []
    enough = 1e-14 * whole
    while len(pivots) < shares.shape[1]:
        count = len(pivots)
        pivot = int(left.argmax()) if count or left[0] <= 1e-12 * whole else 0
        if left[pivot] <= enough:
            break
        shares[:, count] = (products[:, pivot] - shares[:, :count] @ shares[pivot, :count]) / np.sqrt(left[pivot])
        left = np.maximum(left - shares[:, count] ** 2, 0)
        left[[*pivots, pivot]] = 0
        pivots.append(pivot)
        if count == 0:
            enough = max(enough, CLOSE**2 * left.max())
    if not pivots:
        return np.eye(1, rows.shape[1])
    return np.linalg.solve(shares[pivots, : len(pivots)], rows[pivots]).astype(np.float64)


def _up(values: NDArray[np.float64]) -> Floats:
    return np.nextafter(values.astype(np.float32), np.float32(np.inf))


def _down(values: NDArray[np.float64]) -> Floats:
    return np.nextafter(values.astype(np.float32), np.float32(-np.inf))
