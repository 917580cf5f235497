"""Runs a model over rows and lets the decoder's metric families judge it."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from twofold.data.files import Row
from twofold.errors import TwofoldError
from twofold.generate.options import GenerateOptions
from twofold.model import Model
from twofold.progress import Report as Progress


@dataclass(frozen=True)
class Judged:
    """What a metric family looks at."""

    model: Model
    rows: Sequence[Row]
    decoder: str
    options: GenerateOptions
    progress: Progress | None = None


@dataclass(frozen=True)
class Report:
    """Metrics by name, over how many examples, and tables that go with them."""

    metrics: dict[str, float]
    examples: int
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)


def evaluate(
    model: Model,
    rows: Sequence[Row],
    options: GenerateOptions | None = None,
    decoder: str | None = None,
    families: Sequence[str] | None = None,
    progress: Progress | None = None,
) -> Report:
    """Judge one decoder of the model, the first unless named, by its own metric families or by the given ones."""
    if not rows:
        raise TwofoldError("there is no example to judge the model by")
    name = model.decoder_name(decoder)
    judged = Judged(model, rows, name, options or model.config.generate, progress)
    report = Report({}, len(rows))
    for family in families or model.decoder(name).metrics:
        measured: Report = _family(family).measure(judged)
        report.metrics.update(measured.metrics)
        report.tables.update(measured.tables)
    return report


def metric_names(model: Model) -> list[str]:
    """The metrics by which the model's first decoder is judged."""
    return [name for family in model.decoder().metrics for name in _family(family).METRICS]


def _family(name: str) -> Any:
    return importlib.import_module(f"twofold.evaluation.{name}")
