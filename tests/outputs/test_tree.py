"""Dependency trees of words: heads and relations as numbers, and what is no tree."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import write_jsonl
from tests.inputs.sentences import length, row, words_input
from twofold.data.cache import Cache
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.inputs import BatchSizes
from twofold.inputs.words import WordsInput
from twofold.model.batches import TrainingRows
from twofold.outputs.tree import Config, TreeOutput
from twofold.types import HiddenSpec


def tree_output(words: WordsInput, names: tuple[str, ...] = ("left", "right", "root")) -> TreeOutput:
    return Config(names=names).build("main", words, None, HiddenSpec())


def test_a_tree_is_a_head_and_a_relation_for_each_word(tokenizer: TextTokenizer) -> None:
    field = tree_output(words_input(tokenizer))
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
    field = tree_output(words_input(tokenizer, 2 + length(tokenizer, "one two seven")))
    (ids,) = field.encode([row("one two seven nine", heads=[2, 4, 2, 0], relations="left left left root")]).ids
    target = field.target([ids])
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
        tree_output(words_input(tokenizer)).encode([row("one two three", heads=heads, relations="root left left")])


def test_another_set_of_names_makes_another_cache(tokenizer: TextTokenizer) -> None:
    words = words_input(tokenizer)
    assert tree_output(words, ("A", "B")).settings() != tree_output(words, ("B", "A")).settings()


def test_batches_are_as_large_as_what_is_read_whatever_is_said_of_it(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    words = words_input(tokenizer)
    rows = [{"words": ["a"] * 8, "heads": [*range(8)], "relations": ["root", *["left"] * 7]} for _ in range(12)]
    path = write_jsonl(tmp_path / "rows.jsonl", rows)
    longest = int(words.lengths(Cache.of(path, words.columns())).max())
    tree = tree_output(words)
    cache = Cache.of(path, {**words.columns(), **tree.columns()})
    plan = TrainingRows(cache, np.arange(12), words, [tree], BatchSizes(4 * longest, None, 1)).plan(0)
    assert [len(plan.rows(number)) for number in range(len(plan))] == [4, 4, 4]
