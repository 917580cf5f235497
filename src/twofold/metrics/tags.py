"""Tags against the right ones, word by word."""

from __future__ import annotations

from twofold.data.words import TagsField
from twofold.metrics.judge import Judged
from twofold.metrics.report import Report
from twofold.metrics.tag_scores import TagScores, tag_scores

METRICS: tuple[str, ...] = ("accuracy",)


def measure(judged: Judged) -> Report:
    """Let the model tag every sentence, then count the words that are right."""
    return Report({"accuracy": scores_of(judged).word_accuracy}, len(judged.rows))


def scores_of(judged: Judged) -> TagScores:
    """What the model's tags are worth."""
    field: TagsField = judged.model.targets[judged.decoder]
    right = [field.gold(row) for row in judged.rows]
    return tag_scores([list(prediction.output.tags) for prediction in judged.predictions()], right)
