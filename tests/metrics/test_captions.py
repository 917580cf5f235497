"""Captions are judged by all that people wrote, and the model writes them from the image alone."""

from __future__ import annotations

from typing import Any

import pytest

import twofold
from tests.conftest import decoder, encoder, small_image_model, some_image
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.generate.options import GenerateOptions
from twofold.metrics.caption_scores import bleu, cider, rouge_l
from twofold.metrics.judge import metric_names
from twofold.model import Model
from twofold.types import Example

CAPTIONS = [["one two", "two one", "three"], ["four"], ["seven hundred", "one"], ["one two three four", "a b c d"]]
SHORT = GenerateOptions(max_length=6)


def captioner(tokenizer: TextTokenizer, **settings: Any) -> Model:
    return small_image_model(tokenizer, encoder("vit", **settings), decoder("transformer")).eval()


def examples() -> list[Example]:
    return [{"image": some_image(seed=seed), "captions": said} for seed, said in enumerate(CAPTIONS)]


@pytest.mark.parametrize("options", [SHORT, GenerateOptions(beam=3, max_length=6)])
def test_a_captioner_is_judged_by_what_it_writes(tokenizer: TextTokenizer, options: GenerateOptions) -> None:
    model = captioner(tokenizer)
    report = twofold.evaluate(model, examples(), options)
    written = [one.output for one in model.predict([one["image"] for one in examples()], options)]
    right = {"cider": cider(written, CAPTIONS), "rouge_l": rouge_l(written, CAPTIONS), **bleu(written, CAPTIONS)}
    assert {name: report.metrics[name] for name in right} == right
    assert set(report.metrics) == {*right, "loss", "perplexity"} == set(metric_names(model))
    assert report.examples == 4


def test_any_of_the_captions_is_right(tokenizer: TextTokenizer) -> None:
    model = captioner(tokenizer)
    written = [one.output for one in model.predict([one["image"] for one in examples()], SHORT)]
    given = [{**one, "captions": ["four five", own]} for one, own in zip(examples(), written, strict=True)]
    metrics = twofold.evaluate(model, given, SHORT).metrics
    assert metrics["rouge_l"] == pytest.approx(1)
    assert metrics["bleu1"] == pytest.approx(100)


def test_captions_are_judged_without_a_beginning(tokenizer: TextTokenizer) -> None:
    model = captioner(tokenizer, prefix=True)
    report = twofold.evaluate(model, examples(), SHORT)
    written = [one.output for one in model.predict([one["image"] for one in examples()], SHORT)]
    assert report.metrics["rouge_l"] == rouge_l(written, CAPTIONS)


def test_the_loss_counts_every_caption(tokenizer: TextTokenizer) -> None:
    model, total, count = captioner(tokenizer), 0.0, 0
    for one in examples():
        for caption in one["captions"]:
            loss = model.losses(model.batch([{**one, "captions": [caption]}]))["main"]
            total, count = total + float(loss.sum.detach()), count + loss.count
    assert twofold.evaluate(model, examples(), SHORT).metrics["loss"] == pytest.approx(total / count, rel=1e-4)


@pytest.mark.parametrize(
    ("captions", "said"),
    [
        (None, "example 2: 'captions' is null; fill it or remove the row"),
        ("", "example 2: 'captions' is empty"),
        ([], "example 2: 'captions' is empty"),
        (["one", 7], "example 2: 'captions' is neither a text nor a list of texts"),
    ],
)
def test_a_image_without_captions_is_named(tokenizer: TextTokenizer, captions: Any, said: str) -> None:
    given = [examples()[0], {**examples()[1], "captions": captions}]
    with pytest.raises(TwofoldError, match=said):
        twofold.evaluate(captioner(tokenizer), given, SHORT)
