"""Comparison of trainings: settings that differ, metrics side by side, and curves."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from textwrap import shorten
from typing import Any

from twofold.tables import cell, table_lines

LONGEST = 40
"""Maximum number of characters of a value in the table of settings."""
BEST = " *"
"""Mark of the best value of a metric."""
Curve = tuple[tuple[int, float], ...]
"""Values over the steps of a training: (step, value) each."""
FACTS = {"steps": "steps", "best_step": "best at step", "seconds": "seconds", "seconds_per_step": "seconds per step"}
FACTS |= {"tokens_per_second": "tokens/s", "parameters": "parameters"}
"""Facts of a training, and their headings."""


@dataclass(frozen=True)
class RunFacts:
    """Facts about one training."""

    folder: str
    steps: int
    best_step: int | None
    """Step of the best evaluation, whose model is kept."""
    seconds: float | None
    """Time of all steps, evaluations left out."""
    tokens_per_second: float | None
    parameters: int | None
    """Number of parameters; None if the model cannot be read."""
    best: str
    """Metric that chooses the best model, `train.best`."""
    metrics: Mapping[str, float]
    """Validation metrics of the best model."""
    losses: Curve = field(default=(), repr=False)
    """Training loss over the steps."""
    evaluations: Mapping[str, Curve] = field(default_factory=dict, repr=False)
    """Validation metrics over the steps."""

    @property
    def seconds_per_step(self) -> float | None:
        """Mean time of a step."""
        return self.seconds / self.steps if self.seconds and self.steps else None


@dataclass(frozen=True)
class ComparedMetric:
    """Values of one metric, one for each training; None where it was not measured."""

    values: tuple[float | None, ...]
    higher_is_better: bool | None
    """Direction; None if it is not known."""

    @property
    def best(self) -> tuple[int, ...]:
        """Places of the trainings with the best value."""
        measured = [value for value in self.values if value is not None]
        if self.higher_is_better is None or len(measured) < 2 or len(set(measured)) == 1:
            return ()
        best = max(measured) if self.higher_is_better else min(measured)
        return tuple(place for place, value in enumerate(self.values) if value == best)


@dataclass(frozen=True, repr=False)
class Comparison:
    """Trainings side by side."""

    runs: tuple[RunFacts, ...]
    settings: Mapping[str, tuple[Any, ...]]
    """Settings of the recipes that differ, by their paths, such as train.epochs; one value for each training, MISSING
    where it has no such setting."""
    data: Mapping[str, tuple[str | None, ...]]
    """Checksums of data that differ, by the setting that names the data."""
    metrics: Mapping[str, ComparedMetric]

    def as_dict(self) -> dict[str, Any]:
        """JSON values; curves included."""
        runs = [{**dataclasses.asdict(run), "seconds_per_step": run.seconds_per_step} for run in self.runs]
        metrics = {name: {**dataclasses.asdict(metric), "best": metric.best} for name, metric in self.metrics.items()}
        settings = {
            name: [None if value is MISSING else value for value in values] for name, values in self.settings.items()
        }
        return {"runs": runs, "settings": settings, "data": dict(self.data), "metrics": metrics}

    def __repr__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        settings = {name: [_written(value) for value in values] for name, values in self.settings.items()}
        data = {f"checksum of {name}": [_short(value) for value in values] for name, values in self.data.items()}
        yield from self._table("setting", {**settings, **data} or {"all": ["the same"] * len(self.runs)})
        yield ""
        facts = {heading: [_rounded(getattr(run, name)) for run in self.runs] for name, heading in FACTS.items()}
        yield from self._table("training", facts)
        yield ""
        metrics = {}
        for name, metric in self.metrics.items():
            arrow = {True: " ↑", False: " ↓", None: ""}[metric.higher_is_better]
            values = enumerate(metric.values)
            metrics[name + arrow] = [
                ("-" if value is None else cell(value)) + (BEST if place in metric.best else "")
                for place, value in values
            ]
        yield from self._table("validation", metrics)
        yield "↑ higher is better, ↓ lower is better, * best"

    def _table(self, title: str, rows: Mapping[str, list[str]]) -> list[str]:
        """Table with a column for each training."""
        names = [run.folder for run in self.runs]
        return table_lines([{title: name, **dict(zip(names, values, strict=True))} for name, values in rows.items()])


class _Missing:
    """Value of a setting that a recipe does not have, because its parts are of other kinds."""

    def __repr__(self) -> str:
        return "-"


MISSING = _Missing()


def _written(value: Any) -> str:
    """Value of a setting in one line, as in YAML."""
    if value is MISSING or isinstance(value, str):
        text = str(value)
    else:
        text = cell(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)
    return shorten(text, LONGEST, placeholder=" ...") if len(text) > LONGEST and " " in text else text


def _rounded(value: float | None) -> str:
    """Fact about a training: three digits, large numbers in full."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _short(checksum: str | None) -> str:
    """Beginnings of the checksums of one or more files."""
    sums = [word[:8] for word in (checksum or "").split() if len(word) >= 32]
    return shorten(" ".join(sums), LONGEST, placeholder=" ...") or "-"
