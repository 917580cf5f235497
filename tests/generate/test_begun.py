"""A text that is continued from its own beginning is the same text, in every decoder and by every search."""

from __future__ import annotations

import pytest

from tests.model.kinds import WRITERS
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.generate.search import GenerateOptions
from twofold.model.continuing import Continuation, Token, Written

NAMES = [name for name in WRITERS if name.startswith("text")]


@pytest.mark.parametrize("name", NAMES)
def test_a_beginning_of_its_own_is_continued_to_the_same_text(tokenizer: TextTokenizer, name: str) -> None:
    model, given = WRITERS[name](tokenizer), WRITERS[name].given
    options = GenerateOptions(max_length=8)
    (whole,) = model.predict([given], options)
    assert whole.tokens is not None
    for length in (1, 3):
        rest = GenerateOptions(max_length=8 - length)
        written = Continuation(model, given, whole.tokens[:length]).write(rest)
        assert written.ids == whole.tokens
        assert written.text == whole.output


@pytest.mark.parametrize("name", NAMES)
def test_another_beginning_gives_another_text_that_starts_with_it(tokenizer: TextTokenizer, name: str) -> None:
    model, given = WRITERS[name](tokenizer), WRITERS[name].given
    free = Continuation(model, given, [])
    forced = free.choices(4)[3]
    written = Continuation(model, given, [forced.piece]).write(GenerateOptions(max_length=5))
    assert written.ids[0] == forced.id
    assert written.ids != free.write(GenerateOptions(max_length=6)).ids


@pytest.mark.parametrize("name", NAMES)
def test_choices_are_the_probabilities_of_teacher_forcing(tokenizer: TextTokenizer, name: str) -> None:
    model, given = WRITERS[name](tokenizer), WRITERS[name].given
    explained = model.explain(given, GenerateOptions(max_length=6), influence=False)
    for step in (0, 2, 4):
        choices = Continuation(model, given, explained.written[:step]).choices(10)
        names, chances = zip(*explained.choices[step].alternatives, strict=True)
        assert [choice.piece for choice in choices] == list(names)
        assert [choice.probability for choice in choices] == pytest.approx(list(chances), rel=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_a_beam_begins_with_the_given_tokens(tokenizer: TextTokenizer, name: str) -> None:
    model, given = WRITERS[name](tokenizer), WRITERS[name].given
    tokens = [choice.id for choice in Continuation(model, given, []).choices(3)][1:2]
    greedy = Continuation(model, given, tokens).write(GenerateOptions(max_length=4, length_penalty=0))
    beam = Continuation(model, given, tokens).write(GenerateOptions(max_length=4, beam=4, length_penalty=0))
    assert beam.ids[0] == tokens[0]
    assert beam.score >= greedy.score - 1e-4


def test_a_stream_ends_with_the_whole_text(tokenizer: TextTokenizer) -> None:
    model, given = WRITERS["text, transformer"](tokenizer), "one two"
    *tokens, last = Continuation(model, given, ["1"]).stream(GenerateOptions(max_length=4))
    assert isinstance(last, Written)
    steps = [token for token in tokens if isinstance(token, Token)]
    assert last.ids == (*Continuation(model, given, ["1"]).begun, *(token.id for token in steps))
    assert "1" + "".join(token.text for token in steps) == last.text


@pytest.mark.parametrize("wrong", ["</s>", "no such token", -1, 10_000, "<pad>"])
def test_what_no_text_holds_is_refused(tokenizer: TextTokenizer, wrong: str | int) -> None:
    model = WRITERS["text, rnn"](tokenizer)
    with pytest.raises(TwofoldError, match=r"prefix\[1\]"):
        Continuation(model, "one", ["1", wrong])


def test_a_beginning_that_leaves_no_room_is_refused(tokenizer: TextTokenizer) -> None:
    model = WRITERS["text, rnn"](tokenizer)
    with pytest.raises(TwofoldError, match="leave nothing to write"):
        Continuation(model, "one", ["1"] * 30)
