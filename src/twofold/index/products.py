"""Matrix products of 8-bit integers, where the processor has instructions for them."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from twofold.index.quantized import LARGEST

TRIES, PAYS = 5, 2.0
"""Number of timings of integer and float products, and the speed-up from which integers are used."""


def integer_products(first: Tensor, second: Tensor) -> Tensor:
    """Multiplies matrices (rows, width) and (width, columns) of int8 from −127 to 127: (rows, columns) int32."""
    return torch._int_mm(first, second)


@cache
def integers_pay(width: int) -> bool:
    """Returns True if products of 8-bit integers are right here, and enough faster than those of floats; tried once."""
    draw = torch.Generator().manual_seed(0)
    vectors, directions = (
        torch.randint(-LARGEST, LARGEST + 1, (rows, width), dtype=torch.int8, generator=draw) for rows in (4096, 64)
    )
    wide = vectors.float(), directions.float().T.contiguous()
    right = wide[0] @ wide[1]
    if not hasattr(torch, "_int_mm") or (right != integer_products(directions, vectors.T).T).any():
        return False
    directions = directions.T.contiguous()
    if (integer_products(vectors, directions) != right).any():
        return False
    quick = min(_seconds(integer_products, vectors, directions) for _ in range(TRIES))
    return PAYS * quick < min(_seconds(torch.mm, *wide) for _ in range(TRIES))


def _seconds(product: Callable[[Tensor, Tensor], Tensor], first: Tensor, second: Tensor) -> float:
    start = time.perf_counter()
    product(first, second)
    return time.perf_counter() - start
