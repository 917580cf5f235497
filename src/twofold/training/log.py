"""What happened at each step: `log.jsonl`, one object a line, and TensorBoard if wanted."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from twofold import storage
from twofold.errors import TwofoldError


class Log:
    """Appends lines; a resumed training cuts the log back first, so that each step stands once."""

    def __init__(self, path: Path, after_step: int, tensorboard: Path | None) -> None:
        self.path = path
        kept = [line for line in _whole_lines(path) if _step(line, path) <= after_step] if after_step else []
        storage.write_bytes(path, b"".join(kept))
        self._file = path.open("ab")
        self._board = _open_board(tensorboard, after_step) if tensorboard else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        if self._board:
            self._board.close()

    def write(self, step: int, values: dict[str, Any]) -> None:
        """One line, which is with the operating system when this returns."""
        with storage.writing(self.path):
            self._file.write((json.dumps({"step": step, **values}, ensure_ascii=False) + "\n").encode())
            self._file.flush()
        if self._board:
            for name, value in values.items():
                if isinstance(value, (int, float)):
                    self._board.add_scalar(name, value, step)

    def sync(self) -> None:
        """All lines are on the disk when this returns."""
        os.fsync(self._file.fileno())


def _whole_lines(path: Path) -> list[bytes]:
    """The lines of a log whose last one may have been cut by a kill."""
    if not path.exists():
        return []
    return [line for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]


def _step(line: bytes, path: Path) -> int:
    try:
        return int(json.loads(line)["step"])
    except (ValueError, TypeError, KeyError):
        raise TwofoldError(f"{path}: a line that no training wrote; remove it: {line[:60]!r}") from None


def _open_board(folder: Path, after_step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise TwofoldError("train.tensorboard needs `pip install 'twofold[tensorboard]'`") from None
    return SummaryWriter(str(folder), purge_step=after_step + 1)
