"""Ranking rows: every form of them, cut at the right end, and what tells equal texts."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import write_jsonl
from twofold.data.cache import Field
from twofold.data.columns import TextColumn
from twofold.data.files import Row
from twofold.data.ranking import RankingReader, candidates_of, text_key
from twofold.data.ranking_columns import ValueInRow, ValuesInRow, ranking_columns
from twofold.data.tokenizer import Frame, TextTokenizer, TokenizerConfig
from twofold.errors import TwofoldError
from twofold.inputs import INPUT
from twofold.inputs.text import Config as TextConfig
from twofold.inputs.text import TextInput


def read(path: Path, *rows: dict[str, Any], **settings: Any) -> list[dict[str, Any]]:
    where = write_jsonl(path / "rows.jsonl", rows)
    return [dict(row.values) for row in RankingReader(**settings).read(where)]


def columns(tokenizer: TextTokenizer, reader: RankingReader | None = None) -> dict[str, Field]:
    """Fields of ranking rows that a cache keeps."""
    contexts, candidates = (text_input(side(tokenizer, 9, keep), tokenizer.frame) for keep in ("tail", "head"))
    return ranking_columns(contexts, candidates, reader or RankingReader())


def text_input(column: TextColumn, frame: Frame) -> TextInput:
    return TextInput(TextConfig(column=column.column), column, frame)


# --- the forms ---


def test_a_pair_is_turns_and_a_response_without_negatives(tmp_path: Path) -> None:
    examples = read(
        tmp_path, {"context": "hi", "response": "hello"}, {"context": ["hi", "and"], "response": "yes", "x": 1}
    )
    assert examples == [
        {"context": ["hi"], "response": "hello", "negatives": []},
        {"context": ["hi", "and"], "response": "yes", "negatives": []},
    ]


def test_given_negatives_and_scores_are_kept_in_their_order(tmp_path: Path) -> None:
    row = {"context": "hi", "response": "a", "negatives": ["b", "", "c"], "scores": [3, 0.5, -1, 2]}
    assert read(tmp_path, row) == [{**row, "context": ["hi"], "scores": [3.0, 0.5, -1.0, 2.0]}]


def test_a_row_of_candidates_has_all_but_the_right_one_for_negatives(tmp_path: Path) -> None:
    row = {"context": ["hi"], "candidates": ["a", "b", "c"], "label": 1}
    assert read(tmp_path, row) == [{"context": ["hi"], "response": "b", "negatives": ["a", "c"]}]
    where = write_jsonl(tmp_path / "given.jsonl", [row])
    assert [dict(one.values) for one in RankingReader().read_as_given(where)] == [row]


@pytest.mark.parametrize(
    ("marks", "right"),
    [
        ({"label": 2}, [2]),
        ({"label": [2]}, [2]),
        ({"label": [2, 0]}, [0, 2]),
        ({"labels": [0, 1, 0, 1]}, [1, 3]),
        ({"labels": [False, True, False, False]}, [1]),
        ({"labels": [0, 0.5, 0, 3]}, [1, 3]),
        ({"labels": [1, 1, 1, 1]}, [0, 1, 2, 3]),
        ({"labels": [3]}, [3]),
        ({"labels": [3, 1]}, [1, 3]),
        ({"labels": (3, 1)}, [1, 3]),
        ({"labels": np.array([0, 0, 1, 1])}, [2, 3]),
        ({"label": np.int64(2)}, [2]),
        ({"label": 1, "labels": [0, 2, 0, 0]}, [1]),
        ({"label": [1, 3], "labels": [1, 3]}, [1, 3]),
        ({"label": None, "labels": [1, 3]}, [1, 3]),
    ],
)
def test_one_or_several_candidates_are_right(marks: dict[str, Any], right: list[int]) -> None:
    row = Row("1", {"context": "hi", "candidates": list("abcd"), **marks})
    texts, gains = candidates_of(row)
    assert [number for number, gain in enumerate(gains) if gain > 0] == right
    values = RankingReader().row(row).values
    assert [values["response"], *values.get("others", [])] == [texts[number] for number in right]
    assert values["negatives"] == [text for number, text in enumerate(texts) if number not in right]
    assert ("others" in values) == (len(right) > 1)


def test_graded_labels_are_gains() -> None:
    row = Row("1", {"context": "hi", "candidates": ["a", "b", "c"], "labels": [0, 0.5, 3]})
    assert candidates_of(row)[1] == [0.0, 0.5, 3.0]


def test_a_pair_may_have_several_right_responses(tmp_path: Path) -> None:
    row = {"context": "hi", "response": ["a", "b"], "negatives": ["c"], "scores": [1, 2, 3]}
    made = {"context": ["hi"], "response": "a", "others": ["b"], "negatives": ["c"], "scores": [1.0, 2.0, 3.0]}
    assert read(tmp_path, row) == [made]
    assert read(tmp_path, {"context": "hi", "response": ["a"]}) == [
        {"context": ["hi"], "response": "a", "negatives": []}
    ]


def test_the_scores_of_several_right_candidates_stay_with_them() -> None:
    values = {"context": "hi", "candidates": ["a", "b", "c", "d"], "labels": [3, 1], "scores": [0.1, 0.2, 0.3, 0.4]}
    made = RankingReader().row(Row("1", values)).values
    assert [made["response"], *made["others"], *made["negatives"]] == ["b", "d", "a", "c"]
    assert made["scores"] == [0.2, 0.4, 0.1, 0.3]


@pytest.mark.parametrize(
    ("row", "names"),
    [
        ({"context": "hi", "response": "a", "label": 0}, ["label"]),
        ({"context": "hi", "response": "a", "Label": False, "score": 2, "id": 1}, ["Label", "score"]),
        ({"context": "hi", "response": "a", "label": None}, []),
        ({"context": "hi", "response": "a", "label": ""}, []),  # of a table with an empty column
        ({"context": "hi", "response": "a", "label": "0"}, ["label"]),
        ({"context": "hi", "response": "a", "negatives": ["b"], "scores": [1, 2]}, []),
        ({"context": "hi", "response": "a", "positives": ["b"], "neg": ["c"]}, ["positives", "neg"]),
        ({"context": "hi", "candidates": ["a", "b"], "label": 0, "labels": [1, 0], "scores": [1, 2]}, []),
        ({"context": "hi", "candidates": ["a", "b"], "label": 0, "relevance": [1, 0]}, ["relevance"]),
        ({"context": "hi", "candidates": ["a", "b"], "label": 0, "negatives": ["c"]}, ["negatives"]),
    ],
)
def test_columns_that_look_like_labels_and_are_not_read_are_known(
    tokenizer: TextTokenizer, row: dict[str, Any], names: list[str]
) -> None:
    assert RankingReader().row(Row("1", row)).values.get("unread", []) == names
    assert len(columns(tokenizer)["unread"].encode([RankingReader().row(Row("1", row))]).ids[0]) == len(names)


def test_a_column_that_is_asked_for_is_read() -> None:
    row = Row("1", {"target": "hi", "answer": "a"})
    assert RankingReader(context="target", response="answer").unread(row) == []


def test_the_scores_of_a_row_of_candidates_stay_with_their_candidates(tmp_path: Path) -> None:
    row = {"context": ["hi"], "candidates": ["a", "b", "c"], "label": 1, "scores": [0.1, 0.7, 0.2]}
    (prediction,) = read(tmp_path, row)
    by_text = dict(zip([prediction["response"], *prediction["negatives"]], prediction["scores"], strict=True))
    assert by_text == {"a": 0.1, "b": 0.7, "c": 0.2}


def test_a_preface_stands_before_the_turns_and_may_be_missing(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [
        {"q": "hi", "a": "x", "persona": ["I fish.", "I row."]},
        {"q": ["hi", "so"], "a": "x", "persona": "I fish."},
        {"q": "hi", "a": "x", "persona": []},
        {"q": "hi", "a": "x"},
    ]
    examples = read(tmp_path, *rows, context="q", response="a", preface="persona")
    contexts = [["I fish.", "I row.", "hi"], ["I fish.", "hi", "so"], ["hi"], ["hi"]]
    assert [row["context"] for row in examples] == contexts


def test_what_is_null_is_not_there(tmp_path: Path) -> None:
    """As in a table some rows of which have negatives, scores or candidates, and others have not."""
    row = {"context": "hi", "response": "a", "negatives": None, "scores": None, "candidates": None, "label": None}
    assert read(tmp_path, row) == [{"context": ["hi"], "response": "a", "negatives": []}]


GOOD = {"context": "hi", "response": "yes"}
PICKED = {"context": "hi", "candidates": ["a", "b"], "label": 1}


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"response": "yes"}, "no 'context' here"),
        ({**GOOD, "context": " "}, "'context' is empty"),
        ({**GOOD, "context": []}, "'context' is empty"),
        ({**GOOD, "context": ["hi", 7]}, "'context' is neither a text nor a list of texts"),
        ({"context": "hi"}, "no 'response' here"),
        ({**GOOD, "response": ""}, "'response' is empty"),
        ({**GOOD, "response": ["yes", " "]}, "'response' holds an empty text"),
        ({**GOOD, "response": ["yes", 7]}, "'response' is neither"),
        ({**GOOD, "response": []}, "'response' is empty"),
        ({**GOOD, "response": 7}, "'response' is neither"),
        ({**GOOD, "negatives": "no"}, "'negatives' is not a list of texts"),
        ({**GOOD, "negatives": ["no", 7]}, "'negatives' is not a list of texts"),
        ({**GOOD, "negatives": ["\ud800"]}, "half a character"),
        ({**GOOD, "scores": [1.0, 2.0]}, "'scores' must be 1 numbers"),
        ({**GOOD, "negatives": ["no"], "scores": [1.0, "2"]}, "'scores' must be 2 numbers"),
        ({**GOOD, "negatives": ["no"], "scores": [1.0, True]}, "'scores' must be 2 numbers"),
        ({**GOOD, "negatives": ["no"], "scores": [1.0, float("nan")]}, "'scores' must be"),
        ({**PICKED, "candidates": "ab"}, "'candidates' is not a list of texts"),
        ({**PICKED, "candidates": []}, "'candidates' is empty"),
        ({**PICKED, "candidates": ["a", None]}, "'candidates' is not a list of texts"),
        ({**PICKED, "candidates": ["a", "\ud800"]}, "half a character"),
        ({**PICKED, "label": 2}, "'label' must be from 0 to 1, not 2"),
        ({**PICKED, "label": -1}, "'label' must be from 0 to 1, not -1"),
        ({**PICKED, "label": True}, "'label' must be from 0 to 1, not True"),
        ({"context": "hi", "candidates": ["a"]}, "'label' must be from 0 to 0, not None"),
        ({**PICKED, "label": [0, 1]}, "'label' has as many numbers as candidates; name the column 'labels'"),
        ({**PICKED, "label": []}, "'label' must be the numbers of the right candidates, each once, from 0 to 1"),
        ({**PICKED, "label": [2]}, "'label' must be the numbers of the right candidates"),
        ({**PICKED, "label": [0, 0, 1]}, "'label' must be the numbers of the right candidates"),
        ({**PICKED, "label": [True]}, "'label' must be the numbers of the right candidates"),
        ({**PICKED, "labels": [1, 0]}, "'label' and 'labels' do not mark the same candidates"),
        ({**PICKED, "label": None, "labels": [0, 0]}, "'labels' marks no candidate as right"),
        ({**PICKED, "label": None, "labels": [0, -1]}, "'labels' must be 2 numbers from 0 up"),
        ({**PICKED, "label": None, "labels": [0, float("nan")]}, "'labels' must be 2 numbers from 0 up"),
        ({**PICKED, "label": None, "labels": [0, "1"]}, "'labels' must be 2 numbers from 0 up"),
        ({**PICKED, "label": None, "labels": []}, "'labels' must be 2 numbers, one for each candidate, or the numbers"),
        (
            {**PICKED, "label": None, "labels": [5]},
            "'labels' must be 2 numbers, one for each candidate, or the numbers",
        ),
        ({**PICKED, "label": None, "labels": [0, 1, 1]}, "'labels' must be 2 numbers, one for each candidate, or"),
        ({**PICKED, "label": None, "labels": [0.0]}, "'labels' must be 2 numbers, one for each candidate, or"),
        ({**PICKED, "label": None, "labels": 1}, "'labels' must be a list"),
    ],
)
def test_a_row_that_cannot_be_used_is_named_with_its_line(tmp_path: Path, row: dict[str, Any], says: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(f"{json.dumps(GOOD)}\n{json.dumps(row)}\n", encoding="utf-8")
    with pytest.raises(TwofoldError) as caught:
        list(RankingReader().read(str(path)))
    assert str(caught.value).startswith(f"{path}:2: ")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_published_form_has_no_files_for_its_columns() -> None:
    with pytest.raises(TwofoldError, match=r"data\.form=ubuntu_v2: name files, not columns"):
        RankingReader(form="ubuntu_v2").read({"context": "a.txt", "response": "b.txt"})


# --- texts as ids ---

TURNS = ["one hundred and two", "seven", "nine"]


def side(tokenizer: TextTokenizer, limit: int, keep: Any, **settings: Any) -> TextColumn:
    """A column whose limit holds the special tokens around its texts as well."""
    return TextColumn("context", tokenizer, limit - len(tokenizer.frame), keep=keep, **settings)


@pytest.mark.parametrize("separator", [None, " and "])
@pytest.mark.parametrize("prefix", ["", "two: "])
def test_a_context_keeps_its_newest_tokens_and_a_candidate_its_first(
    tokenizer: TextTokenizer, separator: str | None, prefix: str
) -> None:
    between = [tokenizer.separator] if separator is None else tokenizer.encode([separator])[0]
    before = tokenizer.encode([prefix.strip()])[0] if prefix else []
    first, two, three = tokenizer.encode(TURNS)
    whole = [*first, *between, *two, *between, *three]
    settings: dict[str, Any] = {"prompt": prefix, "separator": separator}
    for room in (1, 3, len(whole) - 1, len(whole), len(whole) + 5):
        limit = room + len(before) + len(tokenizer.frame)
        cut = int(room < len(whole))
        for keep, kept in (("tail", whole[-room:]), ("head", whole[:room])):
            encoded = side(tokenizer, limit, keep, **settings).encode_texts([TURNS, "seven"])
            assert encoded.ids[0] == before + kept
            assert encoded.cut >= cut
            assert len(encoded.ids[0]) + len(tokenizer.frame) <= limit


@pytest.mark.parametrize("prefix", ["one: ", "one:", "one"])
@pytest.mark.parametrize("keep", ["head", "tail", "turns"])
def test_a_prefix_and_the_text_behind_it_are_cut_into_tokens_as_one(
    keep: str, prefix: str, tokenizer: TextTokenizer
) -> None:
    ids = side(tokenizer, 20, keep, prompt=prefix).encode_texts(["two", ["two", "nine"], ""]).ids
    joined, nine, alone = tokenizer.encode([f"{prefix}two", "nine", prefix])
    assert ids == [joined, [*joined, tokenizer.separator, *nine], alone]


def test_a_single_text_keeps_its_beginning_and_turns_their_newest_where_both_are_asked_for(
    tokenizer: TextTokenizer,
) -> None:
    text = " ".join(TURNS)
    encoded = side(tokenizer, 6, "turns", prompt="two ").encode_texts([text, [text, "nine"]])
    room = 6 - len(tokenizer.frame)
    whole, prefix, nine = tokenizer.encode([f"two {text}", "two", "nine"])
    turns = [*whole, tokenizer.separator, *nine]
    assert encoded.cut == 2
    assert encoded.ids == [whole[:room], prefix + turns[len(turns) - room + len(prefix) :]]


def test_an_empty_text_is_the_start_where_a_tokenizer_puts_nothing_around_it(tokenizer: TextTokenizer) -> None:
    bare = TextTokenizer.train(["a b c"], TokenizerConfig(size=20))
    bare.frame = Frame()
    texts = TextConfig(max_tokens=9, special_tokens=True).build(bare)
    read = texts.batch(side(bare, 9, "head").encode_texts(["", "a"]).ids)
    assert [row[mask].tolist() for row, mask in zip(read.tokens, read.mask, strict=True)] == [
        [bare.start],
        bare.encode(["a"])[0],
    ]


def test_a_limit_without_room_for_the_text_itself_is_refused(tokenizer: TextTokenizer) -> None:
    length = len(tokenizer.encode(["two:"])[0])
    with pytest.raises(TwofoldError, match=f"a limit of {length} tokens leaves no room for 'context' itself"):
        side(tokenizer, length + len(tokenizer.frame), "tail", prompt="two:").encode_texts(["one"])


@pytest.mark.parametrize("empty", ["", [], [""]])
def test_an_empty_text_is_the_frame_alone_and_moves_no_other(tokenizer: TextTokenizer, empty: Any) -> None:
    ids = side(tokenizer, 20, "tail").encode_texts(["one", empty, ["two", "nine"]]).ids
    first, two, nine = tokenizer.encode(["one", "two", "nine"])
    assert ids == [first, [], [*two, tokenizer.separator, *nine]]


def test_negatives_come_back_one_by_one(tokenizer: TextTokenizer) -> None:
    column = TextColumn("response", tokenizer, 4 - len(tokenizer.frame))
    field = ValuesInRow(text_input(column, tokenizer.frame), INPUT, column, "negatives")
    rows = [Row(str(number), {"negatives": texts}) for number, texts in enumerate([["one", ""], [], ["1 2 3 4 5 6"]])]
    encoded = field.encode(rows)
    short, long = tokenizer.encode(["one"])[0], tokenizer.encode(["1 2 3 4 5 6"])[0][: 4 - len(tokenizer.frame)]
    assert encoded.ids == [[len(short), *short, 0], [], [len(long), *long]]
    assert encoded.cut == 1


def test_a_row_without_scores_has_none(tokenizer: TextTokenizer) -> None:
    rows = [Row("1", {"scores": [1.0, 2.0]}), Row("2", {})]
    assert columns(tokenizer)["scores"].encode(rows).ids == [[1.0, 2.0], []]


def test_all_that_decides_the_ids_is_told_to_the_cache(tokenizer: TextTokenizer) -> None:
    other = TextTokenizer.train(["a b c"], TokenizerConfig(size=20))
    sides = [side(one, 9, "tail") for one in (tokenizer, other)]
    sides += [side(tokenizer, 8, "tail"), side(tokenizer, 9, "head"), side(tokenizer, 9, "tail", prompt="a")]
    sides += [
        side(tokenizer, 9, "tail", separator="a"),
        TextColumn("response", tokenizer, 9 - len(tokenizer.frame), keep="tail"),
    ]
    fields: list[Field] = [
        *(ValueInRow(text_input(column, tokenizer.frame), INPUT, column, column.column) for column in sides),
        *(ValuesInRow(text_input(column, tokenizer.frame), INPUT, column, "negatives") for column in sides),
    ]
    fields += [columns(tokenizer)["scores"], columns(tokenizer)["keys"]]
    settings: list[dict[str, Any]] = [{"preface": "persona"}, {"form": "convai2"}]
    fields += [columns(tokenizer, RankingReader(**one))["keys"] for one in settings]
    assert len({json.dumps(field.settings()) for field in fields}) == len(fields)


# --- equal texts ---


@pytest.mark.parametrize(
    "other",
    [
        "CAFÉ at  7",
        " café\tat\n7 ",
        unicodedata.normalize("NFD", "café at 7"),
        unicodedata.normalize("NFD", "CAFÉ AT 7"),
        "ｃａｆé　at ７",
        "café\u00a0at 7",
    ],
)
def test_texts_that_differ_in_case_blanks_or_unicode_form_are_equal(other: str) -> None:
    assert text_key(other) == text_key("café at 7")


@pytest.mark.parametrize("other", ["cafe at 7", "café at 7.", "caféat 7", "café at", ""])
def test_other_texts_are_not_equal(other: str) -> None:
    assert text_key(other) != text_key("café at 7")


def test_keys_are_those_of_the_context_the_response_and_each_negative(tokenizer: TextTokenizer) -> None:
    row = Row("1", {"context": ["Hi ", "there"], "response": "Yes", "negatives": ["no", "YES"]})
    (keys,) = columns(tokenizer)["keys"].encode([row]).ids
    assert keys == [text_key(text) for text in ("hi there", "yes", "no", "yes")]
    assert keys[1] == keys[3]
    assert all(0 <= key < 1 << 64 for key in keys)
