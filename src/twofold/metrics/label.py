"""One label for each row against the right one: accuracy, F1 and Matthews correlation."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from twofold.metrics import HIGHER, Evaluation, Report

METRICS = {"accuracy": HIGHER, "macro_f1": HIGHER, "micro_f1": HIGHER, "matthews": HIGHER}
Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def measure(evaluation: Evaluation) -> Report:
    """Let the model label every row, then compare; a label that it has never seen is one more that it misses."""
    known, name = evaluation.classes.names, evaluation.decoder
    right: list[str] = []
    answers: list[str] = []
    if evaluation.output.in_rows:  # otherwise they are drawn with the batch, as in next-utterance prediction
        right, answers = evaluation.compared()
    else:
        for batch in evaluation.model.batches(evaluation.rows, name):
            answers += [known[int(raw.values.argmax())] for raw in evaluation.model.answers(batch, name)]
            right += [known[number] for number in batch.targets[name].tokens[:, 0].tolist()]
    names = list(dict.fromkeys([*known, *right]))
    number = {name: place for place, name in enumerate(names)}
    predicted, gold = (np.array([number[label] for label in side]) for side in (answers, right))
    scores = label_scores(predicted, gold, len(names))
    each = scores.by_class
    columns = (column.tolist() for column in (each.precision, each.recall, each.f1, each.support))
    heads = ("label", "precision", "recall", "f1", "rows")
    table = [dict(zip(heads, line, strict=True)) for line in zip(names, *columns, strict=True) if line[-1]]
    return Report({metric: getattr(scores, metric) for metric in METRICS}, len(right), {"labels": table})


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
    cells = _checked_numbers(right, classes, "right") * classes + _checked_numbers(predicted, classes, "predicted")
    confusion = np.bincount(cells, minlength=classes**2).reshape(classes, classes)  # (right class, predicted class)
    found, support = confusion.sum(axis=0), confusion.sum(axis=1)
    by_class = class_scores(confusion.diagonal(), found, support)
    occurring = (found + support) > 0
    accuracy = int(confusion.trace()) / len(right)
    return LabelScores(accuracy, accuracy, float(by_class.f1[occurring].mean()), _matthews(confusion), by_class)


def class_scores(hits: Counts, found: Counts, support: Counts) -> ClassScores:
    """The scores of each class from how often it is hit, answered and right."""
    f1 = 2 * hits / np.maximum(found + support, 1)
    return ClassScores(hits / np.maximum(found, 1), hits / np.maximum(support, 1), f1, support)


def _matthews(confusion: Counts) -> float:
    # In Python's integers, for the fourth power of the rows is soon more than 64 bits.
    rows, hits = int(confusion.sum()), int(confusion.trace())
    right, predicted = confusion.sum(axis=1).tolist(), confusion.sum(axis=0).tolist()
    apart = (rows**2 - sum(count**2 for count in predicted)) * (rows**2 - sum(count**2 for count in right))
    together = hits * rows - sum(map(operator.mul, predicted, right))
    return together / math.sqrt(apart) if apart else 0.0


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
