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
    """Compile on first use, and keep that for the next process where numba finds a folder that it can write to."""

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
def products(small: Integers, direction: Integers, out: Integers) -> None:
    """small (rows, width) int8, direction (width,) int16, out (rows,) int32."""
    for row in range(len(small)):
        total = np.int32(0)
        for place in range(small.shape[1]):
            total += np.int32(small[row, place]) * np.int32(direction[place])
        out[row] = total


@compiled()
def products_of(small: Integers, rows: Integers, directions: Integers, out: Integers) -> None:
    """Some rows with several directions: directions (directions, width), out (directions, rows)."""
    for number in range(len(rows)):
        row = rows[number]
        for one in range(len(directions)):
            total = np.int32(0)
            for place in range(small.shape[1]):
                total += np.int32(small[row, place]) * np.int32(directions[one, place])
            out[one, number] = total


# Sums may be taken in another order: what that changes is inside the bounds' margin.
@compiled(fastmath={"reassoc", "contract", "nsz", "arcp", "nnan"})
def add_ceiling(dots: Integers, steps: Any, errors: Any, norms: Any, center: Any, ball: Any, total: Any) -> None:
    """Add to `total` how large the dot product with any vector of a ball can be.

    center: what an integer of the direction is worth, and its error. ball: the least and the largest share of the
    vectors along the direction, and how far they stand from it.
    """
    step, lost = center[0], center[1]
    least, most, apart = ball[0], ball[1], ball[2]
    for row in range(len(dots)):
        norm = norms[row]
        along = np.float32(dots[row]) * (steps[row] * step)
        slack = errors[row] + norm * (lost + np.float32(1e-6))  # or the squares below could cancel out in float32
        low, high = along - slack, along + slack
        near = max(abs(along) - slack, np.float32(0.0))
        share = max(max(least * low, least * high), max(most * low, most * high))
        total[row] += share + apart * math.sqrt(max(norm * norm - near * near, np.float32(0.0)))
