"""Tags of words: their numbers, where they end, and what is wrong with a row."""

from __future__ import annotations

from typing import Any

import pytest

from tests.inputs.sentences import length, row, words_input
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.inputs.words import WordsInput
from twofold.outputs.tags import Config, TagsOutput
from twofold.types import HiddenSpec


def tags_output(words: WordsInput, names: tuple[str, ...] = ("A", "B", "O")) -> TagsOutput:
    return Config(names=names).build("main", words, None, HiddenSpec())


def test_tags_have_numbers_and_those_never_seen_do_not_count(tokenizer: TextTokenizer) -> None:
    field = tags_output(words_input(tokenizer))
    rows = [row("one two three", tags="O B A"), row(["one"], tags=["X"]), row("one two", tags=["A", "Y"])]
    target = field.target(field.encode(rows).ids)
    assert target.mask.tolist() == [[True, True, True], [False, False, False], [True, False, False]]
    assert target.tokens[target.mask].tolist() == [2, 1, 0, 0]


def test_tags_end_with_the_words_that_are_read(tokenizer: TextTokenizer) -> None:
    field = tags_output(words_input(tokenizer, 2 + length(tokenizer, "one two")))
    (ids,) = field.encode([row("one two seven nine", tags="A B O A")]).ids
    assert ids == [0, 1]


@pytest.mark.parametrize(
    ("tags", "said"),
    [
        ("A B", "2 tags in 'tags', but 3 words"),
        ("A B A B", "4 tags in 'tags', but 3 words"),
        ([], "'tags' is empty"),
        (["A", "", "B"], "word 2 of 'tags' is empty"),
        (None, "'tags' is None; give a text, or a list of words"),
    ],
)
def test_tags_of_another_number_than_words_are_named(tokenizer: TextTokenizer, tags: Any, said: str) -> None:
    with pytest.raises(TwofoldError, match=f"^rows:7: {said}"):
        tags_output(words_input(tokenizer)).encode([row("one two three", tags=tags)])


def test_another_set_of_names_makes_another_cache(tokenizer: TextTokenizer) -> None:
    words = words_input(tokenizer)
    assert tags_output(words, ("A", "B")).settings() != tags_output(words, ("B", "A")).settings()
