"""Pre-training: what was hidden is guessed, by a causal encoder what comes next, and nothing is answered."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.conftest import decoder, encoder, input_of, output_of
from tests.test_contracts import kinds_of
from tests.texts import small_reader, without_dropout
from twofold.data.tokenizer import TextTokenizer
from twofold.decoders.tokens import TokensDecoder
from twofold.errors import TwofoldError
from twofold.inputs.text import Tokens
from twofold.model import Model, ModelConfig, Task
from twofold.types import Target

TEXTS = [{"text": text} for text in ("one hundred and two", "seven", "a b c d e f g", "삼백")]
PAIRS = [{"one": row["text"], "other": f"{row['text']} two"} for row in TEXTS]


def guesser(
    tokenizer: TextTokenizer, reads: str = "transformer", masked: float | None = None, **settings: Any
) -> Model:
    parts = without_dropout(encoder(reads, **settings)), decoder("tokens")
    return small_reader(tokenizer, *parts, {"masked": masked})


def test_the_loss_is_the_cross_entropy_of_what_is_to_be_guessed(tokenizer: TextTokenizer) -> None:
    model = guesser(tokenizer, masked=0.4).eval()
    batch, part = model.batch(TEXTS), model.decoder()
    assert isinstance(part, TokensDecoder)
    target = batch.targets["main"]
    states = model.encoder(batch).need("states")
    expected, count = torch.zeros(()), 0
    for row, place in target.mask.nonzero().tolist():
        between = F.gelu(part.between[0](states[row, place]))
        scores = part.output.weight @ part.between[2](between) + part.output.bias
        expected, count = expected - scores.log_softmax(0)[target.tokens[row, place]], count + 1
    loss = model.losses(batch)["main"]
    torch.testing.assert_close(loss.sum, expected, atol=1e-4, rtol=1e-5)
    assert loss.count == count == model.counts(batch)["main"] >= len(TEXTS)
    others = target.tokens.masked_fill(~target.mask, 5)
    assert torch.equal(
        model.losses(replace(batch, targets={"main": Target(others, target.mask)}))["main"].sum, loss.sum
    )


@pytest.mark.parametrize(
    ("reads", "settings"), [("transformer", {"causal": True}), ("rnn", {"bidirectional": False})], ids=["tf", "rnn"]
)
def test_a_causal_encoder_guesses_what_comes_next(
    tokenizer: TextTokenizer, reads: str, settings: dict[str, Any]
) -> None:
    model = guesser(tokenizer, reads, **settings)
    batch = model.batch(TEXTS)
    tokens, target = batch.read(Tokens).tokens, batch.targets["main"]
    for row, text in enumerate(TEXTS):
        ids = [*tokenizer.frame.before, *tokenizer.encode([text["text"]])[0], *tokenizer.frame.after]
        assert tokens[row, : len(ids)].tolist() == ids  # nothing is hidden
        assert target.tokens[row][target.mask[row]].tolist() == ids[1:]
        assert target.mask[row].tolist() == [place < len(ids) - 1 for place in range(tokens.shape[1])]


@pytest.mark.parametrize("reads", kinds_of("encoders", "text"))
def test_every_parameter_learns_over_every_encoder(tokenizer: TextTokenizer, reads: str) -> None:
    model = guesser(tokenizer, reads)
    batch = model.batch(TEXTS)
    model.loss(batch).backward()  # type: ignore[no-untyped-call]
    assert not [name for name, one in model.named_parameters() if one.grad is None or not one.grad.any()]


def test_the_encoders_table_of_tokens_is_shared_where_it_fits(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    for reads, settings, shared in (("transformer", {}, True), ("rnn", {"embedding": 24}, True), ("rnn", {}, False)):
        model = guesser(tokenizer, reads, **settings)
        part = model.decoder()
        assert isinstance(part, TokensDecoder)
        assert (part.output.weight is model.encoder.table()) == shared
        model.save_pretrained(tmp_path / "saved")
        loaded = Model.from_pretrained(tmp_path / "saved")
        assert (loaded.decoder().get_parameter("output.weight") is loaded.encoder.table()) == shared
        assert torch.equal(loaded.loss(loaded.batch(TEXTS)), model.eval().loss(model.batch(TEXTS)))


def test_what_is_judged_is_hidden_in_the_same_places_every_time(tokenizer: TextTokenizer) -> None:
    model = guesser(tokenizer, masked=0.4)
    first, second = model.batch(TEXTS), model.batch(TEXTS)
    assert torch.equal(first.read(Tokens).tokens, second.read(Tokens).tokens)
    assert torch.equal(first.targets["main"].mask, second.targets["main"].mask)
    assert not torch.equal(first.read(Tokens).tokens, model.batch(TEXTS, targets=False).read(Tokens).tokens)


def test_a_pretrained_model_answers_nothing(tokenizer: TextTokenizer) -> None:
    with pytest.raises(TwofoldError, match="a language model for pre-training has no answers; name its folder as"):
        guesser(tokenizer).predict(["seven"])


def both(tokenizer: TextTokenizer, **settings: Any) -> Model:
    """Guesses, and tells whether the second text is another's."""
    torch.manual_seed(0)
    tasks = {
        "guess": Task(decoder("tokens"), output_of("tokens")),
        "tell": Task(decoder("label"), output_of("next_utterance")),
    }
    given: dict[str, Any] = {"kind": "pair", "column": ["one", "other"], "max_tokens": 40}
    return Model(ModelConfig(input_of(**{**given, **settings}), encoder("transformer"), tasks), {"input": tokenizer})


def test_masks_are_guessed_and_next_utterances_told_in_one_batch(tokenizer: TextTokenizer) -> None:
    model = both(tokenizer)
    batch = model.batch(PAIRS)
    assert batch.targets.keys() == {"guess", "tell"}
    segments = batch.read(Tokens).segments
    assert segments is not None
    for row, pair in enumerate(PAIRS):
        guess = batch.targets["guess"]
        second = guess.tokens[row][segments[row].bool()].tolist()
        other_ids = tokenizer.encode([pair["other"]])[0]
        assert batch.targets["tell"].tokens[row].tolist() == [int(second != other_ids)]
        assert guess.mask[row].any()
    assert {name: loss.count > 0 for name, loss in model.losses(batch).items()} == {"guess": True, "tell": True}
    (prediction,) = model.predict([("seven", "two")], decoder="tell")
    assert prediction.output in ("yes", "no")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"kind": "text", "column": "one"},
            "the output 'next_utterance' needs two texts: input: {kind: pair}",
        ),
        ({"column": ["one", "other", "third"]}, "a pair has two columns"),
        ({"max_tokens": 3}, "input.max_tokens=3 leaves no room beside the 2 symbols around a text; at least 4"),
    ],
)
def test_a_next_utterance_needs_two_texts(tokenizer: TextTokenizer, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(TwofoldError, match=said):
        both(tokenizer, **settings)


@pytest.mark.parametrize("writes", ["tags", "tokens", "transformer"])
def test_only_a_label_tells_a_next_utterance(writes: str) -> None:
    tasks = {"tell": Task(decoder(writes), output_of("next_utterance"))}
    with pytest.raises(TwofoldError, match=f"'{writes}' writes .* but the output 'next_utterance' takes scores; these"):
        ModelConfig(input_of("pair", column=["one", "other"]), encoder("transformer"), tasks).check()


def test_what_is_guessed_must_suit_the_encoder(tokenizer: TextTokenizer) -> None:
    guesser(tokenizer, masked=0.0, causal=True)
    with pytest.raises(
        TwofoldError, match=r"^the decoder 'main' predicts each next token, but the encoder sees it; take a"
    ):
        guesser(tokenizer, masked=0.0)
    with pytest.raises(
        TwofoldError,
        match=r"^the decoder 'main' predicts masked tokens, but the encoder is causal, .*masked: 0",
    ):
        guesser(tokenizer, masked=0.15, causal=True)


@pytest.mark.parametrize("masked", [1.0, -0.5])
def test_a_share_that_cannot_be_masked_is_refused(masked: float) -> None:
    with pytest.raises(TwofoldError, match="masked must be at least 0 and below 1"):
        output_of("tokens", masked=masked)
