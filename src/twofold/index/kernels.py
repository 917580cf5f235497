"""Loops over all candidates, compiled by numba: dot products of 8-bit integers, and bounds from them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numba import njit
from numpy.typing import NDArray

Integers = NDArray[Any]
Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def compiled(**options: Any) -> Callable[[Kernel], Kernel]:
    """Compile on first use, and cache that for the next process where numba finds a folder that it can write to."""

    def compile_(function: Kernel) -> Kernel:
        try:
            cached: Any = njit(nogil=True, cache=True, **options)(function)
        except RuntimeError:  # no folder can be written to
            plain: Kernel = njit(nogil=True, **options)(function)
            return plain
        uncached: Any = njit(nogil=True, **options)(function)

        @functools.wraps(function)
        def kernel(*arguments: Any) -> Any:
            try:
                return cached(*arguments)
            except OSError:  # the folder is full, or cannot be written to any more
                return uncached(*arguments)

        return cast(Kernel, kernel)

    return compile_


@compiled()
def dot_products(candidates: Integers, direction: Integers, out: Integers) -> None:
    """candidates (rows, width) int8, direction (width,) int16, out (rows,) int32."""
    for row in range(len(candidates)):
        total = np.int32(0)
        for place in range(candidates.shape[1]):
            total += np.int32(candidates[row, place]) * np.int32(direction[place])
        out[row] = total


@compiled()
def dot_products_of_rows(candidates: Integers, rows: Integers, directions: Integers, out: Integers) -> None:
    """The same of some rows with several directions: directions (directions, width), out (directions, rows)."""
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
    dots: Integers, steps: Any, errors: Any, norms: Any, center_step: Any, center_error: Any, ball: Any, bounds: Any
) -> None:
    """Add to `bounds` how large the dot product with any vector of a ball can be.

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
