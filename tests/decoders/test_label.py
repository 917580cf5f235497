"""The labelling decoder: its losses are torch's own over the head's outputs, and padding changes no answer."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.conftest import decoder, encoder
from tests.test_contracts import kinds_of
from tests.texts import small_reader, without_dropout
from twofold.data.tokenizer import TextTokenizer
from twofold.decoders.label import LabelDecoder
from twofold.errors import TwofoldError
from twofold.layers.ranking import means_of_both
from twofold.model import Model, ModelConfig
from twofold.model.config import DecoderSlot
from twofold.types import Batch, Classes, Hidden, HiddenSpec, Numbers, Target

WIDTH = 6
TEXTS = ["one hundred and two", "seven", "a b c d e f g", "삼백"]
ANSWERS: dict[str, dict[str, Any]] = {
    "one": {"classes": {"main": ("bad", "good", "odd")}},
    "many": {"classes": {"main": ("bad", "good", "odd")}},
    "number": {"numbers": {"main": (2.0, 4.0)}},
}
RIGHT: dict[str, list[Any]] = {
    "one": ["good", "bad", "odd", "good"],
    "many": ["good|odd", "", "bad", "bad|good|odd"],
    "number": [1.0, -3.5, 2.0, 8.0],
}
each_answer = pytest.mark.parametrize("answers", ANSWERS)


def labeller(tokenizer: TextTokenizer, answers: str, reads: str = "transformer", **settings: Any) -> Model:
    parts = encoder(reads, dropout=0.0), decoder("label", answers=answers, dropout=0.0, **settings)
    return small_reader(tokenizer, *parts, "label", **ANSWERS[answers])


def some_hidden(rows: int = 4, positions: int = 5) -> Hidden:
    draw = torch.Generator().manual_seed(3)
    lengths = torch.arange(rows) % positions + 1
    mask = torch.arange(positions) < lengths[:, None]
    return Hidden(mask=mask, states=torch.randn(rows, positions, WIDTH, generator=draw))


def head(answers: str, **settings: Any) -> LabelDecoder:
    torch.manual_seed(0)
    output = Numbers(2.0, 4.0) if answers == "number" else Classes(("bad", "good", "odd"))
    part: Any = decoder("label", answers=answers, **settings)
    built = part.build(HiddenSpec(states=WIDTH), output)
    assert isinstance(built, LabelDecoder)
    return built


def outputs(decoder: LabelDecoder, hidden: Hidden) -> torch.Tensor:
    """What the head says of the mean of the states, row by row, by hand."""
    states = hidden.need("states")
    means = torch.stack([states[row, : int(hidden.mask[row].sum())].mean(0) for row in range(len(states))])
    weight, bias = decoder.get_parameter("head.output.weight"), decoder.get_parameter("head.output.bias")
    if decoder.head.between is not None:
        linear = cast(nn.Linear, decoder.head.between[0])
        means = F.gelu(means @ linear.weight.T + linear.bias)
    return means @ weight.T + bias


@pytest.mark.parametrize("hidden", [None, 7])
@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_the_loss_of_one_label_is_cross_entropy(hidden: int | None, smoothing: float) -> None:
    given, right = some_hidden(), torch.tensor([2, 0, 1, 1])
    part = head("one", hidden=hidden, dropout=0.0, label_smoothing=smoothing)
    target = Target(right[:, None], torch.ones(4, 1, dtype=torch.bool))
    scores = outputs(part, given).log_softmax(-1)
    plain = -scores[torch.arange(4), right].sum()
    found = part.train().loss(given, target)
    expected = (1 - smoothing) * plain - smoothing * scores.mean(1).sum()
    torch.testing.assert_close(found.sum, expected)
    assert found.count == 4
    torch.testing.assert_close(part.eval().loss(given, target).sum, plain)  # judged by the right label alone


def test_the_loss_of_many_labels_is_that_of_each_yes_and_no() -> None:
    given, right = some_hidden(), torch.tensor([[1.0, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]])
    part = head("many", dropout=0.0)
    found = part.loss(given, Target(right, torch.ones_like(right).bool()))
    likely = outputs(part, given).sigmoid()
    torch.testing.assert_close(found.sum, -(right * likely.log() + (1 - right) * (1 - likely).log()).sum())
    assert found.count == 4


def test_the_loss_of_a_number_is_the_square_of_how_many_deviations_it_is_off() -> None:
    given, right = some_hidden(), torch.tensor([[1.0], [-3.0], [10.0], [2.0]])
    part = head("number", dropout=0.0)
    found = part.loss(given, Target(right, torch.ones_like(right).bool()))
    torch.testing.assert_close(found.sum, ((outputs(part, given) - (right - 2.0) / 4.0) ** 2).sum())
    assert found.count == 4


def test_a_label_never_seen_adds_nothing() -> None:
    given, part = some_hidden(), head("one", dropout=0.0)
    right = torch.tensor([[2], [0], [1], [1]])
    known = torch.tensor([[True], [False], [True], [False]])
    some = part.loss(given, Target(right, known))
    alone = part.loss(given.select(torch.tensor([0, 2])), Target(right[[0, 2]], torch.ones(2, 1).bool()))
    torch.testing.assert_close(some.sum, alone.sum)
    assert some.count == part.count(Target(right, known)) == 2
    none = part.loss(given, Target(right, torch.zeros_like(known)))
    none.sum.backward()  # type: ignore[no-untyped-call]
    assert (none.count, float(none.sum.detach())) == (0, 0.0)
    assert all(not value.grad.any() for value in part.parameters() if value.grad is not None)


@each_answer
@torch.no_grad()
def test_answers_are_shares_or_the_number_itself(answers: str) -> None:
    given, part = some_hidden(), head(answers).eval()
    scores = outputs(part, given)
    expected = {"one": scores.softmax(-1), "many": scores.sigmoid(), "number": scores * 4.0 + 2.0}[answers]
    found = torch.stack([torch.from_numpy(one.values) for one in part.predict(given, None)])
    torch.testing.assert_close(found, expected)


def test_what_a_labeller_says_is_in_the_words_of_the_data(tokenizer: TextTokenizer) -> None:
    (one,) = labeller(tokenizer, "one").predict([TEXTS[0]])
    ranked = [(one.output, one.score), *one.alternatives]
    assert {name for name, _ in ranked} == {"bad", "good", "odd"}
    assert [score for _, score in ranked] == sorted((score for _, score in ranked), reverse=True)
    assert math.fsum(score for _, score in ranked) == pytest.approx(1.0, abs=1e-6)
    model = labeller(tokenizer, "many")
    with torch.no_grad():
        for bias, share in enumerate((0.45, 0.55, 0.7)):
            model.decoder().get_parameter("head.output.weight")[bias] = 0.0
            model.decoder().get_parameter("head.output.bias")[bias] = math.log(share / (1 - share))
    (many,) = model.predict([TEXTS[0]])
    assert many.output == ["odd", "good"]
    assert dict(many.alternatives) == pytest.approx({"odd": 0.7, "good": 0.55, "bad": 0.45})
    (number,) = labeller(tokenizer, "number").predict([TEXTS[0]])
    assert isinstance(number.output, float)


@each_answer
@pytest.mark.parametrize("pooling", ["first", "mean", "max", "attention", "summary"])
def test_padding_changes_no_label(tokenizer: TextTokenizer, answers: str, pooling: str) -> None:
    model = labeller(tokenizer, answers, pooling=pooling)
    together = model.predict(TEXTS)
    for text, one in zip(TEXTS, together, strict=True):
        (alone,) = model.predict([text])
        assert alone.output == (pytest.approx(one.output, abs=1e-4) if answers == "number" else one.output)
        assert alone.score == pytest.approx(one.score, abs=1e-4)
    assert len({round(one.score, 4) for one in together}) == 4


@each_answer
def test_a_loss_over_many_rows_is_the_sum_of_the_losses_of_each(tokenizer: TextTokenizer, answers: str) -> None:
    model = labeller(tokenizer, answers).eval()
    rows = [{"text": text, "label": label} for text, label in zip(TEXTS, RIGHT[answers], strict=True)]
    together = model.losses(model.batch(rows))["main"]
    alone = [model.losses(model.batch([row]))["main"] for row in rows]
    torch.testing.assert_close(together.sum, torch.stack([one.sum for one in alone]).sum(), atol=1e-4, rtol=1e-5)
    assert together.count == sum(one.count for one in alone) == model.counts(model.batch(rows))["main"] == 4


@each_answer
@pytest.mark.parametrize("reads", kinds_of("encoders", "text"))
def test_every_parameter_learns_over_every_encoder(tokenizer: TextTokenizer, reads: str, answers: str) -> None:
    parts = without_dropout(encoder(reads)), decoder("label", answers=answers, hidden=5)
    model = small_reader(tokenizer, *parts, "label", **ANSWERS[answers])
    batch = model.batch([{"text": text, "label": label} for text, label in zip(TEXTS, RIGHT[answers], strict=True)])
    model.backward(batch, model.counts(batch))
    assert not [name for name, one in model.named_parameters() if one.grad is None or not one.grad.any()]


def test_more_padding_changes_no_loss(tokenizer: TextTokenizer) -> None:
    model = labeller(tokenizer, "one").eval()
    batch = model.batch([{"text": text, "label": "odd"} for text in TEXTS])
    wide = Batch(F.pad(batch.tokens, (0, 3), value=7), F.pad(batch.mask, (0, 3), value=False))
    torch.testing.assert_close(model.loss(replace(wide, targets=batch.targets)), model.loss(batch))


def test_texts_that_are_read_apart_do_not_see_each_other(tokenizer: TextTokenizer) -> None:
    """The means of both are those of each text read alone, whatever stands beside it."""
    parts = encoder("transformer", dropout=0.0), decoder("label", answers="number", compare="features", dropout=0.0)
    settings = {**ANSWERS["number"], "source": ("text", "other"), "apart": True}
    model = small_reader(tokenizer, *parts, "label", **settings).eval()
    pairs = [{"text": one, "other": other, "label": 1.0} for one, other in zip(TEXTS, TEXTS[::-1], strict=True)]
    batch = model.batch(pairs)
    assert batch.second is not None
    found = means_of_both(model._encoded(batch))
    for side, texts in zip(found, (TEXTS, TEXTS[::-1]), strict=True):
        for mean, text in zip(side, texts, strict=True):
            alone = model.encoder(model.batch([{"text": text, "other": text}], targets=False)).need("states")
            torch.testing.assert_close(mean, alone[0].mean(0))
    assert model.tokens(batch) == int(batch.mask.sum() + batch.second.mask.sum()) + len(TEXTS)
    first, second, turned = model.predict([("seven", "a b c"), ("seven", "삼백"), ("a b c", "seven")])
    assert first.output != second.output
    assert first.output != turned.output  # which one follows from the other depends on their order


def test_a_cosine_alone_starts_as_the_backbone_orders_its_pairs(tokenizer: TextTokenizer) -> None:
    """Nothing learned yet, and the nearer the means of two texts the larger the number."""
    reads, writes = encoder("transformer", dropout=0.0), decoder("label", answers="number", compare="cosine")
    slots = {"main": DecoderSlot(writes, "label")}
    settings: dict[str, Any] = {"max_source": 30, "max_target": 30, "frame": True, "apart": True, **ANSWERS["number"]}
    config = ModelConfig(reads, slots, source=("text", "other"), **settings)
    model = Model(config, {"source": tokenizer}).eval()
    pairs = list(itertools.product(TEXTS, TEXTS))
    states = [model.encoder(model.batch([{"text": one, "other": one}], targets=False)).need("states") for one in TEXTS]
    means = F.normalize(torch.stack([one[0].mean(0) for one in states]), dim=-1)
    found = torch.tensor([float(one.output) for one in model.predict(pairs)])
    mean, deviation = ANSWERS["number"]["numbers"]["main"]
    expected = (means @ means.T).flatten() * math.sqrt(12) - math.sqrt(3)
    torch.testing.assert_close(found, expected * deviation + mean, atol=1e-4, rtol=1e-4)
    batch = model.train().batch([{"text": one, "other": other, "label": 1.0} for one, other in pairs])
    model.backward(batch, model.counts(batch))
    assert not [name for name, one in model.named_parameters() if one.grad is None or not one.grad.any()]


@pytest.mark.parametrize("setting", [{"pooling": "first"}, {"hidden": 8}])
def test_a_cosine_alone_has_nothing_to_reduce(setting: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TwofoldError), match="compare: cosine reads nothing but the cosine of two means"):
        decoder("label", answers="number", compare="cosine", **setting)
