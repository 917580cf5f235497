"""Predicted numbers compared with the right ones: Pearson's and Spearman's correlation."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from twofold.metrics import HIGHER, Evaluation, Report
from twofold.metrics.label import same_rows

METRICS = {"pearson": HIGHER, "spearman": HIGHER}
Floats = npt.NDArray[np.float64]


def measure(evaluation: Evaluation) -> Report:
    """Predicts every number and compares."""
    right, estimated = map(np.array, evaluation.compared())
    return Report({"pearson": pearson(estimated, right), "spearman": spearman(estimated, right)}, len(right))


def pearson(predicted: npt.NDArray[Any], right: npt.NDArray[Any]) -> float:
    """Pearson's (linear) correlation, from -1 to 1; 0 if all numbers of one side are the same."""
    same_rows(predicted, right, 1)
    sides = [np.asarray(side, np.float64) for side in (predicted, right)]
    if not all(np.isfinite(side).all() for side in sides):
        raise ValueError("numbers must be finite")
    if any((side == side[0]).all() for side in sides):
        return 0.0
    ours, theirs = (_unit(side) for side in sides)
    return float(np.clip(ours @ theirs, -1, 1))


def spearman(predicted: npt.NDArray[Any], right: npt.NDArray[Any]) -> float:
    """Spearman's rank correlation; equal numbers share their mean rank; 0 if all of one side are the same."""
    same_rows(predicted, right, 1)
    if np.isnan(predicted).any() or np.isnan(right).any():
        raise ValueError("numbers must not be nan")
    return pearson(_ranks(predicted), _ranks(right))


def _unit(values: Floats) -> Floats:
    """Centers numbers and scales them to length 1; first to at most 1, so that squares of tiny numbers stay above 0."""
    centerd = values - values.mean()
    centerd /= np.abs(centerd).max()
    return np.asarray(centerd / np.linalg.norm(centerd))


def _ranks(values: npt.NDArray[Any]) -> Floats:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return np.asarray(counts.cumsum() - (counts - 1) / 2)[inverse]
