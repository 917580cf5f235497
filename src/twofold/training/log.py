"""Log of a training: one JSON object a line, appended, cut back on resume, and passed to callbacks."""

from __future__ import annotations

import json
import math
import os
import warnings
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twofold import storage
from twofold.errors import TwofoldError

Line = dict[str, Any]
Callback = Callable[[Line], object]
"""Function that is called with every line of the log."""
Written = tuple[int, int]
"""Number of bytes, and their checksum."""
FILE = "log.jsonl"
VALIDATION, FINAL = "dev_", "final_"
"""Prefixes of metrics in the log: those of an evaluation, and those of the best model after the last step."""


class Log:
    """Appends lines to a file and passes each to the callbacks. A resumed training first cuts the file back to what its
    checkpoint knows, so that each step is logged once."""

    def __init__(self, path: Path, callbacks: Iterable[Callback] = (), written: Written | None = None) -> None:
        """written: the part of the log that a checkpoint knows, which a resumed training keeps"""
        self.path, self.callbacks = path, list(callbacks)
        kept = _kept(path, written) if written else b""
        storage.write_bytes(path, kept)
        self._file = path.open("ab")
        self.written: Written = (len(kept), zlib.crc32(kept))

    def close(self) -> None:
        self._file.close()

    def write(self, step: int, values: Line) -> None:
        """Appends one line. The operating system has it when this returns."""
        content = {"step": step, **values}
        line = (json.dumps(content, ensure_ascii=False) + "\n").encode()
        with storage.writing(self.path):
            self._file.write(line)
            self._file.flush()
        self.written = (self.written[0] + len(line), zlib.crc32(line, self.written[1]))
        for callback in self.callbacks:
            callback(dict(content))

    def sync(self) -> None:
        """Waits until all lines are on the disk."""
        os.fsync(self._file.fileno())


def _kept(path: Path, written: Written) -> bytes:
    """Returns the part of the log that a checkpoint knows."""
    size, checksum = written
    if not path.exists():
        warnings.warn(f"{path}: missing; a new log begins after the last checkpoint", stacklevel=2)
        return b""
    content = path.read_bytes()[:size]
    if len(content) != size or zlib.crc32(content) != checksum:
        raise TwofoldError(
            f"{path}: damaged or changed, not what the training wrote; put it back, or remove it to go on without it"
        )
    return content


class TensorBoard:
    """Callback that writes every number of the log for TensorBoard."""

    def __init__(self, folder: Path, after_step: int) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise TwofoldError("train.tensorboard needs `pip install 'twofold[tensorboard]'`") from None
        self._writer: Any = SummaryWriter(str(folder), purge_step=after_step + 1)

    def __call__(self, line: Line) -> None:
        for name, value in line.items():
            if name != "step" and isinstance(value, (int, float)):
                self._writer.add_scalar(name, value, line["step"])

    def close(self) -> None:
        self._writer.close()


@dataclass(frozen=True)
class Evaluation:
    """Metrics of the validation rows after a step, with the training values logged at that step."""

    step: int
    metrics: dict[str, float]
    training: Line


@dataclass
class History:
    """Content of a log, sorted by what each line is about."""

    about: Line = field(default_factory=dict)
    training: list[Line] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    final: dict[str, float] = field(default_factory=dict)
    """Metrics of the best model, measured after the last step."""

    def add(self, line: Line) -> None:
        """Takes in one line."""
        step, metrics = line["step"], named(line, VALIDATION)
        if metrics:
            last = self.training[-1] if self.training else {}
            self.evaluations.append(Evaluation(step, metrics, last if last.get("step") == step else {}))
        elif "learning_rate" in line:
            self.training.append(line)
        elif not step:
            self.about.update(line)
        self.final.update(named(line, FINAL))

    @classmethod
    def read(cls, path: Path) -> History:
        """Reads a log file; lines that a kill cut short are left out."""
        history = cls()
        if path.exists():
            for text in path.read_text(encoding="utf-8").splitlines():
                try:
                    line = json.loads(text)
                except ValueError:
                    continue
                if isinstance(line, dict) and isinstance(line.get("step"), int):
                    history.add(line)
        return history

    def best(self, metric: str, higher_is_better: bool) -> Evaluation | None:
        """Returns the first of the best evaluations by a metric."""
        sign = 1 if higher_is_better else -1
        judged = [judged for judged in self.evaluations if not math.isnan(judged.metrics.get(metric, math.nan))]
        return max(judged, key=lambda evaluation: sign * evaluation.metrics[metric], default=None)


def named(line: Line, prefix: str) -> dict[str, float]:
    """Metrics in a line whose names begin with the prefix, without it."""
    return {name.removeprefix(prefix): value for name, value in line.items() if name.startswith(prefix)}
