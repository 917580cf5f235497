"""Messages of a training on standard error: a line for each evaluation, a table of all of them, advice at the end."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

from twofold.tables import cell, table_lines
from twofold.training.length import Length
from twofold.training.log import FINAL, VALIDATION, Evaluation, History, Line, named

WHILE_TRAINING = {"loss": "loss", "learning_rate": "learning rate", "steps_per_second": "steps/s"}
"""Training values that are shown beside the metrics, and their headings."""
STILL_IMPROVES = 0.1
"""Share of the whole gain that the last quarter of the evaluations must bring for the advice to train for longer."""


class Console:
    """Callback that shows each evaluation when it is logged."""

    def __init__(self, history: History, metric: str, higher_is_better: bool) -> None:
        """history: log so far, of a training that is resumed"""
        self.history, self.metric, self.higher_is_better = history, metric, higher_is_better

    def __call__(self, line: Line) -> None:
        self.history.add(line)
        if named(line, VALIDATION):
            evaluation = self.history.evaluations[-1]
            best = evaluation is self.history.best(self.metric, self.higher_is_better)
            say(evaluation_line(evaluation) + (" (best so far)" if best else ""))
        elif final := named(line, FINAL):
            say(f"best model: {_listed(final)}")

    def start(self, length: Length) -> None:
        """Says that the floor in steps makes the training longer than its epochs."""
        if length.raised:
            config = length.config
            say(f"train.min_steps={config.min_steps:,}: {length.epochs:,} epochs in place of {config.epochs:,}")

    def end(self, length: Length) -> None:
        """Shows the table of all evaluations, and says if more steps would help."""
        for line in table_lines(list(self._rows())):
            say(line)
        gain = late_gain(self.history, self.metric, self.higher_is_better)
        if gain:
            before, after = map(cell, gain)
            say(
                f"validation {self.metric} still improved in the last quarter of the training, from {before} to "
                f"{after}: a longer training may help; raise {length.setting()}"
            )

    def _rows(self) -> Iterator[dict[str, Any]]:
        best = self.history.best(self.metric, self.higher_is_better)
        for evaluation in self.history.evaluations:
            training = {heading: evaluation.training.get(name) for name, heading in WHILE_TRAINING.items()}
            metrics = {f"validation {name}": value for name, value in evaluation.metrics.items()}
            mark = {"": "best" if evaluation is best else ""}
            yield {"step": evaluation.step, "epoch": evaluation.training.get("epoch"), **training, **metrics, **mark}


def say(line: str) -> None:
    """Prints a line on standard error, above a progress bar if there is one."""
    print(line, file=sys.stderr, flush=True)


def evaluation_line(evaluation: Evaluation) -> str:
    """Training values and metrics of one evaluation in a line."""
    training = evaluation.training
    place = f"step {evaluation.step:,}" + (f", epoch {cell(training['epoch'])}" if "epoch" in training else "")
    values = {heading: training[name] for name, heading in WHILE_TRAINING.items() if name in training}
    while_training = f"{_listed(values)}; " if values else ""
    return f"{place}: {while_training}validation {_listed(evaluation.metrics)}"


def late_gain(history: History, metric: str, higher_is_better: bool) -> tuple[float, float] | None:
    """Best values before and in the last quarter of the evaluations, if that quarter brought much of the whole gain."""
    sign = 1 if higher_is_better else -1
    values = [sign * judged.metrics[metric] for judged in history.evaluations if metric in judged.metrics]
    if len(values) < 2:
        return None
    late = max(1, len(values) // 4)
    before, after = max(values[:-late]), max(values[-late:])
    if after <= before or after - before < STILL_IMPROVES * (after - values[0]):
        return None
    return sign * before, sign * after


def _listed(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {cell(value)}" for name, value in values.items())
