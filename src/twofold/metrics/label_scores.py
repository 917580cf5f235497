"""Labels and numbers against the right ones: accuracy, F1, Matthews correlation, and the correlations of numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


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


@dataclass(frozen=True)
class SetScores:
    """How well rows of any number of labels are labelled."""

    micro_f1: float
    macro_f1: float
    """The mean over all classes; one that is neither right nor predicted anywhere counts as 0."""
    exact_match: float
    """The share of the rows whose labels are all right."""


def label_scores(predicted: npt.NDArray[Any], right: npt.NDArray[Any], classes: int) -> LabelScores:
    """Of one label a row, whole numbers from 0 to below `classes`."""
    _same_rows(predicted, right, 1)
    confusion = np.zeros((classes, classes), np.int64)  # (right class, predicted class)
    np.add.at(confusion, (_numbers(right, classes, "right"), _numbers(predicted, classes, "predicted")), 1)
    by_class = _class_scores(confusion.diagonal(), confusion.sum(axis=0), confusion.sum(axis=1))
    occurring = (confusion.sum(axis=0) + confusion.sum(axis=1)) > 0
    accuracy = int(confusion.trace()) / len(right)
    return LabelScores(accuracy, accuracy, float(by_class.f1[occurring].mean()), _matthews(confusion), by_class)


def set_scores(predicted: npt.NDArray[np.bool_], right: npt.NDArray[np.bool_]) -> SetScores:
    """Of any number of labels a row: bools (rows, classes)."""
    _same_rows(predicted, right, 2)
    if predicted.dtype != np.bool_ or right.dtype != np.bool_:
        raise ValueError(f"which labels a row has is said by bool, not {predicted.dtype} and {right.dtype}")
    hits, found, support = (one.sum(axis=0) for one in (predicted & right, predicted, right))
    return SetScores(
        micro_f1=float(_shares(2 * hits.sum(), found.sum() + support.sum())),
        macro_f1=float(_class_scores(hits, found, support).f1.mean()),
        exact_match=float((predicted == right).all(axis=1).mean()),
    )


def pearson(predicted: npt.NDArray[Any], right: npt.NDArray[Any]) -> float:
    """The linear correlation of two rows of numbers, from -1 to 1; 0 where all numbers of one side are the same."""
    _same_rows(predicted, right, 1)
    sides = [np.asarray(side, np.float64) for side in (predicted, right)]
    if not all(np.isfinite(side).all() for side in sides):
        raise ValueError("numbers are compared where they are finite, and one here is not")
    if any((side == side[0]).all() for side in sides):
        return 0.0
    ours, theirs = (_unit(side) for side in sides)
    return float(np.clip(ours @ theirs, -1, 1))


def spearman(predicted: npt.NDArray[Any], right: npt.NDArray[Any]) -> float:
    """The correlation of the ranks, equal numbers sharing their mean rank; 0 where all of one side are the same."""
    _same_rows(predicted, right, 1)
    if np.isnan(predicted).any() or np.isnan(right).any():
        raise ValueError("numbers are ranked, and one here is nan")
    return pearson(_ranks(predicted), _ranks(right))


def _class_scores(hits: Counts, found: Counts, support: Counts) -> ClassScores:
    return ClassScores(_shares(hits, found), _shares(hits, support), _shares(2 * hits, found + support), support)


def _matthews(confusion: Counts) -> float:
    # In Python's integers, for the fourth power of the rows is soon more than 64 bits.
    rows, hits = int(confusion.sum()), int(confusion.trace())
    right, predicted = confusion.sum(axis=1).tolist(), confusion.sum(axis=0).tolist()
    apart = (rows**2 - sum(one * one for one in predicted)) * (rows**2 - sum(one * one for one in right))
    together = hits * rows - sum(one * other for one, other in zip(predicted, right, strict=True))
    return together / math.sqrt(apart) if apart else 0.0


def _shares(part: Any, whole: Any) -> Floats:
    shares = np.zeros(np.shape(whole))
    np.divide(part, whole, out=shares, where=np.asarray(whole) > 0)
    return shares


def _unit(values: Floats) -> Floats:
    """Moved to mean 0 and scaled to length 1; first to at most 1, so that the squares of tiny numbers do not vanish."""
    centerd = values - values.mean()
    centerd /= np.abs(centerd).max()
    unit: Floats = centerd / np.linalg.norm(centerd)
    return unit


def _ranks(values: npt.NDArray[Any]) -> Floats:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: Floats = (counts.cumsum() - (counts - 1) / 2)[inverse]
    return ranks


def _numbers(labels: npt.NDArray[Any], classes: int, name: str) -> npt.NDArray[np.int64]:
    if labels.dtype.kind not in "iu":
        raise ValueError(f"the {name} labels must be whole numbers, not {labels.dtype}")
    if not 0 <= int(labels.min()) <= int(labels.max()) < classes:
        raise ValueError(f"the {name} labels are {labels.min()} to {labels.max()}; known are 0 to {classes - 1}")
    return labels.astype(np.int64)


def _same_rows(predicted: npt.NDArray[Any], right: npt.NDArray[Any], axes: int) -> None:
    if predicted.shape != right.shape or right.ndim != axes or not right.size:
        shape = "(rows,)" if axes == 1 else "(rows, classes)"
        raise ValueError(f"both sides are {shape} of at least one, not {predicted.shape} and {right.shape}")
