"""Dependency trees against the right ones: the shares of words with the right head, relation, or both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from twofold.data.conll import universal
from twofold.metrics import HIGHER, Evaluation, Report

METRICS = {"las": HIGHER, "uas": HIGHER, "label_accuracy": HIGHER, "whole_trees": HIGHER}
Arc = tuple[int, str]
"""What a word hangs from, counted from 1 with 0 for the root, and by which relation."""


def measure(evaluation: Evaluation) -> Report:
    """Let the model parse every sentence, then compare."""
    right = [list(zip(*evaluation.output.gold(row), strict=True)) for row in evaluation.rows]
    trees = [prediction.output for prediction in evaluation.predictions()]
    scores = tree_scores([list(zip(tree.heads, tree.relations, strict=True)) for tree in trees], right)
    metrics = {"las": scores.las, "uas": scores.uas, "label_accuracy": scores.label_accuracy}
    return Report({**metrics, "whole_trees": scores.whole}, len(right))


@dataclass(frozen=True)
class TreeScores:
    """How well sentences are parsed, as CoNLL 2018 counts: all words, punctuation too, and relations up to their ":".

    The words are those of the right trees; a parser that splits a sentence otherwise is not judged here.
    """

    uas: float
    """The share of the words with the right head."""
    las: float
    """The share of the words with the right head and the right relation."""
    label_accuracy: float
    """The share of the words with the right relation, whatever their heads."""
    whole: float
    """The share of the sentences in which every head and every relation is right."""


def tree_scores(predicted: Sequence[Sequence[Arc]], right: Sequence[Sequence[Arc]]) -> TreeScores:
    """One arc for each word of each sentence, on both sides."""
    if len(predicted) != len(right):
        raise ValueError(f"{len(predicted)} predicted trees, but {len(right)} right ones")
    words = heads = relations = both = whole = 0
    for number, (ours, theirs) in enumerate(zip(predicted, right, strict=True), 1):
        if len(ours) != len(theirs) or not len(theirs):
            raise ValueError(f"sentence {number}: {len(ours)} predicted arcs and {len(theirs)} words: need as many")
        same_head = [one[0] == other[0] for one, other in zip(ours, theirs, strict=True)]
        same_relation = [universal(one[1]) == universal(other[1]) for one, other in zip(ours, theirs, strict=True)]
        same = sum(a and b for a, b in zip(same_head, same_relation, strict=True))
        words += len(theirs)
        heads += sum(same_head)
        relations += sum(same_relation)
        both += same
        whole += same == len(theirs)
    if not words:
        raise ValueError("there is no sentence to judge trees by")
    return TreeScores(heads / words, both / words, relations / words, whole / len(right))
