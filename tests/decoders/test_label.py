"""The labelling decoder: its losses are torch's own over the head's outputs, and padding changes no answer."""

from __future__ import annotations

import itertools
import math
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.conftest import decoder, encoder, input_of, output_of
from tests.test_contracts import kinds_of
from tests.texts import small_reader, without_dropout
from twofold.data.tokenizer import TextTokenizer
from twofold.decoders.label import LabelDecoder
from twofold.errors import TwofoldError
from twofold.inputs.pair import TokenPair
from twofold.inputs.text import Tokens
from twofold.layers.pooling import means_of_both
from twofold.model import Model, ModelConfig, Task
from twofold.types import Classes, Hidden, HiddenSpec, Numbers, Target

WIDTH = 6
TEXTS = ["one hundred and two", "seven", "a b c d e f g", "삼백"]
MEAN, DEVIATION = 2.0, 4.0
OUTPUTS: dict[str, dict[str, Any]] = {
    "label": {"names": ["bad", "good", "odd"]},
    "labels": {"names": ["bad", "good", "odd"]},
    "number": {"mean": MEAN, "deviation": DEVIATION},
}
"""The outputs that the decoder writes, and their settings."""
RIGHT: dict[str, list[Any]] = {
    "label": ["good", "bad", "odd", "good"],
    "labels": ["good|odd", "", "bad", "bad|good|odd"],
    "number": [1.0, -3.5, 2.0, 8.0],
}
each_output = pytest.mark.parametrize("output", OUTPUTS)


def labeller(tokenizer: TextTokenizer, output: str, reads: str = "transformer", **settings: Any) -> Model:
    parts = encoder(reads, dropout=0.0), decoder("label", dropout=0.0, **settings)
    return small_reader(tokenizer, *parts, {"kind": output, **OUTPUTS[output]})


def some_hidden(rows: int = 4, positions: int = 5) -> Hidden:
    draw = torch.Generator().manual_seed(3)
    lengths = torch.arange(rows) % positions + 1
    mask = torch.arange(positions) < lengths[:, None]
    return Hidden(mask=mask, states=torch.randn(rows, positions, WIDTH, generator=draw))


def head(output: str, **settings: Any) -> LabelDecoder:
    torch.manual_seed(0)
    classes = Classes(("bad", "good", "odd"), several=output == "labels")
    spec = Numbers(MEAN, DEVIATION) if output == "number" else classes
    built = decoder("label", **settings).build(HiddenSpec(states=WIDTH), spec)
    assert isinstance(built, LabelDecoder)
    return built


def outputs(decoder: LabelDecoder, hidden: Hidden) -> torch.Tensor:
    """Output of the head for the mean of the states, row by row, by hand."""
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
    part = head("label", hidden=hidden, dropout=0.0, label_smoothing=smoothing)
    target = Target(right[:, None], torch.ones(4, 1, dtype=torch.bool))
    scores = outputs(part, given).log_softmax(-1)
    plain = -scores[torch.arange(4), right].sum()
    loss = part.train().loss(given, target)
    expected = (1 - smoothing) * plain - smoothing * scores.mean(1).sum()
    torch.testing.assert_close(loss.sum, expected)
    assert loss.count == 4
    torch.testing.assert_close(part.eval().loss(given, target).sum, plain)  # judged by the right label alone


def test_the_loss_of_many_labels_is_that_of_each_yes_and_no() -> None:
    given, right = some_hidden(), torch.tensor([[1.0, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]])
    part = head("labels", dropout=0.0)
    loss = part.loss(given, Target(right, torch.ones_like(right).bool()))
    likely = outputs(part, given).sigmoid()
    torch.testing.assert_close(loss.sum, -(right * likely.log() + (1 - right) * (1 - likely).log()).sum())
    assert loss.count == 4


def test_the_loss_of_a_number_is_the_square_of_how_many_deviations_it_is_off() -> None:
    given, right = some_hidden(), torch.tensor([[1.0], [-3.0], [10.0], [2.0]])
    part = head("number", dropout=0.0)
    loss = part.loss(given, Target(right, torch.ones_like(right).bool()))
    torch.testing.assert_close(loss.sum, ((outputs(part, given) - (right - 2.0) / 4.0) ** 2).sum())
    assert loss.count == 4


def test_a_label_never_seen_adds_nothing() -> None:
    given, part = some_hidden(), head("label", dropout=0.0)
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


@each_output
@torch.no_grad()
def test_answers_are_shares_or_the_number_itself(output: str) -> None:
    given, part = some_hidden(), head(output).eval()
    scores = outputs(part, given)
    expected = {"label": scores.softmax(-1), "labels": scores.sigmoid(), "number": scores * 4.0 + 2.0}[output]
    predictions = torch.stack([torch.from_numpy(one.values) for one in part.predict(given, None)])
    torch.testing.assert_close(predictions, expected)


def test_what_a_labeller_says_is_in_the_words_of_the_data(tokenizer: TextTokenizer) -> None:
    (prediction,) = labeller(tokenizer, "label").predict([TEXTS[0]])
    ranked = [(prediction.output, prediction.score), *prediction.alternatives]
    assert {name for name, _ in ranked} == {"bad", "good", "odd"}
    assert [score for _, score in ranked] == sorted((score for _, score in ranked), reverse=True)
    assert math.fsum(score for _, score in ranked) == pytest.approx(1.0, abs=1e-6)
    model = labeller(tokenizer, "labels")
    with torch.no_grad():
        for bias, share in enumerate((0.45, 0.55, 0.7)):
            model.decoder().get_parameter("head.output.weight")[bias] = 0.0
            model.decoder().get_parameter("head.output.bias")[bias] = math.log(share / (1 - share))
    (many,) = model.predict([TEXTS[0]])
    assert many.output == ["odd", "good"]
    assert dict(many.alternatives) == pytest.approx({"odd": 0.7, "good": 0.55, "bad": 0.45})
    (number,) = labeller(tokenizer, "number").predict([TEXTS[0]])
    assert isinstance(number.output, float)


@each_output
@pytest.mark.parametrize("pooling", ["first", "mean", "max", "attention", "summary"])
def test_padding_changes_no_label(tokenizer: TextTokenizer, output: str, pooling: str) -> None:
    model = labeller(tokenizer, output, pooling=pooling)
    together = model.predict(TEXTS)
    for text, prediction in zip(TEXTS, together, strict=True):
        (alone,) = model.predict([text])
        assert alone.output == (pytest.approx(prediction.output, abs=1e-4) if output == "number" else prediction.output)
        assert alone.score == pytest.approx(prediction.score, abs=1e-4)
    assert len({round(one.score, 4) for one in together}) == 4


@each_output
def test_a_loss_over_many_rows_is_the_sum_of_the_losses_of_each(tokenizer: TextTokenizer, output: str) -> None:
    model = labeller(tokenizer, output).eval()
    rows = [{"text": text, "label": label} for text, label in zip(TEXTS, RIGHT[output], strict=True)]
    together = model.losses(model.batch(rows))["main"]
    alone = [model.losses(model.batch([row]))["main"] for row in rows]
    torch.testing.assert_close(together.sum, torch.stack([one.sum for one in alone]).sum(), atol=1e-4, rtol=1e-5)
    assert together.count == sum(one.count for one in alone) == model.counts(model.batch(rows))["main"] == 4


@each_output
@pytest.mark.parametrize("reads", kinds_of("encoders", "text"))
def test_every_parameter_learns_over_every_encoder(tokenizer: TextTokenizer, reads: str, output: str) -> None:
    parts = without_dropout(encoder(reads)), decoder("label", hidden=5)
    model = small_reader(tokenizer, *parts, {"kind": output, **OUTPUTS[output]})
    batch = model.batch([{"text": text, "label": label} for text, label in zip(TEXTS, RIGHT[output], strict=True)])
    model.loss(batch).backward()  # type: ignore[no-untyped-call]
    assert not [name for name, one in model.named_parameters() if one.grad is None or not one.grad.any()]


def test_more_padding_changes_no_loss(tokenizer: TextTokenizer) -> None:
    model = labeller(tokenizer, "label").eval()
    batch = model.batch([{"text": text, "label": "odd"} for text in TEXTS])
    read = batch.read(Tokens)
    wide = batch.with_input("input", Tokens(F.pad(read.tokens, (0, 3), value=7), F.pad(read.mask, (0, 3), value=False)))
    torch.testing.assert_close(model.loss(wide), model.loss(batch))


APART: dict[str, Any] = {"kind": "pair", "column": ["text", "other"], "read": "apart"}


def states_alone(model: Model, text: str) -> torch.Tensor:
    """(positions, width): what the encoder makes of one text."""
    both = model.batch([{"text": text, "other": text}], targets=False)
    return model.encoder(both.with_input("input", both.read(TokenPair).first)).need("states")[0]


def test_texts_that_are_read_apart_do_not_see_each_other(tokenizer: TextTokenizer) -> None:
    """The means of both are those of each text read alone, whatever stands beside it."""
    parts = encoder("transformer", dropout=0.0), decoder("label", compare="features", dropout=0.0)
    model = small_reader(tokenizer, *parts, {"kind": "number", **OUTPUTS["number"]}, APART).eval()
    pairs = [{"text": one, "other": other, "label": 1.0} for one, other in zip(TEXTS, TEXTS[::-1], strict=True)]
    batch = model.batch(pairs)
    means = means_of_both(model.encode_batch(batch))
    for side, texts in zip(means, (TEXTS, TEXTS[::-1]), strict=True):
        for mean, text in zip(side, texts, strict=True):
            torch.testing.assert_close(mean, states_alone(model, text).mean(0))
    read = batch.read(TokenPair)
    assert model.tokens(batch) == int(read.first.mask.sum() + read.second.mask.sum()) + len(TEXTS)
    first, second, turned = model.predict([("seven", "a b c"), ("seven", "삼백"), ("a b c", "seven")])
    assert first.output != second.output
    assert first.output != turned.output  # which one follows from the other depends on their order


def test_a_cosine_alone_starts_as_the_backbone_orders_its_pairs(tokenizer: TextTokenizer) -> None:
    """Nothing learned yet, and the nearer the means of two texts the larger the number."""
    reads, writes = encoder("transformer", dropout=0.0), decoder("label", compare="cosine")
    tasks = {"main": Task(writes, output_of("number", **OUTPUTS["number"]))}
    model = Model(ModelConfig(input_of(**APART, max_tokens=30), reads, tasks), {"input": tokenizer}).eval()
    pairs = list(itertools.product(TEXTS, TEXTS))
    means = F.normalize(torch.stack([states_alone(model, text).mean(0) for text in TEXTS]), dim=-1)
    predictions = torch.tensor([float(one.output) for one in model.predict(pairs)])
    expected = (means @ means.T).flatten() * math.sqrt(12) - math.sqrt(3)
    torch.testing.assert_close(predictions, expected * DEVIATION + MEAN, atol=1e-4, rtol=1e-4)
    batch = model.train().batch([{"text": one, "other": other, "label": 1.0} for one, other in pairs])
    model.loss(batch).backward()  # type: ignore[no-untyped-call]
    assert not [name for name, one in model.named_parameters() if one.grad is None or not one.grad.any()]


@pytest.mark.parametrize("setting", [{"pooling": "first"}, {"hidden": 8}])
def test_a_cosine_alone_has_nothing_to_reduce(setting: dict[str, Any]) -> None:
    with pytest.raises((ValueError, TwofoldError), match="compare: cosine reads nothing but the cosine of two means"):
        decoder("label", compare="cosine", **setting)
