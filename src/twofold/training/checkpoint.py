"""What a training needs to go on as if nothing had happened: checkpoints, and the log that they cut back."""

from __future__ import annotations

import json
import os
import shutil
import warnings
import zlib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from twofold import storage
from twofold.config import structure
from twofold.errors import TwofoldError

FORMAT = 1
STATE = "state.json"
Written = tuple[int, int]
"""A number of bytes, and their checksum."""


@dataclass
class Progress:
    """Where a training stands, apart from tensors."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    """Batches of this epoch that are done."""
    seen: dict[str, list[float]] = field(default_factory=dict)
    """For each decoder the sum and count of the loss since the last line of the log."""
    best: float | None = None
    """The best value so far of the metric that decides, negated where lower is better."""
    worse: int = 0
    """Evaluations since then."""
    plateau: float = 1.0
    """What the plateau schedule multiplies the rate by."""
    evaluated: int = 0
    """The step of the last evaluation."""
    log: Written | None = None
    """The part of the log that was written before."""


def save(folder: Path, progress: Progress, groups: dict[str, dict[str, Tensor]]) -> None:
    """Write a checkpoint, then remove the ones before it."""
    path = folder / f"step-{progress.step:09d}"
    if path.exists():
        return
    with storage.new_folder(path) as aside:
        sums = {}
        for name, tensors in groups.items():
            file = aside / f"{name}.safetensors"
            storage.write_tensors(file, tensors, {"format": str(FORMAT)})
            sums[file.name] = storage.sha256(file)
        storage.write_checked_json(aside / STATE, {"format": FORMAT, "sha256": sums, "progress": asdict(progress)})
    for older in set(folder.glob("step-*")) - {path}:
        storage.remove_folder(older)


def latest(folder: Path) -> Path | None:
    """The newest checkpoint; what a kill left unfinished is swept away."""
    for left in folder.glob(".step-*"):
        shutil.rmtree(left, ignore_errors=True)
    return max(folder.glob("step-*"), default=None)


def load(path: Path) -> tuple[Progress, dict[str, dict[str, Tensor]]]:
    """What `save` wrote, each file checked against its sum."""
    remedy = f"remove {path} to go on from an older checkpoint or from the start"
    state = storage.read_json(path / STATE, remedy)
    if state.get("format") != FORMAT:
        raise TwofoldError(f"{path}: saved in format {state.get('format')}, this version reads {FORMAT}; {remedy}")
    storage.check_content(state, path / STATE, remedy)
    groups = {}
    for name, expected in structure(state.get("sha256"), dict[str, str], str(path / STATE)).items():
        tensors = storage.read_tensors(path / name, remedy)
        if storage.sha256(path / name) != expected:
            raise TwofoldError(f"{path / name}: damaged, its checksum is not the one in {STATE}; {remedy}")
        groups[Path(name).stem] = tensors
    if not {"model", "optimizer"} <= groups.keys():
        raise TwofoldError(f"{path / STATE}: names no model or no optimizer; {remedy}")
    return structure(state.get("progress"), Progress, str(path / STATE)), groups


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

    def close(self) -> None:
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
