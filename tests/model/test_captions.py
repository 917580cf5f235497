"""Images described: each is read once for all its captions, and a caption that was begun is gone on with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.conftest import decoder, encoder, small_image_model, some_image
from tests.images import captioning, write_shapes
from twofold.data.batches import Moment
from twofold.data.tokenizer import TextTokenizer
from twofold.generate.decoder import TextDecoder
from twofold.generate.search import GenerateOptions
from twofold.model import Model
from twofold.recipe import Recipe
from twofold.recipe.build import build_model, cache_rows, split_rows, training_rows

CAPTIONS = ["a b c", "one hundred", "g f e d", "1", "seven hundred and two"]
EXAMPLES: list[dict[str, Any]] = [
    {"image": some_image(seed=1), "captions": CAPTIONS},
    {"image": some_image(seed=2), "captions": CAPTIONS[::-1]},
]
PAIRS = [("convnet", "rnn"), ("convnet", "attention_rnn"), ("vit", "transformer"), ("vit", "attention_rnn")]
each_pair = pytest.mark.parametrize(("reads", "writes"), PAIRS)
each_decoder = pytest.mark.parametrize("writes", ["rnn", "attention_rnn", "transformer"])


def captioner(tokenizer: TextTokenizer, reads: str, writes: str, seed: int = 0, **settings: Any) -> Model:
    """Weights far from each other, so that it has something to say."""
    parts = encoder(reads, dropout=0.0, **settings), decoder(writes, dropout=0.0, tied=False)
    model = small_image_model(tokenizer, *parts, seed=seed).eval()
    with torch.no_grad():
        model.decoder().get_parameter("output.weight").mul_(8.0)
    return model


def rows_read(model: Model) -> list[int]:
    """Number of images that were read each time."""
    counts: list[int] = []
    model.encoder.register_forward_hook(lambda _, given, __: counts.append(len(given[0])))
    return counts


@each_pair
def test_a_image_is_read_once_for_its_five_captions(tokenizer: TextTokenizer, reads: str, writes: str) -> None:
    model = captioner(tokenizer, reads, writes)
    seen, batch = rows_read(model), model.batch(EXAMPLES)
    target = batch.targets["main"]
    loss = model.losses(batch)["main"]
    assert seen == [2]
    assert (len(batch), len(target.tokens)) == (2, 10)
    assert target.rows is not None
    assert target.rows.tolist() == [0] * 5 + [1] * 5
    alone = [
        model.losses(model.batch([{"image": example["image"], "captions": [caption]}]))["main"]
        for example in EXAMPLES
        for caption in example["captions"]
    ]
    assert seen == [2, *[1] * 10]
    assert loss.count == sum(one.count for one in alone)
    torch.testing.assert_close(loss.sum, torch.stack([one.sum for one in alone]).sum(), atol=1e-4, rtol=1e-5)


def test_also_in_a_training(tmp_path: Path) -> None:
    recipe = Recipe.of(captioning(write_shapes(tmp_path / "images", 6)))
    model = build_model(recipe, tmp_path / "tokenizers")
    cache = cache_rows(recipe, model)
    rows = training_rows(recipe, cache, split_rows(recipe, cache, model), model)
    seen, batch = rows_read(model), rows.batch(np.arange(4), Moment())
    assert batch is not None
    model.loss(batch).backward()  # type: ignore[no-untyped-call]
    assert seen == [4] == [len(batch)]
    assert len(batch.targets["main"].tokens) == 8


def test_a_image_without_captions_of_its_own_takes_none_of_another(tokenizer: TextTokenizer) -> None:
    model = captioner(tokenizer, "convnet", "attention_rnn")
    first, two = EXAMPLES
    right = model.losses(model.batch([first, {**two, "captions": ["삼백"]}]))["main"].sum
    wrong = model.losses(model.batch([two, {**first, "captions": ["삼백"]}]))["main"].sum
    swapped = model.losses(model.batch([{**two, "captions": ["삼백"]}, first]))["main"].sum
    torch.testing.assert_close(swapped, right, atol=1e-4, rtol=1e-5)
    assert abs((wrong - right).item()) > 1e-3


def greedily(model: Model, image: Any, limit: int) -> tuple[list[int], float]:
    """The likeliest token after the likeliest ones, each time from the start."""
    part = model.decoder()
    assert isinstance(part, TextDecoder)
    tokens, score = [part.vocabulary.start], 0.0
    with torch.no_grad():
        hidden = model.encoder(model.batch([{"image": image}], targets=False))
        while len(tokens) <= limit and tokens[-1] != part.vocabulary.end:
            given = torch.tensor([tokens])
            features = part.teach(hidden, given, torch.ones_like(given).bool(), 0.0)
            best = part.output(features[0, -1]).log_softmax(-1).max(0)
            tokens.append(int(best.indices))
            score += float(best.values)
    return [token for token in tokens[1:] if token != part.vocabulary.end], score


@each_pair
def test_a_beam_of_one_is_greedy(tokenizer: TextTokenizer, reads: str, writes: str) -> None:
    model = captioner(tokenizer, reads, writes)
    images, options = [some_image(seed=number) for number in range(4)], GenerateOptions(beam=1, max_length=7)
    predictions = model.predict(images, options)
    for image, prediction in zip(images, predictions, strict=True):
        tokens, score = greedily(model, image, 7)
        assert prediction.output == tokenizer.decode(tokens)
        assert prediction.score == pytest.approx(score, abs=1e-4)
    assert len({prediction.score for prediction in predictions}) == 4


@each_pair
def test_a_wider_beam_gives_other_captions_best_first(tokenizer: TextTokenizer, reads: str, writes: str) -> None:
    model = captioner(tokenizer, reads, writes)
    options = GenerateOptions(beam=4, n_best=3, max_length=5, length_penalty=0.0)
    for prediction in model.predict([some_image(seed=number) for number in range(3)], options):
        scores = [prediction.score, *(score for _, score in prediction.alternatives)]
        assert len(scores) == 3
        assert scores == sorted(scores, reverse=True)


@each_decoder
@pytest.mark.parametrize("beam", [1, 3])
def test_a_caption_that_was_begun_is_gone_on_with(tokenizer: TextTokenizer, writes: str, beam: int) -> None:
    model, options = captioner(tokenizer, "vit", writes, prefix=True), GenerateOptions(beam=beam, max_length=6)
    images = [some_image(seed=1), some_image(6, 5, seed=2)]
    free = model.predict(images, options)
    for prefix in ("one hundred and", "g f", "삼백"):
        begun = model.predict(images, options, prefix=prefix)
        assert all(prediction.output.startswith(prefix) for prediction in begun)
        assert all(len(prediction.output) > len(prefix) for prediction in begun)
        assert [one.score for one in begun] != [one.score for one in free]
        if beam == 1:
            assert ["".join(model.stream(one, options, prefix=prefix)) for one in images] == [
                prediction.output for prediction in begun
            ]


def test_a_caption_that_is_whole_already_stays_as_it_is(tokenizer: TextTokenizer) -> None:
    model = captioner(tokenizer, "vit", "attention_rnn", prefix=True)
    with torch.no_grad():
        model.decoder().get_parameter("output.bias")[tokenizer.end] = 1e4
    assert model.predict([some_image()], prefix="one hundred")[0].output == "one hundred"
    assert "".join(model.stream(some_image(), prefix="one hundred")) == "one hundred"
    assert "".join(model.stream(some_image())) == model.predict([some_image()])[0].output == ""


def test_a_beginning_that_is_too_long_is_cut_with_a_word(tokenizer: TextTokenizer) -> None:
    model = captioner(tokenizer, "vit", "attention_rnn", prefix=True)
    with pytest.warns(UserWarning, match="longer than 30 tokens"):
        model.predict([some_image()], GenerateOptions(max_length=2), prefix="a b c d e f g " * 10)


@pytest.mark.parametrize(("reads", "writes"), [("convnet", "attention_rnn"), ("vit", "transformer")])
def test_where_a_caption_looks_is_shown_over_the_image(tokenizer: TextTokenizer, reads: str, writes: str) -> None:
    model = captioner(tokenizer, reads, writes)
    explanation = model.explain(some_image(16, 24), written="one hundred")
    attention = explanation.attention_of("cross")
    assert attention is not None
    assert attention.keys == ()
    assert explanation.grid == ((2, 3) if reads == "convnet" else (4, 6))
    assert attention.weights.shape[2:] == (len(explanation.written), explanation.grid[0] * explanation.grid[1])
    np.testing.assert_allclose(attention.weights.sum(-1), 1.0, rtol=1e-5)
