"""Inputs and rows of sentences for tests of words, tags and trees."""

from __future__ import annotations

from typing import Any

from twofold.data.columns import TooLong
from twofold.data.files import Row
from twofold.data.tokenizer import Frame, TextTokenizer
from twofold.inputs.words import Config, WordsInput

FRAME = Frame((2,), (3,), (3,))


def words_input(
    tokenizer: TextTokenizer, limit: int = 30, too_long: TooLong = "cut", frame: Frame = FRAME
) -> WordsInput:
    return WordsInput(Config(max_tokens=limit, too_long=too_long), tokenizer, frame)


def row(words: Any, **others: Any) -> Row:
    return Row("rows:7", {"words": words, **others})


def pieces(tokenizer: TextTokenizer, words: list[str]) -> list[list[int]]:
    """Tokens of each word by itself, as it is cut inside a sentence."""
    return [tokenizer.encode([f" {word}" if number else word])[0] for number, word in enumerate(words)]


def length(tokenizer: TextTokenizer, text: str) -> int:
    return sum(map(len, pieces(tokenizer, text.split())))
