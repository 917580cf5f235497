"""The little language of filters: what passes, what is refused, and that nothing in it is ever run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.index.common import TEXTS, ranker_of
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.index import Index
from twofold.index.filters import condition

ROWS: dict[int, dict[str, Any]] = {
    1: {"lang": "en", "year": 2019, "price": 1.5, "new": True, "n": 1},
    2: {"lang": "ko", "year": 2020, "price": -2, "new": False},
    3: {"lang": "ko", "year": 2021, "price": 2.0, "제목": "하나"},
    4: {"lang": "fr", "year": 2022, "and": 1},
    5: {"lang": None, "year": "2021", "name": 'say "hi" \\ there\n'},
    6: {"year": 2021.5, "name": "Robert'); DROP TABLE candidates; --"},
    7: {"tags": ["a", "b"], "inner": {"lang": "ko"}, "big": 2**62, "name": ""},
    8: {},
}


@pytest.fixture(scope="module")
def index(tokenizer: TextTokenizer, tmp_path_factory: pytest.TempPathFactory) -> Index:
    rows = [{"id": id, "text": TEXTS[id], **fields} for id, fields in ROWS.items()]
    return Index.build(tmp_path_factory.mktemp("filters") / "index", ranker_of(tokenizer), rows)


def passing(index: Index, where: str) -> set[int]:
    return {hit.id for hit in index.search("one", 100, where)}


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ('lang = "ko"', {2, 3}),
        ('lang="ko"', {2, 3}),
        ('  lang\n=\t"ko"  ', {2, 3}),
        ('lang != "ko"', {1, 4}),
        ('not lang = "ko"', {1, 4, 5, 6, 7, 8}),
        ('lang in ("ko", "fr")', {2, 3, 4}),
        ('not lang in ("ko", "fr")', {1, 5, 6, 7, 8}),
        ('lang in ("ko")', {2, 3}),
        ('lang > "en"', {2, 3, 4}),
        ('lang <= "fr"', {1, 4}),
        ('"ko" = "ko"', None),
        ("year = 2021", {3}),
        ("year >= 2021", {3, 4, 6}),
        ("year < 2021", {1, 2}),
        ("year > 2.0205e3", {3, 4, 6}),
        ("year = 2021.0", {3}),
        ("year = 2021.5", {6}),
        ('year = "2021"', {5}),
        ('year < "3"', {5}),
        ("year != 2021", {1, 2, 4, 5, 6}),
        ('year in (2019, "2021", 2022)', {1, 4, 5}),
        ("price = -2", {2}),
        ("price < 0", {2}),
        ("price <= 1.5", {1, 2}),
        ("price = 2", {3}),
        ("new = true", {1}),
        ("new = false", {2}),
        ("new != true", {2}),
        ('제목 = "하나"', {3}),
        (r'name = "say \"hi\" \\ there\n"', {5}),
        ('name = "Robert\'); DROP TABLE candidates; --"', {6}),
        ('name = ""', {7}),
        ("and = 1", {4}),
        (f"big = {2**62}", {7}),
        ("big > 1e18", {7}),
        ("lang = 'ko'", {2, 3}),
        ("lang == 'ko'", {2, 3}),
        ('lang == "ko"', {2, 3}),
        ("year == 2021", {3}),
        ("lang in ('ko', \"fr\")", {2, 3, 4}),
        (r"""name = 'say "hi" \\ there\n'""", {5}),
        (r"""name = 'Robert\'); DROP TABLE candidates; --'""", {6}),
        ("id = 3", {3}),
        ("id == 3 or id > 6", {3, 7, 8}),
        ("id in (1, 2, 99)", {1, 2}),
        ("not id != 4", {4}),
    ],
)
def test_comparisons_pass_what_they_say(index: Index, where: str, ids: set[int] | None) -> None:
    if ids is None:
        with pytest.raises(TwofoldError, match="filter: "):
            passing(index, where)
    else:
        assert passing(index, where) == ids


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ('lang = "ko" and year = 2020', {2}),
        ('lang = "en" or lang = "ko" and year = 2020', {1, 2}),
        ('(lang = "en" or lang = "ko") and year = 2020', {2}),
        ('lang = "ko" and year = 2020 or lang = "en"', {1, 2}),
        ('not lang = "ko" and year > 2000', {1, 4, 6}),
        ('not (lang = "ko" or lang = "fr") and year > 2000', {1, 6}),
        ('not (lang = "ko" and year = 2020) and year > 2000', {1, 3, 4, 6}),
        ('not not lang = "ko"', {2, 3}),
        ("((((year = 2020))))", {2}),
        ("year = 2019 or year = 2020 or year = 2022", {1, 2, 4}),
        ("year > 2019 and year < 2022 and not year = 2021", {2, 6}),
        ("year = 1 and year = 2 or not (price = 3 and new = 4) and year = 2019", {1}),
    ],
)
def test_and_binds_closer_than_or_and_not_closest(index: Index, where: str, ids: set[int]) -> None:
    assert passing(index, where) == ids


@pytest.mark.parametrize(
    ("where", "ids", "said"),
    [
        ("lang = 3", set(), "lang = 3 is never true, because the values of 'lang' are texts; write \"3\" in quotes"),
        ("not lang = 3", set(ROWS), "lang = 3 is never true"),
        ("lang > 3 or year = 2019", {1}, "lang > 3 is never true"),
        ("lang != 3", {1, 2, 3, 4}, "lang != 3 is true of every candidate with this field"),
        ("lang in ('ko', 3)", {2, 3}, "lang = 3 is never true"),
        ("lang = true", set(), "lang = true is never true, because the values of 'lang' are texts"),
        ("price = '2'", set(), "the values of 'price' are numbers; write numbers without quotes"),
        ("new = 'true'", set(), "the values of 'new' are numbers"),
        ("tags = 'a'", set(), "the values of 'tags' are lists or objects"),
        ("inner = 'ko'", set(), "the values of 'inner' are lists or objects"),
        ("id = '3'", set(), "the values of 'id' are numbers; write numbers without quotes"),
    ],
)
def test_a_comparison_that_no_type_can_pass_is_a_warning(index: Index, where: str, ids: set[int], said: str) -> None:
    for _ in range(2):  # the second result is remembered
        with pytest.warns(UserWarning, match="filter: ") as caught:
            assert passing(index, where) == ids
        (message,) = [str(warning.message) for warning in caught]
        assert said in message


def test_texts_and_numbers_in_one_field_raise_no_warning(index: Index) -> None:
    assert passing(index, "year = '2021'") == {5}
    assert passing(index, "year = 7") == passing(index, "year = '7'") == set()


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("", "the name of a field is missing at the end"),
        ("   ", "the name of a field is missing at the end"),
        ("lang", "is missing at the end"),
        ("lang =", "a text in quotes or a number is missing at the end"),
        ("lang = ko", "a text in quotes or a number is missing before 'ko'"),
        ("lang = 'ko", "cannot read"),
        ("lang = 'ko\"", "cannot read"),
        ("lang === 'ko'", "is missing before '='"),
        ('lang = "ko', "cannot read"),
        (r'lang = "\x"', "is not a text in quotes"),
        ('lang = "ko" year = 1', "'and' or 'or' is missing before 'year'"),
        ('lang = "ko" and', "the name of a field is missing at the end"),
        ('(lang = "ko"', "')' is missing at the end"),
        ('lang = "ko")', "'and' or 'or' is missing before ')'"),
        ("lang in ()", "is missing before ')'"),
        ("lang in 3", "'(' is missing before 3"),
        ('lang in ("ko",)', "is missing before ')'"),
        ("year = 20 21", "'and' or 'or' is missing before 21"),
        ("year = -", "cannot read '-'"),
        ("year = 1.2.3", "cannot read"),
        ("year = 12abc", "a text in quotes or a number is missing before '12abc'"),
        ("= 3", "the name of a field is missing before '='"),
        ("3 = year", "the name of a field is missing before 3"),
        ("lang LIKE 3", "is missing before 'LIKE'"),
        ("color = 3", "there is no field 'color'; the fields are"),
        ("text = 3", "there is no field 'text'"),
        ("key = 3", "there is no field 'key'"),
        ("lang = null", "is missing before 'null'"),
        ("not " * 60 + "year = 1", "nested too deeply"),
        ("(" * 5000 + "year = 1", "nested too deeply"),
        ("year = 1 or " * 1000 + "year = 1", "over 10,000 characters"),
    ],
)
def test_what_cannot_be_understood_is_one_line(index: Index, where: str, said: str) -> None:
    with pytest.raises(TwofoldError) as caught:
        index.search("one", 3, where)
    assert str(caught.value).startswith("filter: ")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "where",
    [
        "year = 007",
        "year = ٣",
        f"year = {10**30}",
        f"year = {'9' * 5000}",
        "year > -1e999",
        f"year in ({10**19}, 1)",
        'lang = "\udcff"',
        r'lang = "\ud83d"',
        'lang = "\x00"',
        'lang = "a\nb"',
        "n=1 or " * 1400 + "n=1",
        "year in (" + "1," * 4000 + "2)",
        "\x00",
        "\udcff = 1",
    ],
)
def test_odd_values_are_one_line_or_the_obvious_answer(index: Index, where: str) -> None:
    try:
        assert all(isinstance(ROWS[id].get("year"), int | float) for id in passing(index, where))
    except TwofoldError as error:
        said = str(error)
    else:
        said = "filter: "
    assert said.startswith("filter: ")
    assert "\n" not in said


@pytest.mark.parametrize(
    "where",
    [
        'lang = "ko"; DROP TABLE candidates',
        'lang = "ko" -- ',
        'lang = "ko" /* */',
        "1 = 1",
        "lang = (SELECT text FROM candidates)",
        "year = 1) OR (1 = 1",
        "year = 1 UNION SELECT key FROM candidates",
        "key IN (SELECT key FROM gone)",
        "fields = 1",
        "json_extract(fields, '$.lang') = 1",
        'lang = "x" OR 1',
        "lang = ?",
        "lang = :a",
        '"lang" = "ko"',
        "$.lang = 1",
        'lang" = 1',
        "PRAGMA writable_schema = 1",
        "DELETE FROM candidates",
    ],
)
def test_sql_in_a_filter_is_refused_and_changes_nothing(index: Index, where: str) -> None:
    with pytest.raises(TwofoldError, match=r"^filter: "):
        index.search("one", 3, where)
    assert len(index) == len(index.search("one", 100)) == len(ROWS)


@pytest.mark.parametrize(
    "value", ["' OR 1 = 1 --", '" OR 1 = 1 --', "%", "*", "'; DROP TABLE candidates; --", "$", "?"]
)
def test_sql_in_a_text_is_a_text(value: str) -> None:
    text = value.replace('"', '\\"')
    parsed = condition(f'lang = "{text}" or not lang in ("{text}")', ["lang"])
    assert value not in parsed.sql or value == "?"
    assert parsed.values.count(value) == 2


def test_fields_whose_names_are_odd_do_no_harm(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    odd = ['a"b', "a.b", "$", "a'b", "", "x y", "lang"]
    rows = [{"id": name, "text": TEXTS[number], name: 1} for number, name in enumerate(odd)]
    index = Index.build(tmp_path / "index", ranker_of(tokenizer), rows)
    assert {hit.id for hit in index.search("one", 100, "lang = 1")} == {"lang"}
    for name in odd[:-1]:
        with pytest.raises(TwofoldError, match=r"^filter: "):
            index.search("one", 100, f"{name} = 1")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 10**30, 1e308])
def test_a_number_that_json_does_not_know_does_not_spoil_filters(
    tokenizer: TextTokenizer, tmp_path: Path, value: float
) -> None:
    rows = [{"id": 1, "text": "one", "x": value, "y": 1}, {"id": 2, "text": "two", "x": 2.5, "y": 2}]
    try:
        index = Index.build(tmp_path / "index", ranker_of(tokenizer), rows)
    except TwofoldError as error:
        if str(error).startswith("texts[0]: "):
            return  # refusing it is as good
        raise
    assert passing(index, "y = 2") == {2}
    assert passing(index, "x = 2.5") == {2}


def test_a_filter_without_any_field_says_so(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    index = Index.build(tmp_path / "index", ranker_of(tokenizer), ["one"])
    with pytest.raises(TwofoldError, match="there is no field 'lang'; candidates have only id"):
        index.search("one", 3, "lang = 3")


def test_more_filters_than_are_remembered_are_all_right(index: Index) -> None:
    for _ in range(2):
        for year in range(2000, 2030):
            assert passing(index, f"year = {year}") == {id for id, row in ROWS.items() if row.get("year") == year}
