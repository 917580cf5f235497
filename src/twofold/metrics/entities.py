"""Names that tags mark against the right ones: precision, recall and F1 of whole names."""

from __future__ import annotations

from twofold.metrics.judge import Judged
from twofold.metrics.report import Report
from twofold.metrics.tags import scores_of

METRICS = ("f1", "precision", "recall", "accuracy")


def measure(judged: Judged) -> Report:
    """Let the model tag every sentence, then count the names that are wholly right."""
    found = scores_of(judged)
    whole = found.entities
    metrics = {"f1": whole.f1, "precision": whole.precision, "recall": whole.recall, "accuracy": found.word_accuracy}
    table = [
        {"type": name, "precision": one.precision, "recall": one.recall, "f1": one.f1, "names": one.support}
        for name, one in found.by_type.items()
    ]
    return Report(metrics, len(judged.rows), {"types": table})
