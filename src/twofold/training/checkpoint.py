"""Everything a training needs to go on as if nothing had happened: safetensors and JSON in one folder."""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from twofold import storage
from twofold.config import structure
from twofold.errors import TwofoldError

FORMAT = 1
STATE = "state.json"


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
    log: tuple[int, int] | None = None
    """How long the log is, in bytes, and its checksum."""


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
    for older in _all(folder):
        if older != path:
            storage.remove_folder(older)


def latest(folder: Path) -> Path | None:
    """The newest checkpoint; what a kill left unfinished is swept away."""
    if folder.exists():
        for left in folder.glob(".step-*"):
            shutil.rmtree(left, ignore_errors=True)
    return max(_all(folder), default=None)


def load(path: Path) -> tuple[Progress, dict[str, dict[str, Tensor]]]:
    """What `save` wrote, each file checked against its sum."""
    remedy = f"remove {path} to go on from an older checkpoint or from the start"
    state: dict[str, Any] = storage.read_json(path / STATE, remedy)
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


def _all(folder: Path) -> list[Path]:
    return sorted(folder.glob("step-*"))
