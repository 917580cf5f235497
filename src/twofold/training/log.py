"""What happened at each step: `log.jsonl`, one object a line, and TensorBoard if wanted."""

from __future__ import annotations

import json
import os
import warnings
import zlib
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from twofold import storage
from twofold.errors import TwofoldError

Written = tuple[int, int]
"""A number of bytes, and their checksum."""


class Log:
    """Appends lines; a resumed training cuts the log back first, so that each step stands once."""

    def __init__(self, path: Path, after_step: int, tensorboard: Path | None, written: Written | None = None) -> None:
        """written: the part of the log that a checkpoint knows, which a resumed training keeps"""
        self.path = path
        kept = _kept(path, written, after_step) if written else b""
        storage.write_bytes(path, kept)
        self._file = path.open("ab")
        self.written: Written = (len(kept), zlib.crc32(kept))
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
        line = (json.dumps({"step": step, **values}, ensure_ascii=False) + "\n").encode()
        with storage.writing(self.path):
            self._file.write(line)
            self._file.flush()
        self.written = (self.written[0] + len(line), zlib.crc32(line, self.written[1]))
        if self._board:
            for name, value in values.items():
                if isinstance(value, (int, float)):
                    self._board.add_scalar(name, value, step)

    def sync(self) -> None:
        """All lines are on the disk when this returns."""
        os.fsync(self._file.fileno())


def _kept(path: Path, written: Written, after_step: int) -> bytes:
    """The part of the log that a checkpoint knows."""
    size, checksum = written
    if not path.exists():
        warnings.warn(f"{path}: is missing; the log goes on after step {after_step:,}", stacklevel=2)
        return b""
    content = path.read_bytes()[:size]
    if len(content) != size or zlib.crc32(content) != checksum:
        raise TwofoldError(
            f"{path}: damaged or changed, not what the training wrote; put it back, or remove it to go on without it"
        )
    return content


def _open_board(folder: Path, after_step: int) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise TwofoldError("train.tensorboard needs `pip install 'twofold[tensorboard]'`") from None
    return SummaryWriter(str(folder), purge_step=after_step + 1)
