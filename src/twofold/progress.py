"""Progress bars on standard error; occasional plain lines where there is no terminal."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

Report = Callable[..., None]
"""Progress report: called with the amount that is done and with named values to show beside it."""
SECONDS_BETWEEN_LINES = 30.0


class Once:
    """Line on standard error that is printed at most once, before work that takes some seconds."""

    def __init__(self, line: str) -> None:
        self.line, self._said = line, False

    def __call__(self) -> None:
        if not self._said:
            print(self.line, file=sys.stderr, flush=True)
        self._said = True


@contextlib.contextmanager
def bar(title: str, total: float | None, done: float = 0.0, show: bool = True) -> Iterator[Report]:
    """Shows a progress bar from `done` to `total`; without a total it counts."""
    if not show:
        yield lambda done, **beside: None
    elif sys.stderr.isatty():
        with _rich_bar(title, total, done) as report:
            yield report
    else:
        yield _line_by_line(title, total)


@contextlib.contextmanager
def _rich_bar(title: str, total: float | None, done: float) -> Iterator[Report]:
    from rich import progress as rich
    from rich.console import Console

    columns = (rich.TextColumn(title), rich.BarColumn(), rich.MofNCompleteColumn())
    times = (rich.TimeElapsedColumn(), rich.TimeRemainingColumn())
    beside = rich.TextColumn("{task.fields[beside]}")
    with rich.Progress(*columns, beside, *times, console=Console(stderr=True)) as progress:
        task = progress.add_task(title, total=total, completed=int(done), beside="")

        def report(done: float, **beside: object) -> None:
            # values beside the bar stay until they are replaced
            news: dict[str, Any] = {"beside": _beside(beside)} if beside else {}
            progress.update(task, completed=done, **news)

        yield report


def _line_by_line(title: str, total: float | None) -> Report:
    last, shown = time.monotonic(), ""

    def report(done: float, **beside: object) -> None:
        nonlocal last, shown
        shown = _beside(beside) or shown
        if time.monotonic() - last >= SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            of = f" of {total:,.0f}" if total else ""
            print(f"{title}: {done:,.0f}{of} {shown}".rstrip(), file=sys.stderr, flush=True)

    return report


def _beside(values: dict[str, object]) -> str:
    return " ".join(f"{name} {value}" for name, value in values.items())
