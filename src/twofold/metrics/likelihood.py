"""Loss and perplexity of the tokens of the right text."""

from __future__ import annotations

import math
from dataclasses import replace

from twofold.metrics import LOWER, Evaluation, Report, loss

METRICS = {**loss.METRICS, "perplexity": LOWER}


def measure(evaluation: Evaluation) -> Report:
    """Measures the mean loss of a token, and perplexity, its exponential."""
    report = loss.measure(evaluation)
    if "loss" not in report.metrics:
        return report
    perplexity = math.exp(min(report.metrics["loss"], 700.0))
    return replace(report, metrics={**report.metrics, "perplexity": perplexity})
