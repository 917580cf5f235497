"""Weights that torch has pickled: read as tensors alone, and written as safetensors."""

from __future__ import annotations

from pathlib import Path

from twofold import storage
from twofold.data.named_models import NamedModel
from twofold.storage.pickled import read_pickled

WEIGHTS = "weights.pth"


def write(members: Path, folder: Path, model: NamedModel) -> None:
    """Writes the tensors under their names."""
    tensors = read_pickled(members / WEIGHTS, "pull it again")
    storage.write_tensors(folder / "model.safetensors", tensors, {"format": "pt"})
