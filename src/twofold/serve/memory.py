"""Memory that large requests needed goes back to the system."""

from __future__ import annotations

import asyncio
import ctypes
import ctypes.util
from functools import cache
from typing import Any

LARGE = 1 << 20
"""Bytes of a request or an answer from which memory is given back afterwards."""
WAIT = 1.0
"""Seconds between an answer and the giving back, in which others may come."""


class Memory:
    """Gives freed memory back, at most once in `WAIT` seconds."""

    def __init__(self) -> None:
        self._planned = False

    def after(self, size: int) -> None:
        """Plans to give memory back if a request or an answer of so many bytes was large."""
        if size >= LARGE and not self._planned and _trim() is not None:
            self._planned = True
            asyncio.get_running_loop().call_later(WAIT, self._give_back)

    def _give_back(self) -> None:
        self._planned = False
        asyncio.get_running_loop().run_in_executor(None, give_back)


def give_back() -> None:
    """Gives the memory back that the allocator keeps."""
    if (trim := _trim()) is not None:
        trim(0)


@cache
def _trim() -> Any:
    """glibc's function; None with other libraries, which give memory back by themselves or not at all."""
    name = ctypes.util.find_library("c")
    return getattr(ctypes.CDLL(name), "malloc_trim", None) if name else None
