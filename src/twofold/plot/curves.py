"""Curves of trainings: the training loss and a validation metric over the steps."""

from __future__ import annotations

from itertools import cycle
from pathlib import Path
from typing import Any

from twofold.errors import TwofoldError
from twofold.plot.figure import Canvas, figure
from twofold.recipe.comparison import Comparison, RunFacts

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#E69F00", "#56B4E9")
"""Colors that the color-blind can tell apart (Okabe and Ito 2008)."""
LINES = ("-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
"""Styles of lines and marks, which tell the trainings apart in grey."""
MOST_MARKS = 20
"""Number of evaluations of a curve from which some are not marked."""


def draw_curves(comparison: Comparison, path: Path, metric: str | None = None) -> None:
    """Draws the training loss, and beside it a validation metric, by default the one that chooses the best model."""
    metric = metric or common_metric(comparison.runs)
    names = [run.folder for run in comparison.runs]
    with figure(path, names, 9.5, 3.8 + 0.22 * len(names)) as canvas:
        left, right = canvas.figure.subplots(1, 2)
        drawn = [
            _draw_run(left, right, run, metric, style) for run, style in zip(comparison.runs, styles(), strict=False)
        ]
        left.set_title("training loss", fontsize=11)
        right.set_title(f"validation {metric}, best model outlined", fontsize=11)
        for axes in (left, right):
            axes.set_xlabel("step")
            axes.set_xlim(left=0)
            axes.grid(alpha=0.3)
            axes.spines[["top", "right"]].set_visible(False)
            axes.ticklabel_format(axis="x", style="plain")
        _legend(canvas, drawn, names)


def common_metric(runs: tuple[RunFacts, ...]) -> str:
    """Validation metric to draw: the one that chooses the best model, if all trainings measured it over the steps."""
    common = [name for name in runs[0].evaluations if all(name in run.evaluations for run in runs)]
    chosen = [run.best for run in runs if run.best in common] or common
    if not chosen:
        raise TwofoldError("--plot: no validation metric was measured over the steps of all trainings; leave it out")
    return chosen[0]


def styles() -> Any:
    """Styles of the trainings, one after another without end."""
    return (
        {"color": color, "linestyle": line, "marker": mark}
        for color, line, mark in zip(cycle(COLORS), cycle(LINES), cycle(MARKERS), strict=False)
    )


def _draw_run(left: Any, right: Any, run: RunFacts, metric: str, style: dict[str, Any]) -> Any:
    """Draws the two curves of a training; returns the line that the legend shows."""
    plain = {**style, "linewidth": 1.6, "markersize": 5}
    if run.losses:
        left.plot(*zip(*run.losses, strict=True), **{**plain, "marker": None})
    curve = run.evaluations[metric]
    (line,) = right.plot(*zip(*curve, strict=True), **plain, markevery=max(1, len(curve) // MOST_MARKS))
    best = [point for point in curve if point[0] == run.best_step and metric == run.best]
    for step, value in best:
        right.plot(step, value, color=style["color"], marker=style["marker"], markersize=11, fillstyle="none")
    return line


def _legend(canvas: Canvas, lines: list[Any], names: list[str]) -> None:
    """Legend below both panels."""
    columns = max(1, min(len(names), 110 // (8 + max(map(len, names)))))
    canvas.figure.legend(
        lines, canvas.shown(names), loc="outside lower center", ncols=columns, fontsize=9, frameon=False, handlelength=4
    )
