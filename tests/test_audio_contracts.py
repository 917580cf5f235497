"""Contracts of every encoder of sounds and every decoder that fits it, so that a new one is tested, too."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.conftest import decoder, encoder, small_audio_model, some_sound
from tests.test_contracts import every, gives, tensors
from twofold.data.tokenizer import TextTokenizer
from twofold.decoders import DecoderConfig
from twofold.encoders import EncoderConfig
from twofold.generate.search import GenerateOptions
from twofold.inputs import INPUT
from twofold.inputs.audio import Spectrogram
from twofold.model import Model
from twofold.types import Batch, Encoder, Features

FEATURES = Features(width=10, limit=40)
EXAMPLES: list[dict[str, Any]] = [
    {"audio": some_sound(900, 0), "target": "g f e", "label": "few"},
    {"audio": some_sound(130, 1), "target": "seven hundred and two", "label": "many"},
    {"audio": some_sound(1500, 2), "target": "1", "label": "many"},
]
"""The longest sound has not the longest text."""
each_encoder = pytest.mark.parametrize("reads", every("encoders", encoder, "audio"))
each_decoder = pytest.mark.parametrize(
    "writes", [part for what in ("text", "label") for part in every("decoders", decoder, what)]
)


def some_batch(lengths: tuple[int, ...] = (21, 1, 14, 2, 8), seed: int = 0) -> Batch:
    draw = torch.Generator().manual_seed(seed)
    frames = torch.randn(len(lengths), max(lengths), FEATURES.width, generator=draw)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return Batch({INPUT: Spectrogram(frames * mask[..., None], mask)})


def built(reads: EncoderConfig, needs: frozenset[str] | None = None) -> Encoder:
    torch.manual_seed(0)
    return reads.build(FEATURES, gives(reads) if needs is None else needs)


def close(first: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(first, other, atol=2e-5, rtol=2e-5)


@each_encoder
def test_an_encoder_fills_only_what_is_needed_in_the_shapes_of_its_spec(reads: EncoderConfig) -> None:
    batch, names = some_batch(), tensors(reads)
    for needs in (frozenset(some) for size in range(1, len(names) + 1) for some in combinations(names, size)):
        hidden = built(reads, needs).eval()(batch)
        assert hidden.mask.any(1).all()
        assert {name for name in names if getattr(hidden, name) is not None} == needs
        if hidden.states is not None:
            assert hidden.states.shape == (*hidden.mask.shape, reads.spec().states)
        if hidden.summary is not None:
            assert hidden.summary.shape == (len(batch), reads.spec().summary)


@each_encoder
def test_padding_does_not_change_states_or_summary(reads: EncoderConfig) -> None:
    part, batch = built(reads).eval(), some_batch()
    read, together = batch.read(Spectrogram), part(batch)
    for row, length in enumerate(read.mask.sum(1).tolist()):
        rows = slice(row, row + 1)
        alone = part(Batch({INPUT: Spectrogram(read.frames[rows, :length], read.mask[rows, :length])}))
        assert alone.mask.all()
        assert alone.mask.shape[1] == together.mask[row].sum()
        for name in tensors(reads):
            single, many = alone.need(name)[0], together.need(name)[row]
            close(many[: len(single)] if name == "states" else many, single)


@each_encoder
@pytest.mark.parametrize("training", [False, True])
def test_more_columns_of_padding_change_nothing_whatever_they_hold(reads: EncoderConfig, training: bool) -> None:
    part, batch = built(reads).train(training), some_batch()
    read = batch.read(Spectrogram)
    mask = torch.cat([read.mask, read.mask.new_zeros(len(batch), 5)], 1)
    frames = torch.cat([read.frames, read.frames.new_zeros(len(batch), 5, FEATURES.width)], 1)
    wide = part(Batch({INPUT: Spectrogram(frames.masked_fill(~mask[..., None], 7.0), mask)}))
    narrow = part(batch)
    for name in tensors(reads):
        first, other = narrow.need(name), wide.need(name)
        close(*((other[wide.mask], first[narrow.mask]) if name == "states" else (other, first)))


@each_encoder
@each_decoder
def test_a_loss_over_many_sounds_is_the_sum_of_the_losses_of_each(
    tokenizer: TextTokenizer, reads: EncoderConfig, writes: DecoderConfig
) -> None:
    model = small_audio_model(tokenizer, reads, writes).eval()
    batch = model.batch(EXAMPLES)
    together = model.losses(batch)["main"]
    alone = [model.losses(model.batch([example]))["main"] for example in EXAMPLES]
    assert together.count == sum(loss.count for loss in alone) == model.counts(batch)["main"] > 0
    close(together.sum, torch.stack([loss.sum for loss in alone]).sum())


@each_encoder
@each_decoder
def test_every_parameter_of_a_pair_gets_a_gradient(
    tokenizer: TextTokenizer, reads: EncoderConfig, writes: DecoderConfig
) -> None:
    model = small_audio_model(tokenizer, reads, writes).train()
    model.loss(model.batch(EXAMPLES)).backward()  # type: ignore[no-untyped-call]
    still = [name for name, value in model.named_parameters() if value.grad is None or not value.grad.any()]
    assert not [name for name in still if name != "encoder.positions.table"]  # of which only the first are read


@each_encoder
@each_decoder
def test_a_saved_and_loaded_pair_gives_the_same_outputs(
    tokenizer: TextTokenizer, reads: EncoderConfig, writes: DecoderConfig, tmp_path: Path
) -> None:
    model = small_audio_model(tokenizer, reads, writes)
    with torch.no_grad():
        for value in model.state_dict().values():
            value.add_(torch.rand_like(value) / 10)  # no tensor may keep what a new model would have anyway
    model.save_pretrained(tmp_path / "saved")
    loaded = Model.from_pretrained(tmp_path / "saved")
    assert loaded.config == model.config
    assert torch.equal(loaded.loss(loaded.batch(EXAMPLES)), model.eval().loss(model.batch(EXAMPLES)))
    sounds, options = [example["audio"] for example in EXAMPLES], GenerateOptions(max_length=6)
    predictions, expected = (one.predict(sounds, options) for one in (loaded, model))
    assert [(one.output, one.score) for one in predictions] == [(one.output, one.score) for one in expected]


@each_encoder
def test_sounds_of_many_lengths_are_answered_in_their_order(tokenizer: TextTokenizer, reads: EncoderConfig) -> None:
    model = small_audio_model(tokenizer, reads, decoder("attention_rnn"))
    sounds = [some_sound(samples, seed) for seed, samples in enumerate((400, 3, 2500, 40, 41, 900, 100))]
    options = GenerateOptions(max_length=4)
    together = model.predict(sounds, options)
    for sound, many in zip(sounds, together, strict=True):
        (prediction,) = model.predict([sound], options)
        assert many.input is sound
        assert many.score == pytest.approx(prediction.score, abs=1e-4)
