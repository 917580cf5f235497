"""Matrix products, and those of 8-bit integers where the processor has instructions for them: torch has the fastest."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twofold.index.quantized import LARGEST, Floats, Integers
from twofold.precision import loaded_torch

TRIES, PAYS = 5, 2.0
"""Number of timings of integer and float products, and the speed-up from which integers are used."""


def integer_products(first: Integers, second: Integers) -> NDArray[np.int32]:
    """Multiplies matrices (rows, width) and (width, columns) of int8 from −127 to 127: (rows, columns)."""
    torch = loaded_torch()
    products: NDArray[np.int32] = torch._int_mm(torch.from_numpy(first), torch.from_numpy(second)).numpy()
    return products


def float_products(first: Floats, second: Floats) -> Floats:
    """Multiplies matrices (rows, width) and (width, columns), with torch's threads where torch is there."""
    torch = loaded_torch()
    if torch is None:
        return first @ second
    products: Floats = torch.mm(torch.from_numpy(first), torch.from_numpy(second)).numpy()
    return products


def integers_pay(width: int) -> bool:
    """Returns True if products of 8-bit integers are right here, and enough faster than those of floats."""
    return loaded_torch() is not None and tried(width)


@cache
def tried(width: int) -> bool:
    """Tries, once in a process, whether products of 8-bit integers pay."""
    draw = np.random.default_rng(0)
    vectors, directions = (draw.integers(-LARGEST, LARGEST + 1, (rows, width), np.int8) for rows in (4096, 64))
    wide = vectors.astype(np.float32), np.ascontiguousarray(directions.T, np.float32)
    right = float_products(*wide)
    if not hasattr(loaded_torch(), "_int_mm") or (right != integer_products(directions, vectors.T).T).any():
        return False
    directions = np.ascontiguousarray(directions.T)
    if (integer_products(vectors, directions) != right).any():
        return False
    quick = min(_seconds(integer_products, vectors, directions) for _ in range(TRIES))
    return PAYS * quick < min(_seconds(float_products, *wide) for _ in range(TRIES))


def _seconds(product: Callable[[Any, Any], object], first: NDArray[Any], second: NDArray[Any]) -> float:
    start = time.perf_counter()
    product(first, second)
    return time.perf_counter() - start
