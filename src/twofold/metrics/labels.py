"""Sets of labels for each row, compared with the right ones: exact matches and F1."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from twofold.metrics import HIGHER, Evaluation, Report
from twofold.metrics.label import class_scores, same_rows

METRICS = {"accuracy": HIGHER, "macro_f1": HIGHER, "micro_f1": HIGHER}
"""Metrics; accuracy is the share of the rows whose labels are all right."""


def measure(evaluation: Evaluation) -> Report:
    """Labels every row and compares; a row is right if all its labels are."""
    right, answers = evaluation.compared()
    names = dict.fromkeys([*evaluation.classes.names, *(name for row in right for name in row)])
    number = {name: place for place, name in enumerate(names)}
    return Report(set_scores(_hot(answers, number), _hot(right, number)), len(right))


def _hot(rows: Sequence[Sequence[str]], number: dict[str, int]) -> npt.NDArray[np.bool_]:
    """Marks of the labels, (rows, labels)."""
    chosen = np.zeros((len(rows), len(number)), bool)
    for line, names in zip(chosen, rows, strict=True):
        line[[number[name] for name in names]] = True
    return chosen


def set_scores(predicted: npt.NDArray[np.bool_], right: npt.NDArray[np.bool_]) -> dict[str, float]:
    """Compares sets of labels, given as bools (rows, classes)."""
    same_rows(predicted, right, 2)
    if predicted.dtype != np.bool_ or right.dtype != np.bool_:
        raise ValueError(f"labels must be arrays of bool, not {predicted.dtype} and {right.dtype}")
    hits, answered, support = (marks.sum(axis=0) for marks in (predicted & right, predicted, right))
    return {
        "accuracy": float((predicted == right).all(axis=1).mean()),
        # A class that is neither right nor predicted anywhere counts as 0.
        "macro_f1": float(class_scores(hits, answered, support).f1.mean()),
        "micro_f1": float(2 * hits.sum() / max(answered.sum() + support.sum(), 1)),
    }
