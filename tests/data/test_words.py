"""Sentences as words: where each begins, what is said of each, and what is wrong with a row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import write_jsonl
from twofold.data.cache import Cache
from twofold.data.fields import SOURCE, TooLong, TooLongError
from twofold.data.files import Row
from twofold.data.tokenizer import Frame, TextTokenizer
from twofold.data.training import TrainingRows
from twofold.data.words import STARTS, TagsField, TreeField, Words, WordsField
from twofold.errors import TwofoldError
from twofold.types import Classes

FRAME = Frame((2,), (3,), (3,))
TAGS = Classes(("A", "B", "O"))
RELATIONS = Classes(("left", "right", "root"))


def words_field(
    tokenizer: TextTokenizer, limit: int = 30, too_long: TooLong = "cut", frame: Frame = FRAME
) -> WordsField:
    return WordsField("words", tokenizer, limit, too_long, frame)


def tags_field(words: WordsField) -> TagsField:
    return TagsField("tags", words, TAGS)


def tree_field(words: WordsField) -> TreeField:
    return TreeField("heads", "relations", words, RELATIONS)


def row(words: Any, **others: Any) -> Row:
    return Row("rows:7", {"words": words, **others})


def pieces(tokenizer: TextTokenizer, words: list[str]) -> list[list[int]]:
    """Of each word by itself, as it is cut inside a sentence."""
    return [tokenizer.encode([f" {word}" if number else word])[0] for number, word in enumerate(words)]


def length(tokenizer: TextTokenizer, text: str) -> int:
    return sum(map(len, pieces(tokenizer, text.split())))


def test_each_word_begins_where_its_first_piece_stands(tokenizer: TextTokenizer) -> None:
    words = ["thousandseven", "one", "hundredforty", "삼백"]
    own = pieces(tokenizer, words)
    assert max(map(len, own)) > 1
    (found,) = words_field(tokenizer).read([row(words)]).ids
    assert list(found.ids) == [2, *(token for piece in own for token in piece), 3]
    for start, piece in zip(found.starts, own, strict=True):
        assert list(found.ids[start : start + len(piece)]) == piece


def test_a_list_of_words_and_a_text_with_blanks_are_the_same(tokenizer: TextTokenizer) -> None:
    field = words_field(tokenizer)
    texts = [row(["one", "hundred"]), row("one hundred"), row("  one\thundred \n")]
    first, *others = field.read(texts).ids
    assert others == [first] * 2
    assert field.taken(texts[2]) == ["one", "hundred"]


def test_the_words_of_a_sentence_are_cut_as_the_sentence_is(tokenizer: TextTokenizer) -> None:
    words = ["seven", "hundred", "and", "two"]
    (found,) = words_field(tokenizer, frame=Frame()).read([row(words)]).ids
    assert list(found.ids) == tokenizer.encode([" ".join(words)])[0]


def test_a_word_of_which_the_tokenizer_makes_nothing_still_has_a_place(tokenizer: TextTokenizer) -> None:
    nothing = "\u200b"
    (found,) = words_field(tokenizer).read([row(["one", nothing, "two"])]).ids
    assert len(found.starts) == 3
    assert len(set(found.starts)) == 3


def test_a_long_sentence_ends_with_the_last_whole_word_that_fits(tokenizer: TextTokenizer) -> None:
    words = ["one", "thousandseven", "two"] * 4
    own = pieces(tokenizer, words)
    for limit in range(max(map(len, own)) + 2, 2 + sum(map(len, own)) + 1):
        found = words_field(tokenizer, limit).read([row(words)])
        (one,) = found.ids
        kept = len(one.starts)
        assert len(one.ids) == 2 + sum(map(len, own[:kept])) <= limit
        assert kept == len(words) or len(one.ids) + len(own[kept]) > limit
        assert found.cut == (kept < len(words))
        assert one.ids[-1] == 3


@pytest.mark.parametrize("ask", ["items", "read"])
def test_a_sentence_that_is_too_long_is_refused_if_the_recipe_says_so(tokenizer: TextTokenizer, ask: str) -> None:
    field = words_field(tokenizer, 9, "refuse")
    with pytest.raises(TooLongError, match=r"^rows:7: \d+ tokens, the limit is 7; cut the sentence in two, or train"):
        getattr(field, ask)([row(["one"] * 20)])
    with pytest.raises(TooLongError, match=r"^rows:7: the word 'gggg.*ggg' has \d+ tokens, and 7 are the most"):
        getattr(field, ask)([row(["one", "two", "g" * 100])])


@pytest.mark.parametrize("ask", ["items", "read"])
def test_a_word_that_is_longer_than_a_sentence_may_be_keeps_its_first_tokens(
    tokenizer: TextTokenizer, ask: str
) -> None:
    field, (long, short) = words_field(tokenizer, 10), pieces(tokenizer, ["g" * 400, "one"])
    found = getattr(field, ask)([row(["g" * 400, "one"]), row(["one"])])
    assert len(long) > 390
    assert list(found.ids[0].ids) == [2, *long[: field.word_room], *short, 3]
    assert list(found.ids[0].starts) == [1, 1 + field.word_room]
    assert found.ids[0].cut_words == found.cut == 1


def test_a_sentence_of_only_such_words_keeps_them_all(tokenizer: TextTokenizer) -> None:
    for limit in (3, 4, 5, 10, 11):
        field = words_field(tokenizer, limit)
        (sentence,) = field.items([row(["g" * 400] * 7)]).ids
        assert len(sentence.starts) == sentence.cut_words == 7
        assert all(stop - start <= field.room for start, stop in sentence.windows)
        (learned,) = field.read([row(["g" * 400] * 7)]).ids
        assert 1 <= len(learned.starts) < 7
        assert len(learned.ids) <= limit


def test_what_is_answered_keeps_every_word_and_what_is_learned_from_those_that_fit(tokenizer: TextTokenizer) -> None:
    field, words = words_field(tokenizer, 12), ["one", "thousandseven", "two"] * 9
    (whole,), (learned,) = field.items([row(words)]).ids, field.read([row(words)]).ids
    own = pieces(tokenizer, words)
    assert list(whole.ids) == [2, *(token for piece in own for token in piece), 3]
    assert len(whole.starts) == 27 > len(learned.starts)
    assert list(whole.ids[: len(learned.ids) - 1]) == list(learned.ids[:-1])
    assert whole.windows
    assert not learned.windows
    assert field.items([row(["one"])]).ids == field.read([row(["one"])]).ids


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
        words_field(tokenizer).read([row(words)])


def test_words_may_be_given_as_any_sequence(tokenizer: TextTokenizer) -> None:
    field = words_field(tokenizer)
    assert field.read([row(("one", "two"))]) == field.read([row(["one", "two"])]) == field.read([row("one two")])


def test_a_batch_holds_the_places_of_the_words(tokenizer: TextTokenizer) -> None:
    batch = words_field(tokenizer).batch([Words([2, 10, 11, 12, 3], [1, 3]), Words([2, 13, 3], [1])])
    assert batch.words is not None
    assert batch.words.tolist() == [[1, 3], [1, -1]]
    assert batch.mask.sum(1).tolist() == [5, 3]


def test_a_cache_gives_the_same_words_again(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    field = words_field(tokenizer, 12)
    rows: list[dict[str, Any]] = [{"words": ["thousandseven", "one"]}, {"words": "one " * 30}, {"words": ["two"]}]
    cache = Cache.of(write_jsonl(tmp_path / "rows.jsonl", rows), field.columns())
    for number, expected in enumerate(field.read([Row("", one) for one in rows]).ids):
        found = field.cached(cache, number)
        assert (list(found.ids), list(found.starts)) == (list(expected.ids), list(expected.starts))
        assert field.length(found) == field.lengths(cache)[number] == len(expected.ids)
    assert cache.cut == {SOURCE: 1, STARTS: 0}


def test_tags_have_numbers_and_those_never_seen_do_not_count(tokenizer: TextTokenizer) -> None:
    field = tags_field(words_field(tokenizer))
    rows = [row("one two three", tags="O B A"), row(["one"], tags=["X"]), row("one two", tags=["A", "Y"])]
    target = field.target(field.encode(rows).ids)
    assert target.mask.tolist() == [[True, True, True], [False, False, False], [True, False, False]]
    assert target.tokens[target.mask].tolist() == [2, 1, 0, 0]


def test_tags_end_with_the_words_that_are_read(tokenizer: TextTokenizer) -> None:
    field = tags_field(words_field(tokenizer, 2 + length(tokenizer, "one two")))
    (found,) = field.encode([row("one two seven nine", tags="A B O A")]).ids
    assert found == [0, 1]


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
        tags_field(words_field(tokenizer)).encode([row("one two three", tags=tags)])


def test_a_tree_is_a_head_and_a_relation_for_each_word(tokenizer: TextTokenizer) -> None:
    field = tree_field(words_field(tokenizer))
    rows = [
        row("one two three", heads=[2, 0, 2], relations=["left", "root", "right"]),
        row("one", heads="0", relations="root"),
        row("one two", heads=["0", "1"], relations="root never"),
    ]
    target = field.target(field.encode(rows).ids)
    assert target.tokens.shape == (3, 3, 2)
    assert target.mask.tolist() == [[True, True, True], [True, False, False], [True, False, False]]
    assert target.tokens[target.mask].tolist() == [[2, 0], [0, 2], [2, 1], [0, 2], [0, 2]]


def test_a_word_whose_head_was_cut_off_does_not_count(tokenizer: TextTokenizer) -> None:
    field = tree_field(words_field(tokenizer, 2 + length(tokenizer, "one two seven")))
    (found,) = field.encode([row("one two seven nine", heads=[2, 4, 2, 0], relations="left left left root")]).ids
    target = field.target([found])
    assert target.mask.tolist() == [[True, False, True]]
    assert target.tokens[0, ::2].tolist() == [[2, 0], [2, 0]]


@pytest.mark.parametrize(
    ("heads", "said"),
    [
        ([2, 1, 0], "the tree has a cycle through word 1"),
        ([0, 0, 1], "the tree has two roots"),
        ([2, 3, 2], "the tree has no root"),
        ([0, 9, 1], "the tree has a head outside the sentence"),
        ([0, 1], "2 heads and 3 relations, but 3 words"),
        ([0, None, 1], "'heads' must hold a whole number for each word"),
        ([0, 1.5, 1], "'heads' must hold a whole number for each word"),
        ("0 1 x", "'heads' must hold a whole number for each word"),
        (5, "'heads' must hold a whole number for each word"),
        (None, "0 heads and 3 relations, but 3 words"),
    ],
)
def test_what_is_no_tree_is_named(tokenizer: TextTokenizer, heads: Any, said: str) -> None:
    with pytest.raises(TwofoldError, match=f"^rows:7: {said}"):
        tree_field(words_field(tokenizer)).encode([row("one two three", heads=heads, relations="root left left")])


def test_another_set_of_names_makes_another_cache(tokenizer: TextTokenizer) -> None:
    words = words_field(tokenizer)
    names = [Classes(("A", "B")), Classes(("B", "A"))]
    assert TagsField("tags", words, names[0]).settings() != TagsField("tags", words, names[1]).settings()
    assert TreeField("h", "r", words, names[0]).settings() != TreeField("h", "r", words, names[1]).settings()
    assert words.settings() != words_field(tokenizer, 31).settings() != words_field(tokenizer, frame=Frame()).settings()


def test_batches_are_as_large_as_what_is_read_whatever_is_said_of_it(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    words = words_field(tokenizer)
    rows = [{"words": ["a"] * 8, "heads": [*range(8)], "relations": ["root", *["left"] * 7]} for _ in range(12)]
    path = write_jsonl(tmp_path / "rows.jsonl", rows)
    longest = int(words.lengths(Cache.of(path, words.columns())).max())
    tree = tree_field(words)
    cache = Cache.of(path, {**words.columns(), "main": tree})
    plan = TrainingRows(cache, np.arange(12), words, {"main": tree}, 4 * longest, None, 1).plan(0)
    assert [len(plan.rows(number)) for number in range(len(plan))] == [4, 4, 4]
