"""Contracts of every encoder of images and every decoder that fits it, so that a new one is tested, too."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.conftest import decoder, encoder, small_image_model, some_image, some_mask
from tests.test_contracts import VOCABULARY, every, gives, kinds_of, tensors, widened
from twofold.config import kinds
from twofold.data.tokenizer import TextTokenizer
from twofold.decoders import DecoderConfig
from twofold.encoders import EncoderConfig
from twofold.errors import TwofoldError
from twofold.generate.search import GenerateOptions
from twofold.inputs import INPUT
from twofold.inputs.image import Images
from twofold.inputs.text import Tokens, make_tokens
from twofold.model import Model
from twofold.outputs.captions import PREFIX
from twofold.results import Mask, Prediction
from twofold.types import Batch, Hidden

EXAMPLES: list[dict[str, Any]] = [
    {"image": some_image(34, 35, seed=number), "mask": some_mask(34, 35, seed=number), "captions": captions}
    for number, captions in enumerate([["a b c", "seven hundred and two", "1"], ["g f e"], ["삼백", "b"]])
]
"""Images with one or several captions."""
BEGUN = ["one hundred", None, "a"]
"""A beginning of the captions of each to go on from, or none."""
SIZES = [(12, 12), (10, 13), (1, 1), (1, 9), (7, 1)]
each_encoder = pytest.mark.parametrize("reads", every("encoders", encoder, "image"))
each_decoder = pytest.mark.parametrize("writes", every("decoders", decoder) + every("decoders", decoder, "mask"))


def some_batch(size: tuple[int, int] = (10, 13), lengths: tuple[int, ...] = (4, 0, 2), seed: int = 0) -> Batch:
    """Random images, most with some text."""
    draw = torch.Generator().manual_seed(seed)
    longest = max(lengths)
    tokens = torch.randint(4, VOCABULARY.size, (len(lengths), longest), generator=draw)
    mask = torch.arange(longest) < torch.tensor(lengths)[:, None]
    pixels = torch.randn(len(lengths), 3, *size, generator=draw)
    return shown_with(pixels, Tokens(tokens.masked_fill(~mask, VOCABULARY.pad), mask))


def shown_with(pixels: Tensor, text: Tokens) -> Batch:
    """Images, and the beginnings of texts beside them."""
    return Batch({INPUT: Images(pixels), PREFIX: text})


def begun_batch(model: Model, rows: slice = slice(None)) -> Batch:
    """Some examples; where the encoder reads it, with the beginning of a text."""
    batch = model.batch(EXAMPLES[rows])
    if model.prefix is None:
        return batch
    tokenizer = model.prefix.tokenizer
    beginnings = [[] if text is None else tokenizer.encode([text])[0] for text in BEGUN[rows]]
    return batch.with_input(PREFIX, make_tokens(beginnings, model.prefix.vocabulary))


def built(reads: EncoderConfig, needs: frozenset[str] | None = None) -> Any:
    torch.manual_seed(0)
    return reads.build(VOCABULARY, gives(reads) if needs is None else needs)


def reads_text(reads: EncoderConfig) -> bool:
    return reads.beside() is Tokens


def fitting_model(tokenizer: TextTokenizer, reads: EncoderConfig, writes: DecoderConfig) -> Model:
    """The pair, if the two fit."""
    if not writes.needs() <= gives(reads):
        pytest.skip("this pair does not fit; tests/test_pairs.py sees the error")
    return small_image_model(tokenizer, reads, writes)


def close(first: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(first, other, atol=2e-5, rtol=2e-5)


def check_maps(hidden: Hidden, reads: EncoderConfig, size: tuple[int, int]) -> None:
    """The finest map is a stride finer than the image, each further one half as fine, rounded up."""
    spec = reads.spec()
    step, expected = spec.stride, []
    for channels in spec.channels():
        expected.append((len(hidden.mask), channels, *(-(-side // step) for side in size)))
        step *= 2
    assert [tuple(one.shape) for one in hidden.pyramid()] == expected


def test_every_part_is_read_by_one_of_the_contracts() -> None:
    assert sorted(kind for what in ("text", "image", "audio") for kind in kinds_of("encoders", what)) == kinds(
        "encoders"
    )
    written = [kind for what in kinds("outputs") for kind in kinds_of("decoders", what)]
    assert sorted(written) == kinds("decoders")


@each_encoder
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_an_encoder_fills_only_what_is_needed_in_the_shapes_of_its_spec(
    reads: EncoderConfig, size: tuple[int, int]
) -> None:
    spec, batch = reads.spec(), some_batch(size)
    names = sorted(gives(reads) - {"finish"})
    for needs in (frozenset(some) for count in range(1, len(names) + 1) for some in combinations(names, count)):
        hidden: Hidden = built(reads, needs).eval()(batch)
        rows, positions = hidden.mask.shape
        assert hidden.size == size
        assert hidden.grid is not None
        shown = hidden.grid[0] * hidden.grid[1]
        assert (rows, positions) == (
            len(batch),
            shown + (batch.read(Tokens).tokens.shape[1] if reads_text(reads) else 0),
        )
        assert hidden.mask[:, :shown].all()
        assert {name for name in names if getattr(hidden, name) is not None} == needs
        if hidden.states is not None:
            assert hidden.states.shape == (rows, positions, spec.states)
        if hidden.summary is not None:
            assert hidden.summary.shape == (rows, spec.summary)
        if hidden.maps is not None:
            check_maps(hidden, reads, size)


@each_encoder
def test_a_batch_of_images_is_read_as_each_by_itself(reads: EncoderConfig) -> None:
    part, batch = built(reads).eval(), some_batch()
    pixels, text = batch.read(Images).pixels, batch.read(Tokens)
    together: Hidden = part(batch)
    for row, length in enumerate(text.mask.sum(1).tolist()):
        rows = slice(row, row + 1)
        alone: Hidden = part(shown_with(pixels[rows], Tokens(text.tokens[rows, :length], text.mask[rows, :length])))
        for name in tensors(reads):
            single, many = alone.need(name)[0], together.need(name)[row]
            close(many[: len(single)] if name == "states" else many, single)
        for single, many in zip(alone.maps or (), together.maps or (), strict=True):
            close(many[row], single[0])


@each_encoder
@pytest.mark.parametrize("training", [False, True])
def test_more_columns_of_padding_after_a_text_change_nothing(reads: EncoderConfig, training: bool) -> None:
    part, batch = built(reads).train(training), some_batch()
    text = batch.read(Tokens)
    narrow, wide = part(batch), part(batch.with_input(PREFIX, Tokens(*widened(text.tokens, text.mask))))
    for name in tensors(reads):
        first, other = narrow.need(name), wide.need(name)
        close(*((other[wide.mask], first[narrow.mask]) if name == "states" else (other, first)))


@each_encoder
def test_a_text_beside_the_image_is_read_by_those_who_say_so_and_by_no_other(reads: EncoderConfig) -> None:
    part, batch = built(reads).eval(), some_batch()
    text = batch.read(Tokens)
    other = torch.where(text.mask, (text.tokens - 3) % 16 + 4, text.tokens)
    assert not torch.equal(text.tokens, other)
    first, two = part(batch), part(batch.with_input(PREFIX, Tokens(other, text.mask)))
    for name in tensors(reads):
        assert torch.equal(first.need(name), two.need(name)) != reads_text(reads)


@each_encoder
@each_decoder
def test_a_loss_over_many_images_is_the_sum_of_the_losses_of_each(
    tokenizer: TextTokenizer, reads: EncoderConfig, writes: DecoderConfig
) -> None:
    model = fitting_model(tokenizer, reads, writes).eval()
    batch = begun_batch(model)
    together = model.losses(batch)["main"]
    alone = [model.losses(begun_batch(model, slice(row, row + 1)))["main"] for row in range(len(EXAMPLES))]
    assert together.count == sum(loss.count for loss in alone) == model.counts(batch)["main"] > 0
    close(together.sum, torch.stack([loss.sum for loss in alone]).sum())


@each_encoder
@each_decoder
def test_every_parameter_of_a_pair_gets_a_gradient(
    tokenizer: TextTokenizer, reads: EncoderConfig, writes: DecoderConfig
) -> None:
    model = fitting_model(tokenizer, reads, writes).train()
    batch = begun_batch(model)
    assert batch.read(Tokens).count() > 0 if reads_text(reads) else list(batch.inputs) == [INPUT]
    model.loss(batch).backward()  # type: ignore[no-untyped-call]
    learning = {name: value for name, value in model.named_parameters() if value.requires_grad}
    still = [name for name, value in learning.items() if value.grad is None or not value.grad.any()]
    assert not still


def shown(prediction: Prediction) -> tuple[Any, float]:
    """Values that can be compared."""
    output = prediction.output
    return (output.pixels.tolist(), output.names) if isinstance(output, Mask) else output, prediction.score


@each_encoder
@each_decoder
def test_a_saved_and_loaded_pair_gives_the_same_outputs(
    tokenizer: TextTokenizer, reads: EncoderConfig, writes: DecoderConfig, tmp_path: Path
) -> None:
    model = fitting_model(tokenizer, reads, writes)
    with torch.no_grad():
        for value in model.state_dict().values():
            if value.is_floating_point():
                value.add_(torch.rand_like(value) / 10)  # no tensor may keep what a new model would have anyway
    model.save_pretrained(tmp_path / "saved")
    loaded = Model.from_pretrained(tmp_path / "saved")
    assert loaded.config == model.config
    assert torch.equal(loaded.loss(begun_batch(loaded)), model.eval().loss(begun_batch(model)))
    images, options = [example["image"] for example in EXAMPLES], GenerateOptions(max_length=6)
    begun = "a b" if reads_text(reads) else None
    predictions, expected = (one.predict(images, options, prefix=begun) for one in (loaded, model))
    assert [shown(prediction) for prediction in predictions] == [shown(prediction) for prediction in expected]


@each_encoder
def test_images_of_many_sizes_are_answered_in_their_order(tokenizer: TextTokenizer, reads: EncoderConfig) -> None:
    kind = "unet" if "maps" in gives(reads) else "attention_rnn"
    model = small_image_model(tokenizer, reads, decoder(kind))
    images = [some_image(*size, seed=number) for number, size in enumerate([*SIZES, *SIZES])]
    options = GenerateOptions(max_length=4)
    together = model.predict(images, options)
    alone = [model.predict([image], options)[0] for image in images]
    for single, many, image in zip(alone, together, images, strict=True):
        assert many.input is image
        assert many.score == pytest.approx(single.score, abs=1e-4)
        if kind == "unet":
            assert many.output.pixels.shape == image.shape[:2]


@each_encoder
def test_a_beginning_is_read_only_where_the_encoder_can(tokenizer: TextTokenizer, reads: EncoderConfig) -> None:
    model = small_image_model(tokenizer, reads, decoder("attention_rnn"))
    if reads_text(reads):
        assert model.predict([some_image()], prefix="one hundred")[0].output.startswith("one hundred")
        return
    with pytest.raises(TwofoldError, match=r"trained without prefixes; train a `vit` with encoder.prefix=true"):
        model.predict([some_image()], prefix="one hundred")
