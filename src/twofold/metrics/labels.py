"""Any number of labels for each row against the right ones: exact matches and F1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from twofold.metrics import HIGHER, Evaluation, Report
from twofold.metrics.label import class_scores, same_rows, shares
from twofold.types import Classes

METRICS = {"accuracy": HIGHER, "macro_f1": HIGHER, "micro_f1": HIGHER}


def measure(evaluation: Evaluation) -> Report:
    """Let the model label every row, then compare; a row is right where all its labels are."""
    known = evaluation.output.spec
    assert isinstance(known, Classes)
    right = [evaluation.output.gold(row) for row in evaluation.rows]
    answers = [prediction.output for prediction in evaluation.predictions()]
    names = dict.fromkeys([*known.names, *(name for row in right for name in row)])
    number = {name: place for place, name in enumerate(names)}
    scores = set_scores(_hot(answers, number), _hot(right, number))
    metrics = {"accuracy": scores.exact_match, "macro_f1": scores.macro_f1, "micro_f1": scores.micro_f1}
    return Report(metrics, len(right))


def _hot(rows: Sequence[Sequence[str]], number: dict[str, int]) -> npt.NDArray[np.bool_]:
    """(rows, labels)"""
    chosen = np.zeros((len(rows), len(number)), bool)
    for line, names in zip(chosen, rows, strict=True):
        line[[number[name] for name in names]] = True
    return chosen


@dataclass(frozen=True)
class SetScores:
    """How well rows of any number of labels are labelled."""

    micro_f1: float
    macro_f1: float
    """The mean over all classes; one that is neither right nor predicted anywhere counts as 0."""
    exact_match: float
    """The share of the rows whose labels are all right."""


def set_scores(predicted: npt.NDArray[np.bool_], right: npt.NDArray[np.bool_]) -> SetScores:
    """Of any number of labels a row: bools (rows, classes)."""
    same_rows(predicted, right, 2)
    if predicted.dtype != np.bool_ or right.dtype != np.bool_:
        raise ValueError(f"which labels a row has is said by bool, not {predicted.dtype} and {right.dtype}")
    hits, found, support = (one.sum(axis=0) for one in (predicted & right, predicted, right))
    return SetScores(
        micro_f1=float(shares(2 * hits.sum(), found.sum() + support.sum())),
        macro_f1=float(class_scores(hits, found, support).f1.mean()),
        exact_match=float((predicted == right).all(axis=1).mean()),
    )
