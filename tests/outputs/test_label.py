"""Labels of a row (one, several, or a number), in a file and as the decoder's target."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch

from tests.conftest import input_of, output_of, write_jsonl
from twofold.data.cache import Cache
from twofold.data.files import Row
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.inputs import BatchSizes
from twofold.model.batches import TrainingRows
from twofold.outputs import ColumnOutput
from twofold.types import HiddenSpec, Target

Kind = Literal["label", "labels", "number"]

NAMES = ("bad", "good", "odd")


def output(kind: Kind, names: tuple[str, ...] = NAMES) -> ColumnOutput[Any]:
    settings: dict[str, Any] = {"mean": 2.0, "deviation": 0.5} if kind == "number" else {"names": list(names)}
    built = output_of(kind, column="label", **settings).build("main", input_of("image").build(None), None, HiddenSpec())
    assert isinstance(built, ColumnOutput)
    return built


def row(value: Any) -> Row:
    return Row("rows:4", {"text": "x", "label": value})


def target(kind: Kind, *values: Any) -> Target:
    answers = output(kind)
    return answers.target(answers.encode([row(value) for value in values]).ids)


@pytest.mark.parametrize(("value", "label"), [("good", "good"), (" good ", "good"), (1, "1"), (True, "True"), (0, "0")])
def test_one_label_is_a_text_a_number_or_true(value: Any, label: str) -> None:
    assert output("label").gold(row(value)) == label


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
    assert output("labels").gold(row(value)) == labels


@pytest.mark.parametrize(("value", "number"), [(3, 3.0), ("3", 3.0), (" -2.5e1 ", -25.0), (0, 0.0)])
def test_a_number_may_stand_as_a_text(value: Any, number: float) -> None:
    assert output("number").gold(row(value)) == number


@pytest.mark.parametrize(
    ("kind", "value", "said"),
    [
        ("label", None, "no 'label' here; this row has text, label"),
        ("label", "  ", "'label' must hold one label"),
        ("label", ["good"], "'label' must hold one label"),
        ("label", {"good": 1}, "'label' must hold one label"),
        ("labels", None, "no 'label' here"),
        ("labels", 5, "'label' must be a list of labels, or a text with | between them"),
        ("number", "four", "'label' is 'four' and not a number"),
        ("number", None, "'label' is None and not a number"),
        ("number", "", "'label' is '' and not a number"),
        ("number", "nan", "'label' is 'nan' and not a number"),
        ("number", "inf", "'label' is 'inf' and not a number"),
        ("number", [1], r"'label' is [1] and not a number"),
    ],
)
def test_what_is_no_label_or_number_is_named(kind: Kind, value: Any, said: str) -> None:
    with pytest.raises(TwofoldError) as caught:
        output(kind).encode([row(value)])
    assert str(caught.value).startswith(f"rows:4: {said}")


def test_one_label_is_learned_as_its_number_and_one_never_seen_does_not_count() -> None:
    numbers = target("label", "odd", "never", "bad")
    assert numbers.mask.tolist() == [[True], [False], [True]]
    assert numbers.tokens[numbers.mask].tolist() == [2, 0]
    assert numbers.tokens.dtype == torch.long


def test_several_labels_are_learned_as_yes_or_no_to_each() -> None:
    marks = target("labels", ["odd", "bad"], [], "good|never")
    assert marks.tokens.tolist() == [[1, 0, 1], [0, 0, 0], [0, 1, 0]]
    assert marks.mask.all()


def test_a_number_is_learned_as_it_is() -> None:
    assert target("number", 2.5, "-1e3").tokens.tolist() == [[2.5], [-1000.0]]


@pytest.mark.parametrize(
    ("kind", "values"), [("label", ["odd", "good"]), ("labels", [["odd"], []]), ("number", [0.25, 7])]
)
def test_a_cache_gives_the_same_target(kind: Kind, values: list[Any], tmp_path: Path) -> None:
    answers = output(kind)
    path = write_jsonl(tmp_path / "rows.jsonl", [{"label": value} for value in values])
    cache = Cache.of(path, answers.columns())
    cached, expected = answers.target([answers.cached(cache, n) for n in range(2)]), target(kind, *values)
    assert torch.equal(cached.tokens, expected.tokens)
    assert torch.equal(cached.mask, expected.mask)


def test_many_labels_do_not_make_batches_smaller(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    many = output("labels", tuple(map(str, range(1000))))
    source = input_of("text", column="text", max_tokens=30).build(tokenizer)
    path = write_jsonl(tmp_path / "rows.jsonl", [{"text": "a b c", "label": str(n)} for n in range(12)])
    cache = Cache.of(path, {**source.columns(), **many.columns()})
    length = int(source.lengths(cache)[0])
    plan = TrainingRows(cache, np.arange(12), source, [many], BatchSizes(6 * length, None, 1)).plan(0)
    assert [len(plan.rows(number)) for number in range(len(plan))] == [6, 6]
