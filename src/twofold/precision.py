"""Precision that this machine computes fast, by the processor's flags and a timed product; and its threads."""

from __future__ import annotations

import os
import platform
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast, get_args

import numpy as np

from twofold.errors import TwofoldError, did_you_mean

Precision = Literal["auto", "float32", "bfloat16"]
VARIABLE = "TWOFOLD_PRECISION"
"""Environment variable that decides what `auto` means."""
NATIVE = ("avx512_bf16", "amx_bf16", "bf16")
"""Flags of processors that compute matrix products of bfloat16: AVX-512 BF16, AMX, and Arm's extension."""
FLAGS = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "avx512_bf16", "amx_bf16", "amx_int8", "bf16")
"""Flags that change the time of a matrix product, for records."""
SIZE, TRIES = 384, 5


def settled(precision: str, device: str = "cpu") -> Literal["float32", "bfloat16"]:
    """Returns the precision that `auto` stands for on a device; `$TWOFOLD_PRECISION` may decide it."""
    if precision == "auto":
        precision = os.environ.get(VARIABLE) or "auto"
    if precision not in get_args(Precision):
        raise TwofoldError(f"precision: {did_you_mean(precision, get_args(Precision))}")
    if precision == "auto":
        return "bfloat16" if is_fast(device) else "float32"
    return "bfloat16" if precision == "bfloat16" else "float32"


def is_fast(device: str = "cpu") -> bool:
    """Returns True if a device computes bfloat16 natively and faster than float32."""
    if device == "cuda":
        import torch

        return torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
    return device == "cpu" and _is_fast_here()


@cache
def _is_fast_here() -> bool:
    return any(flag in processor_flags() for flag in NATIVE) and _product_is_faster()


def loaded_torch() -> Any:
    """Returns torch if this process has imported it, else None: a search works without it."""
    return sys.modules.get("torch")


def thread_count() -> int:
    """Returns the number of threads to compute with: torch's, or without torch that of the environment."""
    torch = loaded_torch()
    return (
        cast(int, torch.get_num_threads()) if torch else int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1)
    )


@cache
def processor_flags() -> tuple[str, ...]:
    """Returns the flags of this processor that change the time of a matrix product."""
    path = Path("/proc/cpuinfo")
    if not path.exists():
        return (platform.machine(),)
    words = set(path.read_text(encoding="utf-8", errors="replace").split())
    return tuple(flag for flag in FLAGS if flag in words)


def _product_is_faster() -> bool:
    """Times one product of each precision by torch. Flags do not tell whether a library uses them."""
    import torch

    draw = torch.Generator().manual_seed(0)
    wide = torch.randn(SIZE, SIZE, generator=draw)
    narrow = wide.bfloat16()
    with torch.no_grad():
        return _seconds(lambda: narrow @ narrow) < _seconds(lambda: wide @ wide)


def _seconds(product: Callable[[], object]) -> float:
    """Returns the shortest time of several tries; the first warms up."""
    times = []
    for _ in range(TRIES + 1):
        start = time.perf_counter()
        product()
        times.append(time.perf_counter() - start)
    return float(np.min(times[1:]))
