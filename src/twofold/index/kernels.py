"""Loops over all candidates, compiled by numba."""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

Kernel = TypeVar("Kernel", bound=Callable[..., Any])
TINIEST = float(np.finfo(np.float32).tiny)


def compiled(**options: Any) -> Callable[[Kernel], Kernel]:
    """Compiles on first use, and caches the result for the next process if numba finds a folder to write to."""

    def compile_(function: Kernel) -> Kernel:
        @functools.cache
        def versions() -> tuple[Any, Any]:
            from numba import njit  # takes as long as many a search

            uncached: Any = njit(nogil=True, **options)(function)
            try:
                return njit(nogil=True, cache=True, **options)(function), uncached
            except RuntimeError:  # no folder can be written to
                return uncached, uncached

        @functools.wraps(function)
        def kernel(*arguments: Any) -> Any:
            cached, uncached = versions()
            try:
                return cached(*arguments)
            except OSError:  # the folder is full, or cannot be written to any more
                return uncached(*arguments)

        return cast(Kernel, kernel)

    return compile_


def are_loaded() -> bool:
    """Returns True if kernels can be called at once, False if numba has to be imported first."""
    return "numba" in sys.modules


@compiled()
def dot_products(candidates: NDArray[Any], direction: NDArray[Any], out: NDArray[Any]) -> None:
    """Computes dot products: candidates (rows, width) int8, direction (width,) int16, out (rows,) int32."""
    for row in range(len(candidates)):
        total = np.int32(0)
        for place in range(candidates.shape[1]):
            total += np.int32(candidates[row, place]) * np.int32(direction[place])
        out[row] = total


@compiled()
def dot_products_of_rows(
    candidates: NDArray[Any], rows: NDArray[Any], directions: NDArray[Any], out: NDArray[Any]
) -> None:
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
def fill_upper_bounds(dots: Any, block: Any, parameters: Any, start: int, out: Any) -> None:
    """Fills in the bounds of a block of rows: for each context, the sums over its balls of the largest dot products.

    dots (balls, rows): of integers, with the direction of each ball. block: steps, errors and norms of the rows.
    parameters: the context of each ball; (2, balls), steps and errors of their centers; (balls, 4), the least and the
    largest share of the vectors along the direction, and their largest distance from it; and the contexts' margins.
    out (contexts, all rows): filled from `start` on.
    """
    steps, errors, norms = block
    owners, centers, balls, margins = parameters
    rows = dots.shape[1]
    for context in range(len(margins)):
        bounds = out[context, start : start + rows]
        for row in range(rows):
            bounds[row] = margins[context] * norms[row]
    for number in range(len(dots)):
        products, bounds = dots[number], out[owners[number], start : start + rows]
        center_step, center_error = centers[0, number], centers[1, number]
        least, most, distance = balls[number, 0], balls[number, 1], balls[number, 2]
        for row in range(rows):
            norm = norms[row]
            along = np.float32(products[row]) * (steps[row] * center_step)
            # c·u = ĉ·û + r·u + ĉ·(u − û), and ‖ĉ‖ ≤ ‖c‖ + ‖r‖.
            # Without the millionth, the squares below could cancel out in float32.
            slack = errors[row] * (np.float32(1.0) + center_error) + norm * (center_error + np.float32(1e-6))
            low, high = along - slack, along + slack
            near = max(abs(along) - slack, np.float32(0.0))
            share = max(max(least * low, least * high), max(most * low, most * high))
            bounds[row] += share + distance * math.sqrt(max(norm * norm - near * near, np.float32(0.0)))


@compiled(fastmath={"reassoc", "contract", "nsz", "nnan"})
def center_weights(products: Any, steps: int) -> Any:
    """Weights of vectors whose sum points to the middle of the narrowest cone around them, from their dot products.

    The cone narrows step by step: the sum moves towards the vector furthest from it (Badoiu and Clarkson, 2003).
    """
    count = len(products)
    weights, along = np.ones(count), np.zeros(count)
    for number in range(count):
        for other in range(count):
            along[number] += products[number, other]
    for step in range(steps):
        square, worst, furthest = 0.0, -1.0, 0
        for number in range(count):
            square += weights[number] * along[number]
        if square <= 1e-6 * products[0, 0] * count * count:
            break
        for number in range(count):
            distance = products[number, number] - along[number] * along[number] / square
            if distance > worst:
                worst, furthest = distance, number
        if worst <= 1e-6 * products[furthest, furthest]:
            break
        share = math.sqrt(square / products[furthest, furthest]) * 0.5 / (step + 2)
        weights[furthest] += share
        for number in range(count):
            along[number] += share * products[number, furthest]
    return weights


@compiled(fastmath={"reassoc", "contract", "nsz", "arcp", "nnan"})
def measure_ball(vectors: Any, weights: Any, center: Any) -> Any:
    """Measures how vectors (vectors, width) lie around the direction of their weighted sum.

    center: gets that unit direction, (width,) float64. Returns the least and the largest share of the vectors along it,
    their largest distance from it, and the length of the longest.
    """
    center[:] = 0.0
    longest, first = 0.0, 0.0
    for number in range(len(vectors)):
        square = 0.0
        for place in range(len(center)):
            value = np.float64(vectors[number, place])
            center[place] += weights[number] * value
            square += value * value
        first = square if number == 0 else first
        longest = max(longest, square)
    square = 0.0
    for place in range(len(center)):
        square += center[place] * center[place]
    if square <= 1e-12 * longest:  # the vectors cancel out: any direction will do
        center[:] = vectors[0]
        square = first
    center *= 1.0 / max(math.sqrt(square), 1e-30)
    least, most, furthest = np.inf, -np.inf, 0.0
    for number in range(len(vectors)):
        along, square = 0.0, 0.0
        for place in range(len(center)):
            along += np.float64(vectors[number, place]) * center[place]
        for place in range(len(center)):
            across = np.float64(vectors[number, place]) - along * center[place]
            square += across * across
        least, most, furthest = min(least, along), max(most, along), max(furthest, square)
    return least, most, math.sqrt(furthest), math.sqrt(longest)


@compiled(fastmath={"reassoc", "contract", "nsz", "nnan"})
def quantize(vectors: Any, largest: Any, integers: Any, steps: Any, errors: Any, norms: Any) -> None:
    """Rounds vectors (rows, width) to integers times a step, (rows,) float32, so that the longest number is `largest`.

    errors and norms: get the lengths of what is lost, and of the vectors, (rows,) float64.
    """
    for row in range(len(vectors)):
        longest = np.abs(vectors[row, 0])
        for place in range(1, vectors.shape[1]):
            longest = max(longest, np.abs(vectors[row, place]))
        step = np.float32(max(np.float64(longest), TINIEST) / largest)
        steps[row] = step
        error, norm = 0.0, 0.0
        for place in range(vectors.shape[1]):
            value = np.float64(vectors[row, place])
            rounded = min(max(np.rint(value / np.float64(step)), -largest), largest)
            integers[row, place] = rounded
            error += (value - rounded * np.float64(step)) * (value - rounded * np.float64(step))
            norm += value * value
        errors[row], norms[row] = math.sqrt(error), math.sqrt(norm)


@compiled(fastmath={"contract", "nsz"})
def fill_product_bounds(dots: Any, steps: Any, rows: Any, block: Any, factors: Any, out: Any) -> None:
    """Fills in bounds from the largest product of each group.

    dots (groups, vectors, rows): of integers, each times its vector's step, (groups, vectors), and its row's. block:
    steps, errors and norms of all rows. factors: what a bound gains for each unit of a row's error, and of its norm.
    """
    largest = np.empty(len(rows), np.float32)
    scales, errors, norms = block
    for number in range(len(rows)):
        row = rows[number]
        out[number] = factors[0] * errors[row] + factors[1] * norms[row]
    for group in range(len(dots)):
        largest[:] = -np.inf
        for number in range(dots.shape[1]):
            step, products = steps[group, number], dots[group, number]
            for place in range(len(rows)):
                largest[place] = max(largest[place], step * np.float32(products[place]))
        for place in range(len(rows)):
            out[place] += scales[rows[place]] * largest[place]
