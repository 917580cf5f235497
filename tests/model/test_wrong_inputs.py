"""Inputs of `predict` that cannot be read are one line that says which input it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.conftest import decoder, encoder, small_model
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError, kind_of_value
from twofold.model import Model


def model_of(writes: str, tokenizer: TextTokenizer) -> Model:
    reads = "rnn" if writes == "attention_rnn" else "transformer"
    return small_model(tokenizer, encoder(reads), decoder(writes))


each = pytest.mark.parametrize("writes", ["attention_rnn", "label", "tags"])


@each
@pytest.mark.parametrize("given", [5, None, {"a": 1}, b"one", bytearray(b"one"), np.array([["one"]]), 1.5])
def test_what_is_no_input_and_no_list_is_named(tokenizer: TextTokenizer, writes: str, given: Any) -> None:
    said = f"^inputs: {kind_of_value(given)}, where a list is wanted; give a list$"
    model = model_of(writes, tokenizer)
    for call in (model.predict, model.encode):
        with pytest.raises(TwofoldError, match=said):
            call(given)


@each
def test_inputs_may_be_anything_that_gives_them_one_after_another(tokenizer: TextTokenizer, writes: str) -> None:
    model, texts = model_of(writes, tokenizer), ["one", "two"]
    expected = [prediction.output for prediction in model.predict(texts)]
    for given in (tuple(texts), np.array(texts), (text for text in texts)):
        assert [prediction.output for prediction in model.predict(given)] == expected
    np.testing.assert_array_equal(model.encode(text for text in texts), model.encode(texts))


@each
@pytest.mark.parametrize("wrong", [5, None, {"a": 1}, b"one", [["one"]], [1, 2], [], np.zeros((3, 2)), ["one", None]])
def test_an_input_that_is_no_text_is_named_by_its_number(tokenizer: TextTokenizer, writes: str, wrong: Any) -> None:
    with pytest.raises(TwofoldError, match=r"^input 2: 'source' is [^\n]+$"):
        model_of(writes, tokenizer).predict(["one", wrong])


def test_what_an_input_is_instead_of_a_text_is_shown(tokenizer: TextTokenizer) -> None:
    with pytest.raises(TwofoldError, match=r"^input 1: 'source' is neither a text nor a list of texts, but 5$"):
        model_of("attention_rnn", tokenizer).predict([5])


@each
def test_no_inputs_give_no_predictions(tokenizer: TextTokenizer, writes: str) -> None:
    assert model_of(writes, tokenizer).predict([]) == []
    assert model_of(writes, tokenizer).predict(()) == []


@pytest.mark.parametrize("writes", ["attention_rnn", "label"])
@pytest.mark.parametrize("text", ["\x00\x01", "\x07 \x08", "\u200b", ["\x07", "\x08 "]])
def test_a_text_of_control_characters_has_nothing_to_read(tokenizer: TextTokenizer, writes: str, text: Any) -> None:
    with pytest.raises(TwofoldError, match=r"^input 1: 'source' has nothing to read but blanks or control characters$"):
        model_of(writes, tokenizer).predict([text])


@each
@pytest.mark.parametrize("text", ["", "  ", "\t\n"])
def test_an_empty_text_is_one_line(tokenizer: TextTokenizer, writes: str, text: str) -> None:
    with pytest.raises(TwofoldError, match=r"^input 1: 'source' is empty; fill it or remove the (row|sentence)$"):
        model_of(writes, tokenizer).predict(text)


@pytest.mark.parametrize(
    ("examples", "said"),
    [
        ([], "a batch needs at least one example"),
        ("one", r"examples: one text, where a list is wanted; put it in brackets: \['one'\]"),
        ({"source": "one"}, "examples: a value of type dict, where a list is wanted; give a list"),
        (["one"], "example 1: a value of type str, where a dict of columns is wanted"),
    ],
)
def test_rows_that_are_no_dicts_make_no_batch(tokenizer: TextTokenizer, examples: Any, said: str) -> None:
    with pytest.raises(TwofoldError, match=f"^{said}$"):
        model_of("label", tokenizer).batch(examples)


def test_rows_in_the_place_of_a_batch_are_one_line_with_the_remedy(tokenizer: TextTokenizer) -> None:
    model, rows = model_of("label", tokenizer), [{"source": "one", "label": "few"}]
    given: Any = rows
    for call in (model, model.loss):
        with pytest.raises(TwofoldError, match=r"^a value of type list, where a batch .*; give model\.batch\(rows\)$"):
            call(given)
    with pytest.raises(TwofoldError, match=r"^loss: the batch has no targets; make it with model\.batch\(rows\)$"):
        model.loss(model.batch(rows, targets=False))
