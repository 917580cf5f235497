"""Small tasks made up on the spot: copying, reversing, and reading numbers spelled out in English and Korean."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

Pair = dict[str, str]
LARGEST = 99_999
_ONES = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_DIGITS = "영일이삼사오육칠팔구"


def copy(rows: int, seed: int, longest: int = 8) -> list[Pair]:
    """Letters, to be written as they are."""
    return _letters(rows, seed, longest, lambda letters: letters)


def reverse(rows: int, seed: int, longest: int = 8) -> list[Pair]:
    """Letters, to be written backwards."""
    return _letters(rows, seed, longest, lambda letters: letters[::-1])


def numbers(rows: int, seed: int, without: Sequence[str] = ()) -> list[Pair]:
    """Numbers in words, half of them Korean, to be written in digits; every number of digits is as likely."""
    draw = random.Random(seed)
    pairs: list[Pair] = []
    while len(pairs) < rows:
        number = draw.randrange(10 ** draw.randint(1, 5))
        words = in_korean(number) if draw.random() < 0.5 else in_english(number)
        if words not in without:
            pairs.append({"source": words, "target": str(number)})
    return pairs


def in_english(number: int) -> str:
    """A number up to 99,999 in English words: 1206 is one thousand two hundred and six."""
    if number < 20:
        return _ONES[number]
    if number < 100:
        tens, ones = divmod(number, 10)
        return _TENS[tens - 2] + (f"-{_ONES[ones]}" if ones else "")
    for size, name in ((1000, "thousand"), (100, "hundred")):
        if number >= size:
            count, rest = divmod(number, size)
            joint = " " if rest >= 100 or not rest else " and "
            return f"{in_english(count)} {name}" + (joint + in_english(rest) if rest else "")
    raise ValueError(number)


def in_korean(number: int) -> str:
    """A number up to 99,999 in Sino-Korean words: 1206 is 천이백육."""
    if number == 0:
        return _DIGITS[0]
    upper, lower = divmod(number, 10_000)
    below = ""
    for size, name in ((1000, "천"), (100, "백"), (10, "십"), (1, "")):
        count, lower = divmod(lower, size)
        if count:
            # One thousand is 천, not 일천; only the last digit is spelled out when it is one.
            below += ("" if count == 1 and name else _DIGITS[count]) + name
    above = "" if not upper else ("만" if upper == 1 else f"{_DIGITS[upper]}만")
    return " ".join(part for part in (above, below) if part)


def _letters(rows: int, seed: int, longest: int, answer: Callable[[list[str]], list[str]]) -> list[Pair]:
    draw = random.Random(seed)
    pairs = []
    for _ in range(rows):
        letters = draw.choices("abcdefghij", k=draw.randint(1, longest))
        pairs.append({"source": " ".join(letters), "target": " ".join(answer(letters))})
    return pairs
