"""Inputs of a ranker: texts in any list, rows with ids, and one clear line about everything else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tests.conftest import decoder, encoder
from tests.rankers import small_ranker
from twofold.api import evaluate
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.model import Ranker

TEXTS = ["one hundred", "seven", "twelve and two", "nine"]


@pytest.fixture(scope="module", params=["bi", "cross"])
def ranker(request: pytest.FixtureRequest, tokenizer: TextTokenizer) -> Ranker:
    return small_ranker(tokenizer, encoder("rnn"), decoder(request.param)).eval()


def refusal(call: Callable[[], Any]) -> str:
    with pytest.raises(TwofoldError) as caught:
        call()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_bare_text_is_not_a_list_of_its_letters(ranker: Ranker) -> None:
    chosen = ranker.prepare(TEXTS)
    calls: list[Callable[[], Any]] = [
        lambda: ranker.prepare("seven"),
        lambda: ranker.prepare(TEXTS, ids="abcd"),
        lambda: ranker.rank("one", "seven"),
        lambda: ranker.embed_candidates("seven"),
        lambda: ranker.embed_contexts("seven"),
        lambda: ranker.score("seven", chosen),
        lambda: ranker.score(["one"], "seven"),
        lambda: ranker.score_pairs("ab"),  # type: ignore[arg-type]
    ]
    for call in calls:
        assert "one text, where a list is wanted; put it in brackets: [" in refusal(call)
    assert refusal(lambda: ranker.score_pairs(["ab"])) == "pairs[0]: not a pair; give (context, candidate)"  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (None, "texts: None, where a list is wanted"),
        (7, "texts: a value of type int, where a list is wanted"),
        (b"seven", "texts: a value of type bytes, where a list is wanted"),
        ({"a": "one"}, "texts: a value of type dict, where a list is wanted"),
        (np.array([["one"]]), "texts: a value of type ndarray, where a list is wanted"),
        (np.arange(3), "texts[0]: a value of type int64, where a text is wanted"),
        (["one", None], "texts[1]: None, where a text is wanted"),
        (["one", 2], "texts[1]: a value of type int, where a text is wanted"),
        (["one", ["two"]], "texts[1]: a value of type list, where a text is wanted"),
        (["one", "\ud800"], "texts[1]: holds half a character"),
        ([{"id": 1}], "texts[0]: no 'text' here"),
        (
            [{"text": "one", "id": "a"}, {"text": "two", "id": "a"}],
            "texts[1]: the id 'a' is that of texts[0] too; ids must differ",
        ),
        ([{"text": "one", "id": 1}, "two"], "texts[1]: the id 1 is that of texts[0] too"),
        ([{"text": "one", "id": []}], "texts[0]: [] cannot be an id"),
    ],
)
def test_candidates_that_are_no_texts_are_one_line(ranker: Ranker, texts: Any, said: str) -> None:
    assert refusal(lambda: ranker.prepare(texts)).startswith(said)
    assert refusal(lambda: ranker.rank("one", texts)).startswith(said)
    assert refusal(lambda: ranker.score(["one"], texts)).startswith(said)


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ([1, 2, 3], "ids: there are 3, but 4 texts; give one for each text"),
        ([], "ids: there are 0, but 4 texts"),
        (3, "ids: a value of type int, where a list is wanted"),
        (["a", "b", "a", "c"], "ids[2]: the id 'a' is that of ids[0] too; ids must differ"),
        ([1, 2, 3, [4]], "ids[3]: [4] cannot be an id"),
    ],
)
def test_ids_that_name_no_text_or_two_are_one_line(ranker: Ranker, ids: Any, said: str) -> None:
    assert refusal(lambda: ranker.prepare(TEXTS, ids)).startswith(said)


class Series:
    """As a column of pandas: it has one dimension, gives its values one by one, and has no truth of its own."""

    ndim = 1

    def __init__(self, values: list[str]) -> None:
        self.values = values

    def __iter__(self) -> Any:
        return iter(self.values)

    def __bool__(self) -> bool:
        raise ValueError("the truth of a Series is ambiguous")


@pytest.mark.parametrize("form", [list, tuple, np.array, Series, iter, lambda texts: (one for one in texts)])
def test_texts_come_in_anything_that_gives_them_one_by_one(ranker: Ranker, form: Callable[[Any], Any]) -> None:
    whole = ranker.rank("one", TEXTS)
    hits = ranker.rank("one", form(TEXTS))
    assert [(hit.id, hit.text, hit.score) for hit in hits] == [(hit.id, hit.text, hit.score) for hit in whole]
    scores = ranker.score(form(["one", "two"]), form(TEXTS))
    assert torch.equal(scores, ranker.score(["one", "two"], ranker.prepare(TEXTS)))
    assert ranker.prepare(form(TEXTS), form(["a", "b", "c", "d"])).ids == ["a", "b", "c", "d"]


def test_a_hit_names_its_place_in_the_list(ranker: Ranker) -> None:
    texts = ["", *TEXTS]
    hits = ranker.rank("one", texts)
    assert sorted(hit.id for hit in hits) == list(range(5))
    assert [texts[hit.id] for hit in hits] == [hit.text for hit in hits]


def test_rows_bring_their_own_ids(ranker: Ranker) -> None:
    rows: list[Any] = [{"id": "a", "text": "one"}, "two", {"text": "three", "title": "Number"}, {"id": 9, "text": ""}]
    chosen = ranker.prepare(rows)
    assert list(zip(chosen.ids, chosen.texts, strict=True)) == [("a", "one"), (1, "two"), (2, "Number three"), (9, "")]


@pytest.mark.parametrize(
    ("context", "said"),
    [
        (None, "the context: None; give a text, or a list of turns"),
        (7, "the context: a value of type int"),
        ("", "the context: 'context' is empty"),
        ([], "the context: 'context' is empty"),
        (["one", None], "the context: turn 2: None, where a text is wanted"),
        (["one", ["two"]], "the context: turn 2: a value of type list, where a text is wanted"),
        ({"text": "one"}, "the context: a value of type dict"),
    ],
)
def test_a_context_that_is_no_text_is_one_line(ranker: Ranker, context: Any, said: str) -> None:
    assert refusal(lambda: ranker.rank(context, TEXTS)).startswith(said)


def test_turns_may_be_a_tuple(ranker: Ranker) -> None:
    turns: Any = ("one", "two")
    assert ranker.rank(turns, TEXTS)[0] == ranker.rank(["one", "two"], TEXTS)[0]


@pytest.mark.parametrize(
    ("k", "said"),
    [
        ("3", "k must be a whole number, not '3'"),
        (2.0, "k must be a whole number, not 2.0"),
        (None, "k must be a whole number, not None"),
        (0, "k must be at least 1, not 0"),
        (True, "k must be at least 1, not True"),
    ],
)
def test_k_is_a_whole_number(ranker: Ranker, k: Any, said: str) -> None:
    assert refusal(lambda: ranker.rank("one", TEXTS, k)) == said
    assert len(ranker.rank("one", TEXTS, np.int64(2))) == 2  # type: ignore[arg-type]


def test_nothing_to_score_is_one_line(ranker: Ranker) -> None:
    assert refusal(lambda: ranker.score([], TEXTS)) == "there are no contexts to score; give at least one"
    assert refusal(lambda: ranker.score(["one"], [])) == "there are no candidates to score; give at least one"
    assert refusal(lambda: ranker.score_pairs([])).startswith("pairs: empty")
    assert refusal(lambda: ranker.score_pairs([("one", None)])).startswith("pairs[0][1]: None")  # type: ignore[list-item]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "data: holds no rows"),
        (
            [{"context": "a", "response": "b"}, 7],
            "data[1]: a value of type int, where a row is wanted; give a dict of columns",
        ),
        ([["a", "b"]], "data[0]: a value of type list, where a row is wanted; give a dict of columns"),
        ([None], "data[0]: None, where a row is wanted; give a dict of columns"),
        (None, "data: None, where a list is wanted"),
        (7, "data: a value of type int, where a list is wanted"),
    ],
)
def test_examples_that_are_no_rows_are_one_line(ranker: Ranker, rows: Any, said: str) -> None:
    assert refusal(lambda: evaluate(ranker, rows)).startswith(said)
