"""Loss and perplexity: how surprised the model is by each token of the right text."""

from __future__ import annotations

import math
from dataclasses import replace

from twofold.metrics import loss
from twofold.metrics.judge import Judged
from twofold.metrics.report import Report

METRICS = (*loss.METRICS, "perplexity")


def measure(judged: Judged) -> Report:
    """Perplexity is the exponential of the mean loss of a token."""
    report = loss.measure(judged)
    perplexity = math.exp(min(report.metrics["loss"], 700.0))
    return replace(report, metrics={**report.metrics, "perplexity": perplexity})
