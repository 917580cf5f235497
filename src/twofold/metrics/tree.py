"""Dependency trees compared with the right ones: shares of words with the right head, relation, or both."""

from __future__ import annotations

from collections.abc import Sequence

from twofold.data.conll import universal
from twofold.metrics import HIGHER, Evaluation, Report

METRICS = {"las": HIGHER, "uas": HIGHER, "label_accuracy": HIGHER, "whole_trees": HIGHER}
"""Metrics: shares of the words with the right head and relation, the right head, the right relation; and of the
sentences in which every head and every relation is right."""
Arc = tuple[int, str]
"""Head of a word, from 1 (0 is the root), and relation to it."""


def measure(evaluation: Evaluation) -> Report:
    """Parses every sentence and compares."""
    right, trees = evaluation.compared()
    predicted = [list(zip(tree.heads, tree.relations, strict=True)) for tree in trees]
    return Report(tree_scores(predicted, [list(zip(*tree, strict=True)) for tree in right]), len(right))


def tree_scores(predicted: Sequence[Sequence[Arc]], right: Sequence[Sequence[Arc]]) -> dict[str, float]:
    """Scores of trees as CoNLL 2018 counts: all words, punctuation too, and relations up to their ":".

    Both sides have one arc for each word. The words are those of the right trees; a parser that splits a sentence
    otherwise is not judged here.
    """
    if len(predicted) != len(right):
        raise ValueError(f"{len(predicted)} predicted trees, but {len(right)} right ones")
    words = heads = relations = both = whole = 0
    for number, (ours, theirs) in enumerate(zip(predicted, right, strict=True), 1):
        if len(ours) != len(theirs) or not len(theirs):
            raise ValueError(f"sentence {number}: {len(ours)} predicted arcs and {len(theirs)} words: need as many")
        arcs = list(zip(ours, theirs, strict=True))
        same_head = [arc[0] == other[0] for arc, other in arcs]
        same_relation = [universal(arc[1]) == universal(other[1]) for arc, other in arcs]
        same = sum(map(all, zip(same_head, same_relation, strict=True)))
        words += len(theirs)
        heads += sum(same_head)
        relations += sum(same_relation)
        both += same
        whole += same == len(theirs)
    if not words:
        raise ValueError("there are no sentences to evaluate")
    return {
        "las": both / words,
        "uas": heads / words,
        "label_accuracy": relations / words,
        "whole_trees": whole / len(right),
    }
