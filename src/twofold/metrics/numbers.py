"""Estimated numbers against the right ones: Pearson's and Spearman's correlation."""

from __future__ import annotations

import numpy as np

from twofold.data.labels import LabelField
from twofold.metrics.judge import Judged
from twofold.metrics.label_scores import pearson, spearman
from twofold.metrics.report import Report

METRICS = ("pearson", "spearman")


def measure(judged: Judged) -> Report:
    """Let the model estimate every number, then compare."""
    field: LabelField = judged.model.targets[judged.decoder]
    right = np.array([field.gold(row) for row in judged.rows])
    found = np.array([prediction.output for prediction in judged.predictions()])
    return Report({"pearson": pearson(found, right), "spearman": spearman(found, right)}, len(right))
