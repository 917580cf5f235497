"""Trees against the right ones: the share of words that hang from the right one, and rightly."""

from __future__ import annotations

from twofold.data.words import TreeField
from twofold.metrics.judge import Judged
from twofold.metrics.report import Report
from twofold.metrics.tree_scores import tree_scores

METRICS = ("las", "uas", "label_accuracy", "whole_trees")


def measure(judged: Judged) -> Report:
    """Let the model parse every sentence, then compare."""
    field: TreeField = judged.model.targets[judged.decoder]
    right = [list(zip(*field.gold(row), strict=True)) for row in judged.rows]
    trees = [prediction.output for prediction in judged.predictions()]
    found = tree_scores([list(zip(tree.heads, tree.relations, strict=True)) for tree in trees], right)
    metrics = {"las": found.las, "uas": found.uas, "label_accuracy": found.label_accuracy, "whole_trees": found.whole}
    return Report(metrics, len(right))
