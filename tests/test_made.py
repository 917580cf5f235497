"""The made-up tasks are what they say, and the same for the same seed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests import made

NUMBERS = {
    0: ("zero", "영"),
    1: ("one", "일"),
    10: ("ten", "십"),
    11: ("eleven", "십일"),
    19: ("nineteen", "십구"),
    20: ("twenty", "이십"),
    21: ("twenty-one", "이십일"),
    99: ("ninety-nine", "구십구"),
    100: ("one hundred", "백"),
    101: ("one hundred and one", "백일"),
    110: ("one hundred and ten", "백십"),
    111: ("one hundred and eleven", "백십일"),
    412: ("four hundred and twelve", "사백십이"),
    1000: ("one thousand", "천"),
    1001: ("one thousand and one", "천일"),
    1206: ("one thousand two hundred and six", "천이백육"),
    2100: ("two thousand one hundred", "이천백"),
    10000: ("ten thousand", "만"),
    10001: ("ten thousand and one", "만 일"),
    11111: ("eleven thousand one hundred and eleven", "만 천백십일"),
    20000: ("twenty thousand", "이만"),
    70300: ("seventy thousand three hundred", "칠만 삼백"),
    99999: ("ninety-nine thousand nine hundred and ninety-nine", "구만 구천구백구십구"),
}


@pytest.mark.parametrize(("number", "words"), NUMBERS.items())
def test_numbers_are_spelled_as_they_are_said(number: int, words: tuple[str, str]) -> None:
    assert (made.in_english(number), made.in_korean(number)) == words


def test_no_two_numbers_are_spelled_alike() -> None:
    every = range(0, made.LARGEST + 1, 7)
    for spelled in (made.in_english, made.in_korean):
        assert len({spelled(number) for number in every}) == len(every)


def test_the_words_of_a_number_belong_to_its_digits() -> None:
    pairs = made.numbers(300, seed=3)
    for pair in pairs:
        number = int(pair["target"])
        assert pair["source"] in (made.in_english(number), made.in_korean(number))
    korean = sum(not pair["source"].isascii() for pair in pairs)
    assert 100 < korean < 200
    assert {len(pair["target"]) for pair in pairs} == {1, 2, 3, 4, 5}


@pytest.mark.parametrize("task", [made.numbers, made.copy, made.reverse])
def test_the_same_seed_makes_the_same_rows(task: Callable[..., list[made.Pair]]) -> None:
    assert task(50, seed=1) == task(50, seed=1)
    assert task(50, seed=1) != task(50, seed=2)
    assert len(task(50, seed=1)) == 50


def test_numbers_to_be_kept_apart_are_left_out() -> None:
    without = [pair["source"] for pair in made.numbers(20, seed=1)]
    assert not {pair["source"] for pair in made.numbers(300, seed=1, without=without)} & set(without)


def test_letters_are_copied_or_turned_round() -> None:
    for pair in made.copy(30, seed=1, longest=5):
        assert pair["target"] == pair["source"]
        assert 1 <= len(pair["source"].split()) <= 5
    for pair in made.reverse(30, seed=1):
        assert pair["target"].split() == pair["source"].split()[::-1]
