"""Speed of a training, for the lines of the log."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator


class Clock:
    """Measures steps and tokens a second since the last line of the log, evaluations left out."""

    def __init__(self, step: int) -> None:
        self.step, self.tokens, self.began = step, 0, time.monotonic()

    def speeds(self, step: int) -> dict[str, float]:
        """Returns both speeds and begins anew."""
        seconds, steps, tokens = max(time.monotonic() - self.began, 1e-9), step - self.step, self.tokens
        self.step, self.tokens, self.began = step, 0, time.monotonic()
        return {"tokens_per_second": round(tokens / seconds), "steps_per_second": round(steps / seconds, 2)}

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Leaves out the time that passes inside."""
        pause = time.monotonic()
        yield
        self.began += time.monotonic() - pause
