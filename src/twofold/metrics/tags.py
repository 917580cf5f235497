"""Tags against the right ones, word by word."""

from __future__ import annotations

from twofold.metrics import HIGHER, Evaluation, Report

METRICS = {"accuracy": HIGHER}


def measure(evaluation: Evaluation) -> Report:
    """Let the model tag every sentence, then count the words that are right."""
    words = hits = 0
    for row, prediction in zip(evaluation.rows, evaluation.predictions(), strict=True):
        right = evaluation.output.gold(row)
        words += len(right)
        hits += sum(tag == other for tag, other in zip(prediction.output.tags, right, strict=True))
    return Report({"accuracy": hits / words}, len(evaluation.rows))
