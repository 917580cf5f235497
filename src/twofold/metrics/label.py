"""One label for each row against the right one: accuracy, F1 and Matthews correlation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from twofold.metrics import HIGHER, Evaluation, Report
from twofold.types import Classes

METRICS = {"accuracy": HIGHER, "macro_f1": HIGHER, "micro_f1": HIGHER, "matthews": HIGHER}
Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def measure(evaluation: Evaluation) -> Report:
    """Let the model label every row, then compare; a label that it has never seen is one more that it misses."""
    output, known = evaluation.output, evaluation.output.spec
    assert isinstance(known, Classes)
    if output.in_rows:  # otherwise they are drawn with the batch, as in next-utterance prediction
        right = [output.gold(row) for row in evaluation.rows]
        return _report([prediction.output for prediction in evaluation.predictions()], right, known)
    answers, numbers = [], []
    for batch in evaluation.model.batches(evaluation.rows, evaluation.decoder):
        answers += [int(raw.values.argmax()) for raw in evaluation.model.answers(batch, evaluation.decoder)]
        numbers += batch.targets[evaluation.decoder].tokens[:, 0].tolist()
    return _report([known.names[number] for number in answers], [known.names[number] for number in numbers], known)


def _report(answers: list[str], right: list[str], known: Classes) -> Report:
    names = list(dict.fromkeys([*known.names, *right]))
    number = {name: place for place, name in enumerate(names)}
    scores = label_scores(
        np.array([number[name] for name in answers]), np.array([number[name] for name in right]), len(names)
    )
    metrics = {"accuracy": scores.accuracy, "macro_f1": scores.macro_f1}
    metrics |= {"micro_f1": scores.micro_f1, "matthews": scores.matthews}
    each = scores.by_class
    table: list[dict[str, Any]] = [
        {
            "label": name,
            "precision": float(each.precision[place]),
            "recall": float(each.recall[place]),
            "f1": float(each.f1[place]),
            "rows": int(each.support[place]),
        }
        for place, name in enumerate(names)
        if each.support[place]
    ]
    return Report(metrics, len(right), {"labels": table})


@dataclass(frozen=True)
class ClassScores:
    """How well each class is found, all (classes,); what would divide by 0 is 0."""

    precision: Floats
    recall: Floats
    f1: Floats
    support: Counts
    """How many rows are of the class."""


@dataclass(frozen=True)
class LabelScores:
    """How well rows of one label each are labelled."""

    accuracy: float
    micro_f1: float
    """The same as the accuracy, for every row has one label on both sides."""
    macro_f1: float
    """The mean over the classes that are right or predicted somewhere."""
    matthews: float
    """From -1 to 1; 0 where one side has a single class."""
    by_class: ClassScores


def label_scores(predicted: npt.NDArray[Any], right: npt.NDArray[Any], classes: int) -> LabelScores:
    """Of one label a row, whole numbers from 0 to below `classes`."""
    same_rows(predicted, right, 1)
    confusion = np.zeros((classes, classes), np.int64)  # (right class, predicted class)
    np.add.at(
        confusion, (_checked_numbers(right, classes, "right"), _checked_numbers(predicted, classes, "predicted")), 1
    )
    by_class = class_scores(confusion.diagonal(), confusion.sum(axis=0), confusion.sum(axis=1))
    occurring = (confusion.sum(axis=0) + confusion.sum(axis=1)) > 0
    accuracy = int(confusion.trace()) / len(right)
    return LabelScores(accuracy, accuracy, float(by_class.f1[occurring].mean()), _matthews(confusion), by_class)


def class_scores(hits: Counts, found: Counts, support: Counts) -> ClassScores:
    """The scores of each class from how often it is hit, answered and right."""
    return ClassScores(shares(hits, found), shares(hits, support), shares(2 * hits, found + support), support)


def _matthews(confusion: Counts) -> float:
    # In Python's integers, for the fourth power of the rows is soon more than 64 bits.
    rows, hits = int(confusion.sum()), int(confusion.trace())
    right, predicted = confusion.sum(axis=1).tolist(), confusion.sum(axis=0).tolist()
    apart = (rows**2 - sum(one * one for one in predicted)) * (rows**2 - sum(one * one for one in right))
    together = hits * rows - sum(one * other for one, other in zip(predicted, right, strict=True))
    return together / math.sqrt(apart) if apart else 0.0


def shares(part: Any, whole: Any) -> Floats:
    """Quotients; 0 where the whole is 0."""
    shares = np.zeros(np.shape(whole))
    np.divide(part, whole, out=shares, where=np.asarray(whole) > 0)
    return shares


def _checked_numbers(labels: npt.NDArray[Any], classes: int, name: str) -> npt.NDArray[np.int64]:
    if labels.dtype.kind not in "iu":
        raise ValueError(f"the {name} labels must be whole numbers, not {labels.dtype}")
    if not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise ValueError(f"the {name} labels are {labels.min()} to {labels.max()}; known are 0 to {classes - 1}")
    return labels.astype(np.int64)


def same_rows(predicted: npt.NDArray[Any], right: npt.NDArray[Any], axes: int) -> None:
    """Refuse two sides that are not of one shape."""
    if predicted.shape != right.shape or right.ndim != axes or not right.size:
        shape = "(rows,)" if axes == 1 else "(rows, classes)"
        raise ValueError(f"both sides are {shape} of at least one, not {predicted.shape} and {right.shape}")
