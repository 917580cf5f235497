"""How good a model is: one metric family a file, chosen by the decoder."""

from twofold.metrics.judge import evaluate, metric_names
from twofold.metrics.report import Report

__all__ = ["Report", "evaluate", "metric_names"]
