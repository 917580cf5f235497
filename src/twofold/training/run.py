"""Result of a training, as `twofold.train` returns it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from twofold.model import Model
from twofold.model.load import load
from twofold.tables import cell
from twofold.training.log import FILE, History


@dataclass(frozen=True, repr=False)
class Run:
    """Folder of a training, how it ended, and its best model."""

    folder: Path
    steps: int
    best: float | None
    """Best value of the metric `train.best`, if there were validation rows."""
    finished: bool
    """False if the training was stopped before its end."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Validation metrics of the best model."""

    @cached_property
    def model(self) -> Model:
        """Best model, loaded from the folder."""
        return load(self.folder / "model", allow_code=True)  # the recipe has run the same code

    @cached_property
    def history(self) -> History:
        """Content of the log: training values, evaluations, and metrics after the last step."""
        return History.read(self.folder / FILE)

    def __repr__(self) -> str:
        ended = "finished" if self.finished else "stopped"
        metrics = ", ".join(f"{name} {cell(value)}" for name, value in self.metrics.items()) or "none"
        model = self.folder / "model"
        return "\n".join(
            [
                f"Run({str(self.folder)!r}, {ended} after {self.steps:,} steps)",
                f"  metrics  {metrics}",
                f"  model    {model if model.exists() else 'none saved yet'}",
            ]
        )
