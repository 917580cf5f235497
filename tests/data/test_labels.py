"""What a row is: one label, several, or a number; as it stands in a file, and as a decoder learns it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.conftest import write_jsonl
from twofold.data.cache import Cache
from twofold.data.fields import TextField
from twofold.data.files import Row
from twofold.data.labels import Answers, LabelField
from twofold.data.tokenizer import TextTokenizer
from twofold.data.training import TrainingRows
from twofold.errors import TwofoldError
from twofold.types import Classes, Numbers, Target

NAMES = Classes(("bad", "good", "odd"))


def field(answers: Answers) -> LabelField:
    return LabelField("label", answers, Numbers(2.0, 0.5) if answers == "number" else NAMES)


def row(value: Any) -> Row:
    return Row("rows:4", {"text": "x", "label": value})


def target(answers: Answers, *values: Any) -> Target:
    one = field(answers)
    return one.target(one.encode([row(value) for value in values]).ids)


@pytest.mark.parametrize(("value", "label"), [("good", "good"), (" good ", "good"), (1, "1"), (True, "True"), (0, "0")])
def test_one_label_is_a_text_a_number_or_true(value: Any, label: str) -> None:
    assert field("one").gold(row(value)) == [label]


@pytest.mark.parametrize(
    ("value", "labels"),
    [
        (["good", "odd"], ["good", "odd"]),
        ("good|odd", ["good", "odd"]),
        (" good | odd ", ["good", "odd"]),
        ("good", ["good"]),
        ("", []),
        ([], []),
        ("|good|", ["good"]),
    ],
)
def test_several_labels_are_a_list_or_a_text_and_may_be_none(value: Any, labels: list[str]) -> None:
    assert field("many").gold(row(value)) == labels


@pytest.mark.parametrize(("value", "number"), [(3, 3.0), ("3", 3.0), (" -2.5e1 ", -25.0), (0, 0.0)])
def test_a_number_may_stand_as_a_text(value: Any, number: float) -> None:
    assert field("number").gold(row(value)) == number


@pytest.mark.parametrize(
    ("answers", "value", "said"),
    [
        ("one", None, "no 'label' here; this row has text, label"),
        ("one", "  ", "'label' must hold one label"),
        ("one", ["good"], "'label' must hold one label"),
        ("one", {"good": 1}, "'label' must hold one label"),
        ("many", None, "no 'label' here"),
        ("many", 5, "'label' must be a list of labels, or a text with | between them"),
        ("number", "four", "'label' is 'four' and not a number"),
        ("number", None, "'label' is None and not a number"),
        ("number", "", "'label' is '' and not a number"),
        ("number", "nan", "'label' is 'nan' and not a number"),
        ("number", "inf", "'label' is 'inf' and not a number"),
        ("number", [1], r"'label' is [1] and not a number"),
    ],
)
def test_what_is_no_label_or_number_is_named(answers: Answers, value: Any, said: str) -> None:
    with pytest.raises(TwofoldError) as caught:
        field(answers).encode([row(value)])
    assert str(caught.value).startswith(f"rows:4: {said}")


def test_one_label_is_learned_as_its_number_and_one_never_seen_does_not_count() -> None:
    found = target("one", "odd", "never", "bad")
    assert found.mask.tolist() == [[True], [False], [True]]
    assert found.tokens[found.mask].tolist() == [2, 0]
    assert found.tokens.dtype == torch.long


def test_several_labels_are_learned_as_yes_or_no_to_each() -> None:
    found = target("many", ["odd", "bad"], [], "good|never")
    assert found.tokens.tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
    assert found.mask.all()


def test_a_number_is_learned_as_it_is() -> None:
    assert target("number", 2.5, "-1e3").tokens.tolist() == [[2.5], [-1000.0]]


@pytest.mark.parametrize(
    ("answers", "values"), [("one", ["odd", "good"]), ("many", [["odd"], []]), ("number", [0.25, 7])]
)
def test_a_cache_gives_the_same_target(answers: Answers, values: list[Any], tmp_path: Path) -> None:
    one = field(answers)
    cache = Cache.of(write_jsonl(tmp_path / "rows.jsonl", [{"label": value} for value in values]), {"main": one})
    found, expected = one.target([cache.columns["main"].row(n) for n in range(2)]), target(answers, *values)
    assert torch.equal(found.tokens, expected.tokens)
    assert torch.equal(found.mask, expected.mask)


def test_many_labels_do_not_make_batches_smaller(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    many = LabelField("label", "many", Classes(tuple(map(str, range(1000)))))
    source = TextField("text", tokenizer, 30)
    path = write_jsonl(tmp_path / "rows.jsonl", [{"text": "a b c", "label": str(n)} for n in range(12)])
    cache = Cache.of(path, {**source.columns(), "main": many})
    length = int(source.lengths(cache)[0])
    plan = TrainingRows(cache, np.arange(12), source, {"main": many}, 6 * length, None, 1).plan(0)
    assert [len(plan.rows(number)) for number in range(len(plan))] == [6, 6]
