"""Checkpoints: all that a training needs to resume as if it had never stopped."""

from __future__ import annotations

import shutil
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from torch import Tensor

from twofold import storage
from twofold.config import structure
from twofold.errors import TwofoldError
from twofold.training.log import Written

FORMAT = 1
STATE = "state.json"


@dataclass
class Progress:
    """State of a training, apart from tensors."""

    step: int = 0
    epoch: int = 0
    batch: int = 0
    """Number of batches of this epoch that are done."""
    seen: dict[str, list[float]] = field(default_factory=dict)
    """Sum and count of each decoder's loss since the last line of the log."""
    best: float | None = None
    """Best value so far of the metric `train.best`, negated if lower is better."""
    worse: int = 0
    """Number of evaluations since the best value."""
    plateau: float = 1.0
    """Factor of the learning rate that the plateau schedule has reached."""
    evaluated: int = 0
    """Step of the last evaluation."""
    precision: Literal["float32", "bfloat16"] = "float32"
    """Precision that the training began with."""
    log: Written | None = None
    """Part of the log that was written before the checkpoint."""


def save(folder: Path, progress: Progress, groups: dict[str, dict[str, Tensor]]) -> None:
    """Writes a checkpoint, then removes older ones."""
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
    """Returns the newest checkpoint. Removes unfinished ones that a kill left behind."""
    for left in folder.glob(".step-*"):
        shutil.rmtree(left, ignore_errors=True)
    return max(folder.glob("step-*"), default=None)


def load(path: Path) -> tuple[Progress, dict[str, dict[str, Tensor]]]:
    """Reads what `save` wrote and compares each file with its checksum."""
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
