"""Two texts read as one or apart: what stands where, what is cut where both are too long, and what a user gives."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import write_jsonl
from twofold.data.cache import Cache
from twofold.data.columns import TextColumn, TooLong, TooLongError
from twofold.data.files import Row
from twofold.data.tokenizer import Frame, TextTokenizer
from twofold.errors import TwofoldError
from twofold.inputs.pair import ApartInput, Config, PairInput, TokenPair
from twofold.inputs.text import Tokens

FRAME = Frame((90,), (91, 92), (93,))
"""Four symbols in all."""


def pair_input(tokenizer: TextTokenizer, limit: int = 14, too_long: TooLong = "cut", tail: bool = False) -> PairInput:
    config = Config(column=("one", "other"), max_tokens=limit, too_long=too_long, keep="tail" if tail else "head")
    built = config.build(tokenizer)
    return PairInput(config, built.first, built.second, FRAME)


def joined(pair: PairInput, *items: tuple[list[int], list[int]]) -> Tokens:
    batch = pair.batch(items)
    assert isinstance(batch, Tokens)
    return batch


def row(first: Any, other: Any) -> Row:
    return Row("rows:1", {"one": first, "other": other})


def read(pair: PairInput, first: Any, second: Any) -> list[int]:
    """The tokens of one row, padding left out."""
    batch = joined(pair, (first, second))
    return [int(token) for token in batch.tokens[0][batch.mask[0]]]


def test_both_texts_stand_in_one_frame_and_segments_tell_them_apart(tokenizer: TextTokenizer) -> None:
    batch = joined(pair_input(tokenizer), ([10, 11, 12], [20, 21]), ([13], [22]))
    pad = tokenizer.pad
    assert batch.tokens.tolist() == [
        [90, 10, 11, 12, 91, 92, 20, 21, 93],
        [90, 13, 91, 92, 22, 93, pad, pad, pad],
    ]
    assert batch.segments is not None
    assert batch.segments.tolist() == [[0, 0, 0, 0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 1, 1, 0, 0, 0]]
    assert batch.mask.sum(1).tolist() == [9, 6]


@pytest.mark.parametrize(
    ("lengths", "kept"),
    [
        ((5, 5), (5, 5)),
        ((3, 7), (3, 7)),
        ((20, 3), (7, 3)),  # only the longer one loses
        ((3, 20), (3, 7)),
        ((20, 20), (5, 5)),
        ((6, 20), (5, 5)),
        ((20, 1), (9, 1)),
        ((1, 20), (1, 9)),
    ],
)
def test_what_is_too_long_is_taken_from_the_longer_text(
    tokenizer: TextTokenizer, lengths: tuple[int, int], kept: tuple[int, int]
) -> None:
    first, second = list(range(100, 100 + lengths[0])), list(range(200, 200 + lengths[1]))
    ids = read(pair_input(tokenizer), first, second)
    assert ids == [90, *first[: kept[0]], 91, 92, *second[: kept[1]], 93]
    assert len(ids) <= 14
    tail = read(pair_input(tokenizer, tail=True), first, second)
    assert tail == [90, *first[len(first) - kept[0] :], 91, 92, *second[: kept[1]], 93]


@pytest.mark.parametrize("tail", [False, True])
def test_of_a_dialogue_far_longer_than_the_limit_the_newest_turn_stays_where_it_is_to(
    tokenizer: TextTokenizer, tail: bool
) -> None:
    pair = pair_input(tokenizer, 10, tail=tail)
    with pytest.warns(UserWarning, match="^1 of 1 inputs are longer than 10 tokens and were cut$"):
        ((first, second),) = pair.items([row(["seven"] * 40 + ["nine hundred"], "two")])
    ids, newest = read(pair, first, second), tokenizer.encode(["nine hundred"])[0][-1]
    assert len(ids) == 10
    assert newest not in tokenizer.encode(["seven two"])[0]
    assert (newest in ids) == tail


def test_lengths_are_those_of_the_batches(tokenizer: TextTokenizer, tmp_path: Any) -> None:
    texts = ["seven", "one hundred and two", "two thousand and forty five", "a b c d e f g h"]
    rows = [{"one": one, "other": other} for one in texts for other in texts]
    pair = pair_input(tokenizer)
    cache = Cache.of(write_jsonl(tmp_path / "rows.jsonl", rows), pair.columns())
    lengths = pair.lengths(cache)
    items = pair.encode([Row("", one) for one in rows])
    for number in range(len(rows)):
        cached = pair.cached(cache, number)
        first, second = items.ids[number]
        assert (list(cached[0]), list(cached[1])) == (first, second)
        assert lengths[number] == pair.length(cached) + 4 == len(read(pair, first, second))
    assert lengths.max() == 14 > lengths.min()


def test_pairs_that_are_too_long_together_are_counted_or_refused(tokenizer: TextTokenizer, tmp_path: Any) -> None:
    rows = [row("seven", "two"), row("a b c d e f", "g f e d c b")]
    assert all(len(ids) <= 14 for ids in tokenizer.encode(["a b c d e f", "g f e d c b"]))  # each alone would fit
    assert pair_input(tokenizer).encode(rows).cut == 1
    cache = Cache.of(
        write_jsonl(tmp_path / "rows.jsonl", [one.values for one in rows]), pair_input(tokenizer).columns()
    )
    assert sum(cache.cut.values()) == 1
    refusing = pair_input(tokenizer, too_long="refuse")
    for encode in (refusing.items, refusing.columns()["second"].encode):
        with pytest.raises(TooLongError, match=r"^rows:1: one and other have \d+ tokens, the limit is 10; shorten"):
            encode(rows)


def test_another_limit_or_frame_makes_another_cache(tokenizer: TextTokenizer) -> None:
    def key(pair: PairInput) -> Any:
        return [one.settings() for one in pair.columns().values()]

    plain = pair_input(tokenizer)
    others = [
        pair_input(tokenizer, 15),
        pair_input(tokenizer, tail=True),
        pair_input(tokenizer, too_long="refuse"),
        PairInput(plain.config, plain.first, plain.second, Frame((90,), (91,), (93,))),
    ]
    keys = [key(one) for one in (plain, *others)]
    assert all(keys.count(one) == 1 for one in keys)
    assert key(pair_input(tokenizer)) == key(plain)


def test_two_texts_are_given_apart_or_with_a_tab_between_them(tokenizer: TextTokenizer) -> None:
    pair = pair_input(tokenizer)
    for given in ("seven\ttwo", ("seven", "two"), ["seven", "two"]):
        assert pair.row(given, "").values == {"one": "seven", "other": "two"}
    assert pair.row([["seven", "eight"], "two"], "").values == {"one": ["seven", "eight"], "other": "two"}
    assert pair.value(row(["seven", "eight"], "two")) == (["seven", "eight"], "two")


@pytest.mark.parametrize("given", ["seven two", "seven\ttwo\tone", ("seven",), [], 5, None])
def test_what_is_not_two_texts_is_refused_with_its_place(tokenizer: TextTokenizer, given: Any) -> None:
    with pytest.raises(TwofoldError, match=r"^input 3: give one and other, two texts with a tab between them$"):
        pair_input(tokenizer).row(given, "input 3")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"one": "seven"}, "no 'other' here; this row has one"),
        ({"one": "seven", "other": " "}, "'other' is empty"),
        ({"one": 7, "other": "two"}, "'one' is neither a text nor a list of texts"),
    ],
)
def test_a_row_without_both_texts_is_named(tokenizer: TextTokenizer, values: dict[str, Any], said: str) -> None:
    with pytest.raises(TwofoldError, match=f"^rows:9: {said}"):
        pair_input(tokenizer).items([Row("rows:9", values)])


def test_texts_that_are_read_apart_have_frames_and_limits_of_their_own(tokenizer: TextTokenizer) -> None:
    around = Frame((90,), (), (93,))
    config = Config(column=("one", "other"), read="apart", max_tokens=4)
    first, second = (TextColumn(name, tokenizer, 4 - len(around)) for name in config.column)
    apart = ApartInput(config, first, second, around)
    encoded = apart.encode([row("one two three four five six seven", "one")])
    assert encoded.cut == 1
    batch = apart.batch([encoded.ids[0], ([11], [21, 22])])
    assert isinstance(batch, TokenPair)
    assert batch.first.segments is None
    assert batch.first.mask.sum(1).tolist() == [4, 3]
    assert batch.first.tokens[1].tolist() == [90, 11, 93, tokenizer.pad]
    assert batch.second.tokens[1].tolist() == [90, 21, 22, 93]
    assert apart.length(encoded.ids[0]) == 2 + len(encoded.ids[0][1])


def test_lengths_of_texts_that_are_read_apart_are_those_of_both(tokenizer: TextTokenizer, tmp_path: Any) -> None:
    texts = ["seven", "one hundred and two", "two thousand and forty five"]
    rows = [{"one": first, "other": second} for first in texts for second in texts]
    apart = Config(column=("one", "other"), read="apart", max_tokens=30).build(tokenizer)
    cache = Cache.of(write_jsonl(tmp_path / "rows.jsonl", rows), apart.columns())
    items = [apart.cached(cache, number) for number in range(len(rows))]
    for number, item in enumerate(items):
        assert apart.lengths(cache)[number] == apart.batch([item]).count()
        assert apart.length(item) == apart.batch([item]).count() - 2 * len(apart.frame)
