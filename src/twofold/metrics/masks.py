"""Masks against the right ones, pixel by pixel: accuracy, intersection over union, and Dice."""

from __future__ import annotations

from typing import Any, cast

from twofold.data.image_fields import MaskField
from twofold.data.views import UNCOUNTED
from twofold.metrics.judge import Judged
from twofold.metrics.mask_scores import Confusion
from twofold.metrics.report import Report
from twofold.results import Mask

METRICS = ("pixel_accuracy", "miou", "dice")
ROWS = 64


def measure(judged: Judged) -> Report:
    """Let the model paint every image in its own size, then compare; some images at a time."""
    model = judged.model
    field: MaskField = model.targets[judged.decoder]
    confusion = Confusion(len(field.classes))
    for start in range(0, len(judged.rows), ROWS):
        rows = judged.rows[start : start + ROWS]
        images = [row.values[model.source.column] for row in rows]
        for row, prediction in zip(rows, model.predict(images, decoder=judged.decoder), strict=True):
            right, painted = field.gold(row), cast(Mask, prediction.output).pixels
            counts = right != UNCOUNTED
            confusion.add(painted, right * counts, counts)
        if judged.progress:
            judged.progress(start + len(rows))
    metrics = {
        "pixel_accuracy": confusion.pixel_accuracy,
        "miou": confusion.mean_iou,
        "dice": confusion.mean_dice,
    }
    classes: list[dict[str, Any]] = [
        {"class": name, "iou": float(iou), "dice": float(dice)}
        for name, iou, dice in zip(field.classes.names, confusion.iou, confusion.dice, strict=True)
    ]
    return Report(metrics, len(judged.rows), {"classes": classes})
