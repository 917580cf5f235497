"""Labels, one for each row, compared with the right ones: accuracy, F1 and Matthews correlation."""

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
    """Labels every row and compares; a right label that the model has never seen counts as a miss."""
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
    """Scores of each class, all (classes,); a division by 0 gives 0."""

    precision: Floats
    recall: Floats
    f1: Floats
    support: Counts
    """Number of rows of the class."""


@dataclass(frozen=True)
class LabelScores:
    """Scores of rows with one label each."""

    accuracy: float
    micro_f1: float
    """Micro-averaged F1; equal to the accuracy, because every row has one label on both sides."""
    macro_f1: float
    """Mean F1 of the classes that are right or predicted somewhere."""
    matthews: float
    """Matthews correlation, from -1 to 1; 0 if one side has a single class."""
    by_class: ClassScores


def label_scores(predicted: npt.NDArray[Any], right: npt.NDArray[Any], classes: int) -> LabelScores:
    """Compares class ids, one for each row, from 0 to below `classes`."""
    same_rows(predicted, right, 1)
    cells = _checked_numbers(right, classes, "right") * classes + _checked_numbers(predicted, classes, "predicted")
    confusion = np.bincount(cells, minlength=classes**2).reshape(classes, classes)  # (right class, predicted class)
    answered, support = confusion.sum(axis=0), confusion.sum(axis=1)
    by_class = class_scores(confusion.diagonal(), answered, support)
    occurring = (answered + support) > 0
    accuracy = int(confusion.trace()) / len(right)
    return LabelScores(accuracy, accuracy, float(by_class.f1[occurring].mean()), _matthews(confusion), by_class)


def class_scores(hits: Counts, answered: Counts, support: Counts) -> ClassScores:
    """Scores of each class from the counts of hits, answers and right labels."""
    f1 = 2 * hits / np.maximum(answered + support, 1)
    return ClassScores(hits / np.maximum(answered, 1), hits / np.maximum(support, 1), f1, support)


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
    """Refuses two sides of different shapes."""
    if predicted.shape != right.shape or right.ndim != axes or not right.size:
        shape = "(rows,)" if axes == 1 else "(rows, classes)"
        raise ValueError(f"both sides are {shape} of at least one, not {predicted.shape} and {right.shape}")
