"""Entities are found and counted as seqeval does by default, also where tags are not valid."""

from __future__ import annotations

import random

import pytest

from twofold.metrics.entities import Entity, EntityScores, entities, tag_scores

TAGS = ["O", "O", "B-PER", "I-PER", "I-PER", "B-LOC", "I-LOC", "I-LOC", "B-A-B", "I-A-B"]
MORE = [*TAGS, "E-PER", "S-PER", "E-LOC", "S-LOC", "B", "I", "E", "S"]


def made(seed: int, tags: list[str]) -> tuple[list[list[str]], list[list[str]]]:
    """Predicted and right tags of 20 sentences, valid or not, of which most words are the same."""
    draw = random.Random(seed)
    right = [draw.choices(tags, k=draw.randint(1, 12)) for _ in range(20)]
    return [[tag if draw.random() < 0.8 else draw.choice(tags) for tag in one] for one in right], right


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("", []),
        ("O O", []),
        ("B-PER I-PER O B-LOC", [("PER", 0, 1), ("LOC", 3, 3)]),
        ("B-PER B-PER", [("PER", 0, 0), ("PER", 1, 1)]),
        ("I-PER I-PER", [("PER", 0, 1)]),
        ("O I-PER", [("PER", 1, 1)]),
        ("B-PER I-LOC I-LOC", [("PER", 0, 0), ("LOC", 1, 2)]),
        ("I-LOC I-PER I-LOC", [("LOC", 0, 0), ("PER", 1, 1), ("LOC", 2, 2)]),
        ("B-A-B I-A-B I-A", [("A-B", 0, 1), ("A", 2, 2)]),
        ("B I O I", [("_", 0, 1), ("_", 3, 3)]),
        ("S-X B-X I-X E-X I-X", [("X", 0, 0), ("X", 1, 3), ("X", 4, 4)]),
    ],
)
def test_entities_by_hand(tags: str, expected: list[Entity]) -> None:
    assert entities(tags.split()) == expected


def test_scores_by_hand() -> None:
    right = [["B-PER", "I-PER", "O", "B-LOC"], ["B-PER", "O"], ["B-ORG"]]
    predicted = [["B-PER", "I-PER", "O", "B-PER"], ["I-PER", "I-PER"], ["O"]]
    scores = tag_scores(predicted, right)
    assert scores.entities == EntityScores(precision=1 / 3, recall=1 / 4, f1=2 / 7, support=4)
    assert scores.by_type == {
        "LOC": EntityScores(0, 0, 0, 1),
        "ORG": EntityScores(0, 0, 0, 1),
        "PER": EntityScores(precision=1 / 3, recall=1 / 2, f1=2 / 5, support=2),
    }
    assert list(scores.by_type) == ["LOC", "ORG", "PER"]
    assert scores.word_accuracy == 3 / 7


def test_the_way_an_entity_is_written_does_not_count() -> None:
    scores = tag_scores([["I-PER", "O"]], [["B-PER", "O"]])
    assert scores.entities == EntityScores(1, 1, 1, 1)
    assert scores.word_accuracy == 0.5


def test_without_entities_scores_are_0() -> None:
    scores = tag_scores([["O", "O"], []], [["O", "O"], []])
    assert scores.entities == EntityScores(0, 0, 0, 0)
    assert scores.by_type == {}
    assert scores.word_accuracy == 1


@pytest.mark.parametrize("tags", [TAGS, MORE])
@pytest.mark.parametrize("seed", range(20))
def test_scores_are_those_of_seqeval(seed: int, tags: list[str]) -> None:
    seqeval = pytest.importorskip("seqeval.metrics.sequence_labeling")
    predicted, right = made(seed, tags)
    for sentence in predicted + right:
        assert entities(sentence) == seqeval.get_entities(sentence)
    scores = tag_scores(predicted, right)
    table = seqeval.precision_recall_fscore_support(right, predicted, average=None, zero_division=0)
    ours = [(one.precision, one.recall, one.f1, one.support) for one in scores.by_type.values()]
    assert ours == [pytest.approx(row) for row in zip(*table, strict=True)]
    micro = seqeval.precision_recall_fscore_support(right, predicted, average="micro", zero_division=0)
    overall = scores.entities
    assert (overall.precision, overall.recall, overall.f1, overall.support) == pytest.approx(micro)
    assert scores.word_accuracy == pytest.approx(seqeval.accuracy_score(right, predicted))


@pytest.mark.parametrize(
    ("predicted", "right", "message"),
    [
        ([["O"]], [["O"], ["O"]], "1 predicted sentences, but 2 right ones"),
        ([["O"], ["O"]], [["O"], ["O", "O"]], "sentence 2: 1 predicted tags, but 2 words"),
        ([], [], "no word"),
        ([[]], [[]], "no word"),
    ],
)
def test_other_words_are_an_error(predicted: list[list[str]], right: list[list[str]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tag_scores(predicted, right)
