"""Comparing trainings by their folders: recipes, checksums of data, logs and models."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from twofold import storage
from twofold.config import kinds
from twofold.errors import TwofoldError
from twofold.metrics import family
from twofold.recipe.comparison import MISSING, ComparedMetric, Comparison, Curve, RunFacts
from twofold.recipe.file import read_yaml
from twofold.recipe.folder import DATA, ELSEWHERE, flat
from twofold.recipe.given import RECIPE
from twofold.recipe.summarizing import saved_without_weights
from twofold.training.config import TrainConfig
from twofold.training.log import FILE, History, Line


def compare(runs: Sequence[str | Path]) -> Comparison:
    """Compares trainings, given by their folders: settings and data that differ, metrics, speeds and curves."""
    folders = [Path(run) for run in ([runs] if isinstance(runs, str | Path) else runs)]
    if len(folders) < 2:
        raise TwofoldError("one training alone has nothing to be compared with; name two or more")
    for folder in folders:
        if folders.count(folder) > 1:
            raise TwofoldError(f"{folder}: named twice; name each training once")
    recipes = [_recipe(folder) for folder in folders]
    directions = _directions()
    facts = tuple(map(lambda folder, recipe: _facts(folder, recipe, directions), folders, recipes))
    return Comparison(
        facts, _differing(recipes, MISSING), _differing([*map(_data, folders)], None), _metrics(facts, directions)
    )


def facts_of(folder: Path) -> RunFacts:
    """Facts about one training."""
    return _facts(folder, _recipe(folder), _directions())


def _recipe(folder: Path) -> dict[str, Any]:
    """Settings of a training, by their paths."""
    if not (folder / RECIPE).is_file():
        there = "holds no training" if folder.exists() else "no such folder"
        raise TwofoldError(f"{folder}: {there} ({RECIPE} is missing); RUN is a folder that `twofold train --out` wrote")
    return flat(read_yaml(folder / RECIPE))


def _data(folder: Path) -> dict[str, str]:
    """Checksums of the data of a training, by the setting that names it."""
    if not (folder / DATA).is_file():  # the training ended before its first step
        return {}
    content = storage.read_json(folder / DATA, ELSEWHERE).get("data", {})
    return {name: str(file.get("sum")) for name, file in content.items() if isinstance(file, dict)}


def _differing(contents: Sequence[Mapping[str, Any]], missing: Any) -> dict[str, tuple[Any, ...]]:
    """Values that are not the same in all contents, by name."""
    seen = dict.fromkeys(name for content in contents for name in content)
    sections = list(dict.fromkeys(name.partition(".")[0] for name in seen))
    names = sorted(seen, key=lambda name: sections.index(name.partition(".")[0]))
    values = {name: tuple(content.get(name, missing) for content in contents) for name in names}
    return {name: given for name, given in values.items() if any(value != given[0] for value in given)}


def _facts(folder: Path, recipe: Mapping[str, Any], directions: Mapping[str, bool]) -> RunFacts:
    """Facts about a training from its log and its model."""
    history = History.read(folder / FILE)
    metric = str(recipe.get("train.best", TrainConfig().best))
    best = history.best(metric, directions.get(_bare(metric), True))
    curves: dict[str, list[tuple[int, float]]] = {}
    for evaluation in history.evaluations:
        for name, value in evaluation.metrics.items():
            curves.setdefault(name, []).append((evaluation.step, value))
    steps = [line["step"] for line in history.training] + [evaluation.step for evaluation in history.evaluations]
    seconds, tokens = _speed(history.training)
    return RunFacts(
        str(folder),
        max(steps, default=0),
        best.step if best else None,
        seconds,
        tokens,
        _parameters(folder),
        metric,
        {**(best.metrics if best else {}), **history.final},
        _curve(history.training, "loss"),
        {name: tuple(values) for name, values in curves.items()},
    )


def _curve(lines: Sequence[Line], name: str) -> Curve:
    """Values of one name over the steps."""
    return tuple((line["step"], line[name]) for line in lines if isinstance(line.get(name), int | float))


def _speed(lines: Sequence[Line]) -> tuple[float | None, float | None]:
    """Seconds of all steps, and tokens a second in the mean; None where the log does not tell."""
    seconds = tokens = 0.0
    for before, line in pairwise([{"step": 0}, *lines]):
        if speed := line.get("steps_per_second"):
            passed = (line["step"] - before["step"]) / speed
            seconds, tokens = seconds + passed, tokens + passed * line.get("tokens_per_second", 0)
    return (seconds, tokens / seconds) if seconds else (None, None)


def _parameters(folder: Path) -> int | None:
    """Number of parameters; None if no model is saved, or if it needs code from outside twofold."""
    try:
        model = saved_without_weights(folder)
    except TwofoldError:
        return None
    return sum(parameter.numel() for parameter in model.parameters())


def _directions() -> dict[str, bool]:
    """Directions of all metrics that come along, by name; true where higher is better."""
    return {name: higher for kind in kinds("metrics") for name, higher in family(kind).METRICS.items()}


def _bare(metric: str) -> str:
    """Name of a metric without that of its decoder."""
    return metric.rpartition(".")[2]


def _metrics(runs: Sequence[RunFacts], directions: Mapping[str, bool]) -> dict[str, ComparedMetric]:
    """Metrics side by side; trainings without a metric in common are an error."""
    if not set.intersection(*(set(run.metrics) for run in runs)):
        measured = "; ".join(f"{run.folder} has {', '.join(run.metrics) or 'none'}" for run in runs)
        raise TwofoldError(f"the trainings have no validation metric in common: {measured}")
    metrics = {}
    for name in dict.fromkeys(name for run in runs for name in run.metrics):
        values = [run.metrics.get(name) for run in runs]
        measured_values = tuple(None if value is None or math.isnan(value) else value for value in values)
        metrics[name] = ComparedMetric(measured_values, directions.get(_bare(name)))
    return metrics
