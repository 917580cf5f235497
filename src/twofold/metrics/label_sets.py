"""Any number of labels for each row against the right ones: exact matches and F1."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from twofold.data.labels import LabelField
from twofold.metrics.judge import Judged
from twofold.metrics.label_scores import set_scores
from twofold.metrics.report import Report
from twofold.types import Classes

METRICS = ("accuracy", "macro_f1", "micro_f1")


def measure(judged: Judged) -> Report:
    """Let the model label every row, then compare; a row is right where all its labels are."""
    field: LabelField = judged.model.targets[judged.decoder]
    assert isinstance(field.output, Classes)
    right = [field.names(row) for row in judged.rows]
    found = [prediction.output for prediction in judged.predictions()]
    names = dict.fromkeys([*field.output.names, *(name for row in right for name in row)])
    number = {name: place for place, name in enumerate(names)}
    scores = set_scores(_hot(found, number), _hot(right, number))
    metrics = {"accuracy": scores.exact_match, "macro_f1": scores.macro_f1, "micro_f1": scores.micro_f1}
    return Report(metrics, len(right))


def _hot(rows: Sequence[Sequence[str]], number: dict[str, int]) -> NDArray[np.bool_]:
    """(rows, labels)"""
    chosen = np.zeros((len(rows), len(number)), bool)
    for line, names in zip(chosen, rows, strict=True):
        line[[number[name] for name in names]] = True
    return chosen
