"""Parts of every way of fetching: a source that cannot be had, and progress by the size of what has arrived."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

from twofold.errors import TwofoldError
from twofold.progress import bar

SECONDS = 0.2
"""Time between two looks at the size of what has arrived."""


class UnreachableError(TwofoldError):
    """Source that cannot be had from here; another one may be."""


@contextlib.contextmanager
def arriving(folder: Path, title: str, size: int, show: bool) -> Iterator[None]:
    """Shows how many MB have arrived in a folder, out of `size` bytes, while the block runs."""
    done = threading.Event()
    with bar(f"{title}, MB", size / 1e6, show=show) as report:

        def look() -> None:
            while not done.wait(SECONDS):
                report(min(bytes_in(folder), size) / 1e6)

        watcher = threading.Thread(target=look, daemon=True)
        watcher.start()
        try:
            yield
            report(size / 1e6)
        finally:
            done.set()
            watcher.join()


def bytes_in(folder: Path) -> int:
    """Returns the size of all files in a folder, some of which may vanish meanwhile."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            total += path.lstat().st_size if path.is_file() else 0
    return total
