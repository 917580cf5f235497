"""The short names: what the command line does, from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from twofold.data.files import Row, Where, read_rows
from twofold.evaluation import Report
from twofold.evaluation import evaluate as evaluate_rows
from twofold.generate.options import GenerateOptions
from twofold.model import Model
from twofold.progress import Report as Progress
from twofold.training.processes import make_device
from twofold.types import Example


def load(model: str | Path, device: str = "auto", allow_code: bool = False) -> Model:
    """The model in a training folder or in its `model/`, ready to predict."""
    return Model.from_pretrained(model, allow_code).to(make_device(device))


def evaluate(
    model: Model | str | Path,
    data: Where | Sequence[Example],
    options: GenerateOptions | None = None,
    decoder: str | None = None,
    progress: Progress | None = None,
) -> Report:
    """Judge a model by a file, or by examples that map column names to texts."""
    if not isinstance(model, Model):
        model = load(model)
    if isinstance(data, (str, Mapping)):
        rows = list(read_rows(data))
    else:
        rows = [Row(f"example {number}", values) for number, values in enumerate(data, start=1)]
    return evaluate_rows(model, rows, options, decoder, progress=progress)
