"""Job of an export: the model, the folder of its training, and the options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from twofold.data.files import Row
from twofold.model import Model


@dataclass(frozen=True)
class Job:
    """Export to be made."""

    model: Model
    format: str
    """Format, by the name that `--to` takes."""
    training: Path | None = None
    """Folder of the training that made the model, if known."""
    int8: bool = False
    rows: Sequence[Row] = ()
    """Rows on which int8 is measured."""
