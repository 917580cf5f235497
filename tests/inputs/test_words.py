"""Sentences as words: where each begins, what is cut or read in windows, and what is wrong with a row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import write_jsonl
from tests.inputs.sentences import pieces, row, words_input
from twofold.data.cache import Cache
from twofold.data.columns import TooLongError
from twofold.data.files import Row
from twofold.data.tokenizer import Frame, TextTokenizer
from twofold.errors import TwofoldError
from twofold.inputs import INPUT
from twofold.inputs.words import STARTS, Sentence


def test_each_word_begins_where_its_first_piece_stands(tokenizer: TextTokenizer) -> None:
    words = ["thousandseven", "one", "hundredforty", "삼백"]
    pieces_of_words = pieces(tokenizer, words)
    assert max(map(len, pieces_of_words)) > 1
    (ids,) = words_input(tokenizer).learned([row(words)]).ids
    assert list(ids.ids) == [2, *(token for piece in pieces_of_words for token in piece), 3]
    for start, piece in zip(ids.starts, pieces_of_words, strict=True):
        assert list(ids.ids[start : start + len(piece)]) == piece


def test_a_list_of_words_and_a_text_with_blanks_are_the_same(tokenizer: TextTokenizer) -> None:
    field = words_input(tokenizer)
    texts = [row(["one", "hundred"]), row("one hundred"), row("  one\thundred \n")]
    first, *others = field.learned(texts).ids
    assert others == [first] * 2
    assert field.value(texts[2]) == ["one", "hundred"]


def test_the_words_of_a_sentence_are_cut_as_the_sentence_is(tokenizer: TextTokenizer) -> None:
    words = ["seven", "hundred", "and", "two"]
    (ids,) = words_input(tokenizer, frame=Frame()).learned([row(words)]).ids
    assert list(ids.ids) == tokenizer.encode([" ".join(words)])[0]


def test_a_word_of_which_the_tokenizer_makes_nothing_still_has_a_place(tokenizer: TextTokenizer) -> None:
    nothing = "\u200b"
    (ids,) = words_input(tokenizer).learned([row(["one", nothing, "two"])]).ids
    assert len(ids.starts) == 3
    assert len(set(ids.starts)) == 3


def test_a_long_sentence_ends_with_the_last_whole_word_that_fits(tokenizer: TextTokenizer) -> None:
    words = ["one", "thousandseven", "two"] * 4
    pieces_of_words = pieces(tokenizer, words)
    for limit in range(max(map(len, pieces_of_words)) + 2, 2 + sum(map(len, pieces_of_words)) + 1):
        encoded = words_input(tokenizer, limit).learned([row(words)])
        (ids,) = encoded.ids
        kept = len(ids.starts)
        assert len(ids.ids) == 2 + sum(map(len, pieces_of_words[:kept])) <= limit
        assert kept == len(words) or len(ids.ids) + len(pieces_of_words[kept]) > limit
        assert encoded.cut == (kept < len(words))
        assert ids.ids[-1] == 3


@pytest.mark.parametrize("ask", ["items", "learned"])
def test_a_sentence_that_is_too_long_is_refused_if_the_recipe_says_so(tokenizer: TextTokenizer, ask: str) -> None:
    field = words_input(tokenizer, 9, "refuse")
    with pytest.raises(TooLongError, match=r"^rows:7: \d+ tokens, the limit is 7; cut the sentence in two, or train"):
        getattr(field, ask)([row(["one"] * 20)])
    with pytest.raises(TooLongError, match=r"^rows:7: the word 'gggg.*ggg' has \d+ tokens, and 7 are the most"):
        getattr(field, ask)([row(["one", "two", "g" * 100])])


@pytest.mark.parametrize("ask", ["items", "learned"])
def test_a_word_that_is_longer_than_a_sentence_may_be_keeps_its_first_tokens(
    tokenizer: TextTokenizer, ask: str
) -> None:
    field, (long, short) = words_input(tokenizer, 10), pieces(tokenizer, ["g" * 400, "one"])
    rows = [row(["g" * 400, "one"]), row(["one"])]
    if ask == "items":
        with pytest.warns(UserWarning, match=f"^1 word is longer than .* and cut to {field.word_room} tokens$"):
            sentence, _ = field.items(rows)
    else:
        sentence, _ = field.learned(rows).ids
        assert field.learned(rows).cut == 1
    assert len(long) > 390
    assert list(sentence.ids) == [2, *long[: field.word_room], *short, 3]
    assert list(sentence.starts) == [1, 1 + field.word_room]
    assert sentence.cut_words == 1


def test_a_sentence_of_only_such_words_keeps_them_all(tokenizer: TextTokenizer) -> None:
    for limit in (3, 4, 5, 10, 11):
        field = words_input(tokenizer, limit)
        with pytest.warns(UserWarning, match=f"7 words are longer than .* and cut to {field.word_room} tokens$"):
            (sentence,) = field.items([row(["g" * 400] * 7)])
        assert len(sentence.starts) == sentence.cut_words == 7
        assert all(stop - start <= field.room for start, stop in sentence.windows)
        (learned,) = field.learned([row(["g" * 400] * 7)]).ids
        assert 1 <= len(learned.starts) < 7
        assert len(learned.ids) <= limit


def test_what_is_answered_keeps_every_word_and_what_is_learned_from_those_that_fit(tokenizer: TextTokenizer) -> None:
    field, words = words_input(tokenizer, 12), ["one", "thousandseven", "two"] * 9
    with pytest.warns(
        UserWarning, match="^1 of 1 sentences is longer than 12 tokens and is read in overlapping windows$"
    ):
        (whole,) = field.items([row(words)])
    (learned,) = field.learned([row(words)]).ids
    pieces_of_words = pieces(tokenizer, words)
    assert list(whole.ids) == [2, *(token for piece in pieces_of_words for token in piece), 3]
    assert len(whole.starts) == 27 > len(learned.starts)
    assert list(whole.ids[: len(learned.ids) - 1]) == list(learned.ids[:-1])
    assert whole.windows
    assert not learned.windows
    assert field.items([row(["one"])]) == field.learned([row(["one"])]).ids


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "'words' is empty"),
        ("  \t ", "'words' is empty"),
        ([], "'words' is empty"),
        (["one", "", "two"], "word 2 of 'words' is empty"),
        ([" "], "'words' is empty"),
        (None, "'words' is None; give a text, or a list of words"),
        (7, "'words' is 7; give a text, or a list of words"),
        (["one", 2], r"'words' is \['one', 2\]; give a text"),
        (["one", None], "'words' is "),
        (["\ud83d"], "'words' holds half a character"),
    ],
)
def test_what_are_no_words_is_named(tokenizer: TextTokenizer, words: Any, said: str) -> None:
    with pytest.raises(TwofoldError, match=f"^rows:7: {said}"):
        words_input(tokenizer).learned([row(words)])


def test_words_may_be_given_as_any_sequence(tokenizer: TextTokenizer) -> None:
    field = words_input(tokenizer)
    assert (
        field.learned([row(("one", "two"))]) == field.learned([row(["one", "two"])]) == field.learned([row("one two")])
    )


def test_a_batch_holds_the_places_of_the_words(tokenizer: TextTokenizer) -> None:
    batch = words_input(tokenizer).batch([Sentence([2, 10, 11, 12, 3], [1, 3]), Sentence([2, 13, 3], [1])])
    assert batch.starts.tolist() == [[1, 3], [1, -1]]
    assert batch.mask.sum(1).tolist() == [5, 3]


def test_a_cache_gives_the_same_words_again(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    field = words_input(tokenizer, 12)
    rows: list[dict[str, Any]] = [{"words": ["thousandseven", "one"]}, {"words": "one " * 30}, {"words": ["two"]}]
    cache = Cache.of(write_jsonl(tmp_path / "rows.jsonl", rows), field.columns())
    for number, expected in enumerate(field.learned([Row("", one) for one in rows]).ids):
        cached = field.cached(cache, number)
        assert (list(cached.ids), list(cached.starts)) == (list(expected.ids), list(expected.starts))
        assert field.length(cached) == field.lengths(cache)[number] == len(expected.ids)
    assert cache.cut == {INPUT: 1, STARTS: 0}


def test_another_limit_or_frame_makes_another_cache(tokenizer: TextTokenizer) -> None:
    words = words_input(tokenizer)
    assert words.settings() != words_input(tokenizer, 31).settings() != words_input(tokenizer, frame=Frame()).settings()
