"""How good a model is: one metric family a file, chosen by the decoder."""

from twofold.evaluation.judge import evaluate, metric_names
from twofold.evaluation.report import Report

__all__ = ["Report", "evaluate", "metric_names"]
