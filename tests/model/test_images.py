"""A mask comes back in the size of its own image, upright, and a caption goes on from how it was begun."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from tests.conftest import CLASSES, decoder, encoder, small_image_model, some_image
from tests.images import encoded, noise
from twofold.data.images import GivenImage
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.generate.search import GenerateOptions
from twofold.inputs.image import SizedImage
from twofold.model import Model
from twofold.outputs.mask import MaskOutput
from twofold.results import PixelClasses

SIZES = [(1, 1), (1, 9), (9, 1), (16, 16), (17, 5), (40, 31)]


def painting(tokenizer: TextTokenizer, **settings: Any) -> Model:
    model = small_image_model(tokenizer, encoder("convnet"), decoder("unet"), input=settings)
    return model.eval()


def answered(model: Model, size: tuple[int, int], painted: np.ndarray[Any, np.dtype[np.uint8]]) -> Any:
    """Answer for a mask that was predicted for an image of some size."""
    output = model.outputs["main"]
    assert isinstance(output, MaskOutput)
    item = SizedImage(GivenImage(some_image(*size)), size)
    return output.answer("x", item, PixelClasses(painted, -0.5)).output.pixels


@pytest.mark.parametrize("settings", [{}, {"size": [12, 8]}, {"size": [12, 8], "fit": "crop"}, {"size": [1, 1]}])
def test_a_mask_has_the_size_of_its_image(tokenizer: TextTokenizer, settings: dict[str, Any]) -> None:
    model = painting(tokenizer, **settings)
    predictions = model.predict([some_image(*size) for size in SIZES])
    assert [one.output.pixels.shape for one in predictions] == SIZES
    assert all(one.output.names == CLASSES and one.output.pixels.max() < len(CLASSES) for one in predictions)
    assert all(sum(one.output.shares().values()) == pytest.approx(1) for one in predictions)
    assert all(one.score <= 0 for one in predictions)


def test_a_mask_is_stretched_back_over_its_whole_image(tokenizer: TextTokenizer) -> None:
    painted = noise(4, 6, 1) % 3
    mask = answered(painting(tokenizer, size=[4, 6]), (12, 30), painted)
    assert (mask == np.kron(painted, np.ones((3, 5), np.uint8))).all()
    smaller = answered(painting(tokenizer, size=[4, 6]), (2, 3), painted)
    assert (smaller == painted[1::2, 1::2]).all()


def test_of_a_image_whose_middle_was_read_the_mask_lies_in_the_middle(tokenizer: TextTokenizer) -> None:
    painted = noise(4, 4, 1) % 3
    mask = answered(painting(tokenizer, size=[4, 4], fit="crop"), (8, 14), painted)
    assert (mask[:, 3:11] == np.kron(painted, np.ones((2, 2), np.uint8))).all()
    assert (mask[:, :3] == mask[:, 3:4]).all()  # the nearest class there is
    assert (mask[:, 11:] == mask[:, 10:11]).all()


@pytest.mark.parametrize("orientation", range(1, 9))
def test_a_mask_stands_upright_like_its_image(tokenizer: TextTokenizer, tmp_path: Path, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = tmp_path / "a.png"
    path.write_bytes(encoded(some_image(10, 14), exif=exif))
    upright = (10, 14) if orientation < 5 else (14, 10)
    for settings in ({}, {"size": [8, 8]}):
        model = painting(tokenizer, **settings)
        (prediction,) = model.predict([path])
        assert prediction.output.pixels.shape == upright
        (shown,) = model.predict([Image.open(path)])
        assert (shown.output.pixels == prediction.output.pixels).all()


def test_predictions_do_not_depend_on_what_stands_beside_them(tokenizer: TextTokenizer) -> None:
    model = painting(tokenizer)
    images = [some_image(*size, seed=seed) for seed, size in enumerate(SIZES * 3)]
    together = model.predict(images)
    for image, prediction in zip(images, together, strict=True):
        (alone,) = model.predict([image])
        assert alone.score == pytest.approx(prediction.score, abs=1e-5)
        assert (alone.output.pixels != prediction.output.pixels).mean() < 0.02


def captions(tokenizer: TextTokenizer, prefix: bool = True) -> Model:
    return small_image_model(tokenizer, encoder("vit", prefix=prefix), decoder("transformer")).eval()


@pytest.mark.parametrize("options", [GenerateOptions(max_length=8), GenerateOptions(beam=3, n_best=3, max_length=8)])
def test_a_caption_begins_as_it_was_begun(tokenizer: TextTokenizer, options: GenerateOptions) -> None:
    model = captions(tokenizer)
    (plain,), (begun,) = (model.predict([some_image()], options, prefix=prefix) for prefix in (None, "one two"))
    assert begun.output.startswith("one two")
    assert all(text.startswith("one two") for text, _ in begun.alternatives)
    assert not plain.output.startswith("one two")
    assert plain.score != begun.score


def test_a_stream_is_what_is_predicted(tokenizer: TextTokenizer) -> None:
    model = captions(tokenizer)
    options = GenerateOptions(max_length=8)
    for prefix in (None, "one two"):
        (prediction,) = model.predict([some_image()], options, prefix=prefix)
        assert "".join(model.stream(some_image(), options, prefix=prefix)) == prediction.output


def test_a_beginning_that_cannot_be_read_is_one_line(tokenizer: TextTokenizer) -> None:
    with pytest.raises(TwofoldError, match="prefix: this model was trained without prefixes"):
        captions(tokenizer, prefix=False).predict([some_image()], prefix="one")
    with pytest.raises(TwofoldError, match="prefix: this model was trained without prefixes"):
        painting(tokenizer).predict([some_image()], prefix="one")
    with pytest.raises(TwofoldError, match="prefix: empty; leave it out"):
        captions(tokenizer).predict([some_image()], prefix="  ")


def test_attention_after_a_beginning_is_that_of_the_rest(tokenizer: TextTokenizer) -> None:
    model = small_image_model(tokenizer, encoder("vit", patch=4, prefix=True), decoder("transformer")).eval()
    whole = model.explain(some_image(12, 20), written="one two")
    rest = model.explain(some_image(12, 20), written="one two", prefix="one")
    assert rest.written == whole.written[-len(rest.written) :] != whole.written
    assert rest.grid == (3, 5)
    attention = rest.attention_of("cross")
    assert attention is not None
    on_image = attention.weights[..., : 3 * 5].sum(-1)
    assert (on_image < 1).all()  # the rest is on the beginning


def test_attention_lies_on_the_places_of_the_image(tokenizer: TextTokenizer) -> None:
    for reads, grid in ((encoder("vit", patch=4), (3, 5)), (encoder("convnet", stem=1), (3, 5))):
        model = small_image_model(tokenizer, reads, decoder("attention_rnn")).eval()
        explanation = model.explain(some_image(12, 20), written="one two")
        attention = explanation.attention_of("cross")
        assert attention is not None
        assert explanation.grid == grid
        assert attention.weights.shape == (1, 1, len(explanation.written), grid[0] * grid[1])
        np.testing.assert_allclose(attention.weights.sum(-1), 1.0, atol=1e-5)


def test_a_image_that_is_none_is_named_with_its_number(tokenizer: TextTokenizer) -> None:
    with pytest.raises(TwofoldError, match="input 2: not uint8 of"):
        painting(tokenizer).predict([some_image(), torch.zeros(3)])
