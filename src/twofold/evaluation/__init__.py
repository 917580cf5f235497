"""How good a model is: one metric family a file, chosen by the decoder."""

from twofold.evaluation.judge import Report, evaluate, metric_names

__all__ = ["Report", "evaluate", "metric_names"]
