"""Entity spans of tags, compared with the right ones: precision, recall and F1, over all types and by type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from twofold.metrics import HIGHER, Evaluation, Report

METRICS = {"f1": HIGHER, "precision": HIGHER, "recall": HIGHER, "accuracy": HIGHER}
Entity = tuple[str, int, int]
"""Type of an entity, index of its first word, and of its last word."""


def measure(evaluation: Evaluation) -> Report:
    """Tags every sentence and compares the entities with the right ones."""
    right, answers = evaluation.compared()
    scores = tag_scores([answer.tags for answer in answers], right)
    whole = scores.entities
    metrics = {"f1": whole.f1, "precision": whole.precision, "recall": whole.recall, "accuracy": scores.word_accuracy}
    table = [
        {"type": name, "precision": kind.precision, "recall": kind.recall, "f1": kind.f1, "names": kind.support}
        for name, kind in scores.by_type.items()
    ]
    return Report(metrics, len(evaluation.rows), {"types": table})


@dataclass(frozen=True)
class EntityScores:
    """Scores of entities; a division by 0 gives 0."""

    precision: float
    recall: float
    f1: float
    support: int
    """Number of right entities."""


@dataclass(frozen=True)
class TagScores:
    """Scores of tags."""

    entities: EntityScores
    """Scores over the entities of all types."""
    by_type: dict[str, EntityScores]
    """Scores of each type that is right or predicted somewhere, in alphabetical order."""
    word_accuracy: float
    """Share of the words whose tag is right."""


def tag_scores(predicted: Sequence[Sequence[str]], right: Sequence[Sequence[str]]) -> TagScores:
    """Compares tags; an entity is right if type and span match a right one, as conlleval and seqeval count."""
    if len(predicted) != len(right):
        raise ValueError(f"{len(predicted)} predicted sentences, but {len(right)} right ones")
    hits, answered, support = Counter[str](), Counter[str](), Counter[str]()
    right_words = 0
    for number, (ours, theirs) in enumerate(zip(predicted, right, strict=True), 1):
        if len(ours) != len(theirs):
            raise ValueError(f"sentence {number}: {len(ours)} predicted tags, but {len(theirs)} words")
        right_words += sum(tag == other for tag, other in zip(ours, theirs, strict=True))
        predicted_here, right_here = entities(ours), entities(theirs)
        answered.update(kind for kind, _, _ in predicted_here)
        support.update(kind for kind, _, _ in right_here)
        hits.update(kind for kind, _, _ in set(predicted_here) & set(right_here))
    words = sum(map(len, right))
    if not words:
        raise ValueError("there are no words to evaluate")
    return TagScores(
        entities=_scores(hits.total(), answered.total(), support.total()),
        by_type={kind: _scores(hits[kind], answered[kind], support[kind]) for kind in sorted(answered | support)},
        word_accuracy=right_words / words,
    )


def entities(tags: Sequence[str]) -> list[Entity]:
    """Entities of one sentence: O is outside, and B, I, E or S are followed by "-" and a type, or by nothing ("_").

    B and S begin an entity, and so does any other tag that follows O, the end of an entity (E or S), or another type.
    """
    spans, start = [], 0
    before, kind_before = "O", ""
    for place, tag in enumerate([*tags, "O"]):
        now, kind = tag[:1], tag[1:].split("-", maxsplit=1)[-1] or "_"
        other = kind != kind_before
        if before in "ES" or (before in "BI" and now in "BSO") or (before != "O" and other):
            spans.append((kind_before, start, place - 1))
        if now in "BS" or (now in "EI" and before in "ESO") or (now != "O" and other):
            start = place
        before, kind_before = now, kind
    return spans


def _scores(hits: int, answered: int, support: int) -> EntityScores:
    f1 = 2 * hits / max(answered + support, 1)
    return EntityScores(hits / max(answered, 1), hits / max(support, 1), f1, support)
