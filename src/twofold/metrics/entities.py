"""Entity spans that tags mark against the right ones: precision, recall and F1 of whole entities, and of each type."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from twofold.metrics import HIGHER, Evaluation, Report

METRICS = {"f1": HIGHER, "precision": HIGHER, "recall": HIGHER, "accuracy": HIGHER}
Entity = tuple[str, int, int]
"""Its type, its first word and its last."""


def measure(evaluation: Evaluation) -> Report:
    """Let the model tag every sentence, then count the entities that are wholly right."""
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
    """How well entities are found; what would divide by 0 is 0."""

    precision: float
    recall: float
    f1: float
    support: int
    """How many right entities there are."""


@dataclass(frozen=True)
class TagScores:
    """How well sentences are tagged."""

    entities: EntityScores
    """Over the entities of all types."""
    by_type: dict[str, EntityScores]
    """Of each type that is right or predicted somewhere, in alphabetical order."""
    word_accuracy: float
    """The share of the words whose tag is right."""


def tag_scores(predicted: Sequence[Sequence[str]], right: Sequence[Sequence[str]]) -> TagScores:
    """An entity is right if its type and its words are those of a right one, as conlleval and seqeval count."""
    if len(predicted) != len(right):
        raise ValueError(f"{len(predicted)} predicted sentences, but {len(right)} right ones")
    hits, found, support = Counter[str](), Counter[str](), Counter[str]()
    right_words = 0
    for number, (ours, theirs) in enumerate(zip(predicted, right, strict=True), 1):
        if len(ours) != len(theirs):
            raise ValueError(f"sentence {number}: {len(ours)} predicted tags, but {len(theirs)} words")
        right_words += sum(tag == other for tag, other in zip(ours, theirs, strict=True))
        predicted_here, right_here = entities(ours), entities(theirs)
        found.update(kind for kind, _, _ in predicted_here)
        support.update(kind for kind, _, _ in right_here)
        hits.update(kind for kind, _, _ in set(predicted_here) & set(right_here))
    words = sum(map(len, right))
    if not words:
        raise ValueError("there is no word to judge tags by")
    return TagScores(
        entities=_scores(hits.total(), found.total(), support.total()),
        by_type={kind: _scores(hits[kind], found[kind], support[kind]) for kind in sorted(found | support)},
        word_accuracy=right_words / words,
    )


def entities(tags: Sequence[str]) -> list[Entity]:
    """The entities of one sentence: O is outside, and B, I, E or S are followed by "-" and a type, or by nothing ("_").

    B and S begin an entity, and so does any other tag that follows O, the end of an entity (E or S), or another type.
    """
    found, start = [], 0
    before, kind_before = "O", ""
    for place, tag in enumerate([*tags, "O"]):
        now, kind = tag[:1], tag[1:].split("-", maxsplit=1)[-1] or "_"
        other = kind != kind_before
        if before in "ES" or (before in "BI" and now in "BSO") or (before != "O" and other):
            found.append((kind_before, start, place - 1))
        if now in "BS" or (now in "EI" and before in "ESO") or (now != "O" and other):
            start = place
        before, kind_before = now, kind
    return found


def _scores(hits: int, found: int, support: int) -> EntityScores:
    f1 = 2 * hits / max(found + support, 1)
    return EntityScores(hits / max(found, 1), hits / max(support, 1), f1, support)
