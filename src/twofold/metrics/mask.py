"""Masks compared with the right ones, pixel by pixel: accuracy, intersection over union, and Dice."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt

from twofold.data.views import UNCOUNTED
from twofold.metrics import HIGHER, Evaluation, Report
from twofold.results import Mask

METRICS = {"pixel_accuracy": HIGHER, "miou": HIGHER, "dice": HIGHER}
ROWS = 64
"""Number of images whose masks are in memory at a time."""


def measure(evaluation: Evaluation) -> Report:
    """Segments every image in its own size and compares, some images at a time."""
    classes, count = evaluation.classes, len(evaluation.rows)
    confusion = Confusion(len(classes))
    for start in range(0, count, ROWS):
        rows = evaluation.rows[start : start + ROWS]
        for row, prediction in zip(rows, evaluation.predictions(rows), strict=True):
            right, painted = evaluation.output.gold(row), cast(Mask, prediction.output).pixels
            counts = right != UNCOUNTED
            confusion.add(painted, right * counts, counts)
        if evaluation.progress:
            evaluation.progress(start + len(rows))
    metrics = {"pixel_accuracy": confusion.pixel_accuracy, "miou": confusion.mean_iou, "dice": confusion.mean_dice}
    lines = zip(classes.names, confusion.iou.tolist(), confusion.dice.tolist(), strict=True)
    table = [{"class": name, "iou": iou, "dice": dice} for name, iou, dice in lines]
    return Report(metrics, count, {"classes": table})


class Confusion:
    """Confusion matrix over any number of masks: pixels of each right class that were predicted as each class.

    A class that occurs neither in the right nor in the predicted masks has no IoU and no Dice: they are nan, and the
    means leave it out. Before any pixel has counted, everything is nan.
    """

    def __init__(self, classes: int) -> None:
        if classes < 1:
            raise ValueError(f"masks have at least 1 class, not {classes}")
        self.matrix = np.zeros((classes, classes), np.int64)  # (right class, written class)

    def add(self, written: npt.NDArray[Any], right: npt.NDArray[Any], counts: npt.NDArray[np.bool_]) -> None:
        """Counts the pixels where `counts` is true; elsewhere the masks may hold anything, such as 255."""
        if not written.shape == right.shape == counts.shape:
            raise ValueError(f"shapes differ: {written.shape} written, {right.shape} right, {counts.shape} that count")
        if counts.dtype != np.bool_:
            raise ValueError(f"the pixels that count must be an array of bool, not {counts.dtype}")
        classes = len(self.matrix)
        cells = self._numbers(right[counts], "right") * classes + self._numbers(written[counts], "written")
        self.matrix += np.bincount(cells, minlength=classes**2).reshape(classes, classes)

    @property
    def pixel_accuracy(self) -> float:
        """Share of the pixels that are right."""
        pixels = int(self.matrix.sum())
        return int(self.matrix.trace()) / pixels if pixels else float("nan")

    @property
    def iou(self) -> npt.NDArray[np.float64]:
        """Intersection over union (IoU) of each class, (classes,)."""
        hits = self.matrix.diagonal()
        return _shares(hits, self._sizes - hits)

    @property
    def mean_iou(self) -> float:
        """Mean over the classes that occur."""
        return _mean(self.iou)

    @property
    def dice(self) -> npt.NDArray[np.float64]:
        """Dice of each class, (classes,): twice the intersection over the sum of both sizes."""
        return _shares(2 * self.matrix.diagonal(), self._sizes)

    @property
    def mean_dice(self) -> float:
        """Mean over the classes that occur."""
        return _mean(self.dice)

    @property
    def _sizes(self) -> Any:
        """Number of right plus number of predicted pixels of each class."""
        return self.matrix.sum(axis=0) + self.matrix.sum(axis=1)

    def _numbers(self, mask: npt.NDArray[Any], name: str) -> npt.NDArray[np.int64]:
        """Converts class ids to int64, as a product of two small integers overflows; refuses ids out of range."""
        if mask.dtype.kind not in "biu":
            raise ValueError(f"the {name} mask must hold whole numbers, not {mask.dtype}")
        if mask.size and not 0 <= int(mask.min()) <= int(mask.max()) < len(self.matrix):
            raise ValueError(
                f"the {name} mask holds classes {mask.min()} to {mask.max()}; known are 0 to {len(self.matrix) - 1}"
            )
        return mask.astype(np.int64)


def _shares(part: npt.NDArray[np.int64], whole: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    return part / np.where(whole > 0, whole, np.nan)


def _mean(values: npt.NDArray[np.float64]) -> float:
    occurring = values[~np.isnan(values)]
    return float(occurring.mean()) if len(occurring) else float("nan")
