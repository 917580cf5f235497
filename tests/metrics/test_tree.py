"""Tree scores count every word, and relations without their subtypes."""

from __future__ import annotations

import random
from itertools import chain

import pytest

from twofold.metrics.tree import METRICS, Arc, tree_scores

RIGHT: list[list[Arc]] = [
    [(2, "nsubj:pass"), (0, "root"), (2, "obl"), (2, "punct")],
    [(0, "root"), (1, "obj")],
]
PERFECT = dict.fromkeys(METRICS, 1)


def test_scores_by_hand() -> None:
    predicted: list[list[Arc]] = [
        [(2, "nsubj"), (0, "root"), (4, "obl:arg"), (3, "obj")],  # head and relation right, twice; relation; neither
        [(0, "root"), (1, "nmod")],  # both; head
    ]
    assert tree_scores(predicted, RIGHT) == {"uas": 4 / 6, "las": 3 / 6, "label_accuracy": 4 / 6, "whole_trees": 0}


def test_the_right_trees_score_1() -> None:
    assert tree_scores(RIGHT, RIGHT) == PERFECT


def test_subtypes_are_left_out_on_both_sides() -> None:
    plain = [[(head, relation.split(":")[0]) for head, relation in tree] for tree in RIGHT]
    other = [[(head, f"{relation}:else") for head, relation in tree] for tree in plain]
    assert tree_scores(plain, RIGHT) == tree_scores(RIGHT, plain) == tree_scores(other, RIGHT) == PERFECT
    assert tree_scores([[(0, "rooted")]], [[(0, "root")]])["las"] == 0


def test_a_sentence_is_whole_with_every_head_and_relation() -> None:
    tree: list[Arc] = [(0, "root"), (1, "nmod")]
    assert tree_scores([RIGHT[0], tree], RIGHT)["whole_trees"] == 0.5
    assert tree_scores([RIGHT[0], [(2, "root"), (1, "obj")]], RIGHT)["whole_trees"] == 0.5


def test_scores_are_those_of_a_plain_count() -> None:
    draw = random.Random(1)

    def trees() -> list[list[Arc]]:
        return [[(draw.randint(0, 2), draw.choice(["a", "a:x", "b", "b:y:z"])) for _ in range(3)] for _ in range(200)]

    predicted, right = trees(), trees()
    pairs = list(zip(chain(*predicted), chain(*right), strict=True))
    scores = tree_scores(predicted, right)
    assert scores["uas"] == sum(one[0] == other[0] for one, other in pairs) / 600
    assert scores["label_accuracy"] == sum(one[1][0] == other[1][0] for one, other in pairs) / 600
    assert scores["las"] == sum((one[0], one[1][0]) == (other[0], other[1][0]) for one, other in pairs) / 600
    assert scores["las"] < min(scores["uas"], scores["label_accuracy"])


@pytest.mark.parametrize(
    ("predicted", "right", "message"),
    [
        ([], RIGHT, "0 predicted trees, but 2 right ones"),
        ([RIGHT[0], RIGHT[0]], RIGHT, "sentence 2: 4 predicted arcs and 2 words"),
        ([[]], [[]], "sentence 1: 0 predicted arcs and 0 words"),
        ([], [], "no sentence"),
    ],
)
def test_other_words_are_an_error(predicted: list[list[Arc]], right: list[list[Arc]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tree_scores(predicted, right)
