"""The tagging decoder: the first piece of a word speaks for it, and neither padding nor other sentences matter."""

from __future__ import annotations

from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.conftest import decoder, encoder
from tests.test_contracts import kinds_of
from tests.texts import small_reader, without_dropout
from twofold.data.tokenizer import TextTokenizer
from twofold.decoders.tags import TagsDecoder
from twofold.inputs.words import Words
from twofold.model import Model
from twofold.results import Tagged
from twofold.types import Batch, Classes, Hidden, HiddenSpec, Target

PLAIN = ("A", "B", "C", "D")
NAMED = ("B-X", "I-X", "B-Y", "I-Y", "O")
SENTENCES = [
    ["one", "thousandseven", "two"],
    ["seven"],
    ["a", "b", "hundredforty", "d", "삼백", "f", "g", "seven"],
    ["two", "one"],
]


def tagger(tokenizer: TextTokenizer, names: tuple[str, ...] = PLAIN, reads: str = "transformer", **given: Any) -> Model:
    parts = without_dropout(encoder(reads)), decoder("tags", dropout=0.0, **given)
    return small_reader(tokenizer, *parts, {"names": list(names)})


def rows(names: tuple[str, ...] = PLAIN) -> list[dict[str, Any]]:
    return [{"text": words, "tags": [names[len(word) % len(names)] for word in words]} for words in SENTENCES]


@pytest.mark.parametrize("reads", kinds_of("encoders", "text"))
@torch.no_grad()
def test_a_words_state_is_that_of_its_first_piece(tokenizer: TextTokenizer, reads: str) -> None:
    model = tagger(tokenizer, reads=reads).eval()
    batch = model.batch(rows(), targets=False)
    tokens = batch.read(Words).tokens
    hidden = model.encode_batch(batch)
    states, there = hidden.of_words()
    for row, words in enumerate(SENTENCES):
        place = len(tokenizer.frame.before)
        assert there[row].tolist() == [number < len(words) for number in range(8)]
        for number, word in enumerate(words):
            pieces = tokenizer.encode([f" {word}" if number else word])[0]
            assert tokens[row, place : place + len(pieces)].tolist() == pieces
            assert torch.equal(states[row, number], hidden.need("states")[row, place])
            place += len(pieces)


@pytest.mark.parametrize("hidden", [None, 5])
def test_the_loss_is_the_cross_entropy_of_the_words_that_count(hidden: int | None) -> None:
    torch.manual_seed(0)
    part: Any = decoder("tags", hidden=hidden, dropout=0.0)
    built = part.build(HiddenSpec(states=6), Classes(PLAIN))
    assert isinstance(built, TagsDecoder)
    states = torch.randn(2, 5, 6)
    words = torch.tensor([[1, 3, 4], [2, -1, -1]])
    given = Hidden(mask=torch.ones(2, 5).bool(), states=states, words=words)
    tags, counts = torch.tensor([[3, 0, 1], [2, 0, 0]]), torch.tensor([[True, False, True], [True, False, False]])
    expected = torch.zeros(())
    for row, word in ((0, 0), (0, 2), (1, 0)):
        state = states[row, words[row, word]]
        if built.head.between is not None:
            linear = cast(nn.Linear, built.head.between[0])
            state = F.gelu(linear.weight @ state + linear.bias)
        scores = built.head.output.weight @ state + built.head.output.bias
        expected = expected - scores.log_softmax(0)[tags[row, word]]
    loss = built.loss(given, Target(tags, counts))
    torch.testing.assert_close(loss.sum, expected)
    assert loss.count == built.count(Target(tags, counts)) == 3


@pytest.mark.parametrize("names", [PLAIN, NAMED], ids=["plain", "named"])
@pytest.mark.parametrize("reads", kinds_of("encoders", "text"))
def test_tags_over_a_batch_are_those_of_each_sentence_alone(
    tokenizer: TextTokenizer, reads: str, names: tuple[str, ...]
) -> None:
    model = tagger(tokenizer, names, reads)
    together = model.predict(SENTENCES)
    for words, prediction in zip(SENTENCES, together, strict=True):
        assert isinstance(prediction.output, Tagged)
        assert prediction.output.words == tuple(words)
        assert len(prediction.output.tags) == len(words)
        (alone,) = model.predict([words])
        assert alone.output == prediction.output
        assert alone.score == pytest.approx(prediction.score, abs=1e-4)
        assert model.predict(" ".join(words))[0].output == prediction.output
    assert len({tag for one in together for tag in one.output.tags}) > 1


def test_more_padding_changes_no_tag(tokenizer: TextTokenizer) -> None:
    model = tagger(tokenizer).eval()
    batch = model.batch(rows())
    target = batch.targets["main"]
    wide = Batch(
        {"input": wider(batch.read(Words))},
        {"main": Target(*(F.pad(part, (0, 2)) for part in (target.tokens, target.mask)))},
    )
    torch.testing.assert_close(model.loss(wide), model.loss(batch))
    assert [one.tags for one in model.answers(wide, "main")] == [one.tags for one in model.answers(batch, "main")]


def wider(read: Words) -> Words:
    """Three more columns of padding, and two where there is no word."""
    tokens, mask = F.pad(read.tokens, (0, 3), value=7), F.pad(read.mask, (0, 3), value=False)
    return Words(tokens, mask, starts=F.pad(read.starts, (0, 2), value=-1))


@torch.no_grad()
def test_the_score_of_plain_tags_is_the_sum_of_their_log_probabilities(tokenizer: TextTokenizer) -> None:
    model = tagger(tokenizer).eval()
    part = model.decoder()
    assert isinstance(part, TagsDecoder)
    states, _ = model.encode_batch(model.batch(rows(), targets=False)).of_words()
    likely = part.head(states).log_softmax(-1)
    for row, prediction in enumerate(model.predict(SENTENCES)):
        best = likely[row, : len(SENTENCES[row])].max(-1)
        assert prediction.output.tags == tuple(PLAIN[number] for number in best.indices)
        assert prediction.score == pytest.approx(float(best.values.sum()), abs=1e-4)


def test_names_are_always_whole(tokenizer: TextTokenizer) -> None:
    model = tagger(tokenizer, NAMED)
    with torch.no_grad():
        model.decoder().get_parameter("head.output.bias")[[1, 3]] += 5.0  # it would like to say I- everywhere
    for prediction in model.predict(SENTENCES):
        for before, tag in zip(("O", *prediction.output.tags), prediction.output.tags, strict=False):
            assert not tag.startswith("I-") or before[1:] == tag[1:]
    assert any("I-" in tag for one in model.predict(SENTENCES) for tag in one.output.tags)


@pytest.mark.parametrize("names", [("I-X", "I-Y"), ("I-X", "O"), ("B-Y", "I-X", "I-Y", "O")])
def test_a_kind_of_name_that_never_has_a_beginning_may_come_anywhere(
    tokenizer: TextTokenizer, names: tuple[str, ...]
) -> None:
    model = tagger(tokenizer, names)
    with torch.no_grad():
        model.decoder().get_parameter("head.output.bias")[names.index("I-X")] += 50.0
    assert {tag for one in model.predict(SENTENCES) for tag in one.output.tags} == {"I-X"}


@pytest.mark.parametrize("reads", kinds_of("encoders", "text"))
def test_every_parameter_learns_over_every_encoder(tokenizer: TextTokenizer, reads: str) -> None:
    model = tagger(tokenizer, reads=reads, hidden=6)
    batch = model.batch(rows())
    model.loss(batch).backward()  # type: ignore[no-untyped-call]
    assert not [name for name, one in model.named_parameters() if one.grad is None or not one.grad.any()]


def test_the_loss_of_many_sentences_is_the_sum_of_each(tokenizer: TextTokenizer) -> None:
    model = tagger(tokenizer, NAMED).eval()
    together = model.losses(model.batch(rows(NAMED)))["main"]
    alone = [model.losses(model.batch([row]))["main"] for row in rows(NAMED)]
    torch.testing.assert_close(together.sum, torch.stack([one.sum for one in alone]).sum(), atol=1e-4, rtol=1e-5)
    assert together.count == sum(one.count for one in alone) == sum(map(len, SENTENCES))
