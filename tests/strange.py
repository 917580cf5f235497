"""Texts of the kinds that readers stumble over, for the tests and the benchmark of parity; each kind by its name."""

from __future__ import annotations

import random
import sys
import unicodedata
from collections.abc import Callable
from functools import cache

from twofold.data.tokenizer import TextTokenizer

BLANKS = (" ", "\n", "\t", "\r\n", "\u00a0", "\u200b", "\u3000", "\ufeff")
WORDS = ("the", "a", "how", "folder", "list", "one", "hundred", "and", "7", "naïve", "don't", "U.S.", "x=y;", "antidis")
SKINS, JOINER = "🏻🏼🏽🏾🏿", "\u200d"
PARTICLES = ("은", "는", "이", "가", "을", "를", "에서", "으로", "까지", "처럼")
LONG = 10_000
"""Words of a text that is far beyond every limit."""
Make = Callable[[random.Random], str]


def empty(draw: random.Random) -> str:
    """Nothing, or nothing but blanks."""
    return "".join(draw.choices(BLANKS, k=draw.randint(0, 4)))


def one_letter(draw: random.Random) -> str:
    """A letter of any script, every second one of those before Arabic."""
    return draw.choice(_letters(0x600 if draw.random() < 0.5 else sys.maxunicode))


def emoji(draw: random.Random) -> str:
    """Emoji, some with a tone of skin, joined to others, or two letters of a flag."""

    def some() -> str:
        base = chr(draw.choice((draw.randint(0x1F300, 0x1F64F), draw.randint(0x1F680, 0x1F6C5), 0x2764)))
        flag = "".join(chr(0x1F1E6 + draw.randrange(26)) for _ in range(2))
        return draw.choice((base, base + draw.choice(SKINS), f"{base}{JOINER}{base}", flag))

    return "".join(some() for _ in range(draw.randint(1, 12)))


def long(draw: random.Random) -> str:
    """Ten thousand words."""
    return words(draw, LONG)


def korean(draw: random.Random) -> str:
    """Words of random syllables with particles; every fifth text has its syllables taken apart."""
    syllables = [
        [chr(draw.randint(0xAC00, 0xD7A3)) for _ in range(draw.randint(1, 4))] for _ in range(draw.randint(1, 12))
    ]
    text = " ".join("".join(word) + draw.choice(PARTICLES) for word in syllables)
    return unicodedata.normalize("NFD", text) if draw.random() < 0.2 else text


def control(draw: random.Random) -> str:
    """Letters among control and format characters, such as bells, null characters and changes of direction."""
    codes = [*range(0x20), *range(0x7F, 0xA0), 0xAD, 0x200E, 0x202E, 0x2066, 0xFFF9, 0xFFFE, 0x10FFFF]
    pieces = [
        draw.choice(WORDS) if draw.random() < 0.5 else chr(draw.choice(codes)) for _ in range(draw.randint(1, 30))
    ]
    return "".join(pieces)


def ragged(draw: random.Random) -> str:
    """Something of the other kinds, from nothing to some hundred words."""
    mixed = [draw.choice((empty, one_letter, emoji, korean, control))(draw) for _ in range(draw.randint(0, 3))]
    return " ".join([*mixed, words(draw, int(draw.lognormvariate(1.5, 1.5)))])


KINDS: dict[str, Make] = {
    "empty": empty,
    "one letter": one_letter,
    "emoji": emoji,
    "10,000 words": long,
    "Korean": korean,
    "control characters": control,
    "ragged": ragged,
}


def texts(kind: str, count: int, seed: int = 0) -> list[str]:
    """Texts of one kind; equal ones may occur, as in life."""
    draw = random.Random(f"{kind} {seed}")
    return [KINDS[kind](draw) for _ in range(count)]


def at_limit(tokenizer: TextTokenizer, limit: int, count: int, seed: int = 0) -> list[str]:
    """Texts of about as many tokens as `limit`: up to two fewer or more."""
    draw, made = random.Random(seed), []
    for number in range(count):
        text = words(draw, 2 * limit)
        ends = tokenizer.places([text])[0][:, 1]
        made.append(text[: int(ends[min(len(ends), limit + number % 5 - 2) - 1])])
    return made


def words(draw: random.Random, count: int) -> str:
    """So many words."""
    return " ".join(draw.choices(WORDS, k=count))


@cache
def _letters(below: int) -> list[str]:
    """All letters whose code is below a number."""
    return [chr(code) for code in range(below) if unicodedata.category(chr(code)).startswith("L")]
