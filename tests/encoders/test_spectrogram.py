"""The encoder of spectrograms: how coarse it makes time, that it hears, and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.conftest import decoder, encoder, input_of, small_audio_model, small_model
from twofold.data.tokenizer import TextTokenizer
from twofold.encoders.spectrogram import Config, Halving
from twofold.errors import TwofoldError
from twofold.inputs import INPUT
from twofold.inputs.audio import Spectrogram
from twofold.types import Batch, Features


def batch_of(*lengths: int) -> Batch:
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    frames = torch.randn(len(lengths), max(lengths), 10, generator=torch.Generator().manual_seed(0))
    return Batch({INPUT: Spectrogram(frames, mask)})


@pytest.mark.parametrize(("channels", "times"), [((4,), 2), ((4, 8), 4), ((4, 4, 8), 8)])
def test_each_convolution_halves_time_rounded_up(channels: tuple[int, ...], times: int) -> None:
    part = Config(width=8, heads=2, layers=1, channels=channels).build(Features(10, 40), frozenset({"states"}))
    hidden = part.eval()(batch_of(21, 1, 16, 17))
    assert hidden.mask.sum(1).tolist() == [-(-length // times) for length in (21, 1, 16, 17)]


def test_a_halving_is_a_convolution_a_norm_over_channels_and_relu() -> None:
    torch.manual_seed(0)
    layer, maps = Halving(3, 8, "layer"), torch.randn(2, 7, 5, 3)
    halved = layer(maps, torch.ones(2, 7, dtype=torch.bool))
    weight, bias = layer.convolution.weight, layer.convolution.bias
    assert bias is not None
    padded = F.pad(maps, (0, 0, 1, 1, 1, 1))
    for time, band in ((0, 0), (3, 2), (2, 1)):
        patch = padded[:, 2 * time : 2 * time + 3, 2 * band : 2 * band + 3]
        right = torch.einsum("rtbc,octb->ro", patch, weight) + bias
        right = (right - right.mean(1, keepdim=True)) / (right.var(1, correction=0, keepdim=True) + 1e-5).sqrt()
        torch.testing.assert_close(halved[:, time, band], right.clamp(min=0), atol=1e-5, rtol=1e-5)


def test_without_layers_a_state_hears_only_what_is_near_it() -> None:
    settings: dict[str, Any] = {"width": 8, "heads": 2, "channels": [4, 4]}
    batch = batch_of(40)
    frames, mask = batch.read(Spectrogram).frames.clone(), batch.read(Spectrogram).mask
    frames[:, -1] += 1
    for layers, all_change in ((0, False), (1, True)):
        torch.manual_seed(0)
        part = encoder("spectrogram", layers=layers, **settings).build(Features(10, 40), frozenset({"states"})).eval()
        first, other = part(batch).need("states"), part(Batch({INPUT: Spectrogram(frames, mask)})).need("states")
        changed = (first != other).any(-1)[0]
        assert changed[-1]
        assert changed[:-2].any() == all_change


def test_the_bands_and_the_longest_sound_are_told_by_the_input() -> None:
    spec = input_of("audio", mels=24, max_seconds=10.0, augment={"speed": [0.8, 1.0], "pad": 0.5}).build(None).spec
    assert spec == Features(24, 2 + 1350)  # 10 s at .8 of the speed, .5 s before and after, 100 frames a second


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"channels": []}, r"channels \[\]: at least one convolution"),
        ({"channels": [0]}, r"channels \[0\]: at least one"),
        ({"layers": -1}, "layers must be at least 0, not -1"),
        ({"width": 10, "heads": 4}, "width 10 is not a multiple of the 4 heads"),
    ],
)
def test_settings_that_make_no_network_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(TwofoldError, match=said):
        encoder("spectrogram", **settings)


def test_encoders_of_texts_and_of_images_hear_nothing_and_that_of_sounds_reads_no_text(
    tokenizer: TextTokenizer,
) -> None:
    line = "the encoder 'convnet' reads images, but the input 'audio' gives spectrogram; these would do: image$"
    with pytest.raises(TwofoldError, match=line):
        small_audio_model(tokenizer, encoder("convnet"), decoder("label"))
    with pytest.raises(TwofoldError, match="'spectrogram' reads spectrogram, but the input 'text' gives tokens"):
        small_model(tokenizer, encoder("spectrogram"), decoder("attention_rnn"))
