"""Mel spectrograms are those of the formula, whatever the loudness; augmentation follows from its draws."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from tests.sounds import RATE, READ, tone
from twofold.data.spectrograms import MelSettings, SoundAugment, mel_filters

SETTINGS = MelSettings(**READ)  # type: ignore[arg-type]


def mel_by_hand(samples: Any, rate: int, points: int, width: int, step: int, bands: int) -> Any:
    """The formula in plain numpy: frame by frame, frequency by frequency, band by band."""
    samples = samples.astype(float) - samples.mean(dtype=float)
    samples = samples / np.abs(samples).max()
    padded = np.pad(samples, points // 2)
    window = np.zeros(points)
    start = (points - width) // 2
    window[start : start + width] = [0.5 - 0.5 * math.cos(2 * math.pi * n / width) for n in range(width)]
    first, last = (2595 * math.log10(1 + frequency / 700) for frequency in (20, rate / 2))
    edges = [700 * (10 ** ((first + (last - first) * n / (bands + 1)) / 2595) - 1) for n in range(bands + 2)]
    turns = np.exp(-2j * np.pi * np.outer(np.arange(points // 2 + 1), np.arange(points)) / points)
    rows = []
    for place in range(0, len(samples) + 1, step):
        powers = np.abs(turns @ (window * padded[place : place + points])) ** 2
        row = []
        for low, middle, high in zip(edges, edges[1:], edges[2:], strict=False):
            total = 0.0
            for number, power in enumerate(powers):
                frequency = number * rate / points
                total += power * max(0.0, min((frequency - low) / (middle - low), (high - frequency) / (high - middle)))
            row.append(math.log(max(total, 1e-30)))
        rows.append(row)
    logs = np.array(rows)
    return np.maximum((logs - logs.max()) / (3 * math.log(10)) + 1, -1)


@pytest.mark.parametrize("samples", [2, 37, 600, 611])
def test_a_spectrogram_is_that_of_the_formula(samples: int) -> None:
    sound = (tone(300, 1500, 0.2) + 0.1 * tone(700, None, 0.2))[100 : 100 + samples]
    spectrogram = SETTINGS.spectrogram(sound).numpy()
    right = mel_by_hand(sound, RATE, 128, 128, 40, 12)
    assert spectrogram.shape == right.shape == (SETTINGS.frames(samples), 12)
    assert np.abs(spectrogram - right).max() < 1e-3


def test_a_window_that_is_no_power_of_two_stands_in_the_middle_of_its_transform() -> None:
    settings = MelSettings(sample_rate=RATE, mels=10, window=0.025, hop=0.01)
    sound = tone(500, 900)
    right = mel_by_hand(sound, RATE, settings.points, 100, 40, 10)
    assert np.abs(settings.spectrogram(sound).numpy() - right).max() < 1e-3


@pytest.mark.parametrize("gain", [1e-6, 0.01, 3.0, 1e6])
def test_loudness_and_an_offset_do_not_matter(gain: float) -> None:
    sound = tone(300, 1500)
    louder = (gain * (sound + 0.5)).astype(np.float32)
    torch.testing.assert_close(SETTINGS.spectrogram(louder), SETTINGS.spectrogram(sound), atol=2e-2, rtol=0)


def test_a_tone_lies_in_the_band_around_its_frequency_and_warping_moves_it() -> None:
    filters = mel_filters(RATE, 128, 12)
    for frequency in (400.0, 800.0, 1300.0):
        band = int(SETTINGS.spectrogram(tone(frequency)).mean(0).argmax())
        assert band == int(filters[round(frequency / RATE * 128)].argmax())
    warped = mel_filters(RATE, 128, 12, 1.2)
    assert np.allclose(warped[25], mel_filters(RATE, 128 * 5, 12)[25 * 6])  # 781.25 Hz as 937.5 Hz
    assert np.allclose(warped[-1], filters[-1], atol=1e-5)
    assert int(SETTINGS.spectrogram(tone(600), 1.2).mean(0).argmax()) == int(
        SETTINGS.spectrogram(tone(720)).mean(0).argmax()
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"mels": 200, "sample_rate": 8000}, "mels=200: some band would hold no frequency; lower it or raise window"),
        ({"mels": 0}, "mels=0"),
        ({"hop": 0.05}, "the hop no longer than the window"),
        ({"sample_rate": 10}, "sample_rate must be from 1,000 to 192,000, not 10"),
    ],
)
def test_settings_that_make_no_spectrogram_are_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        MelSettings(**settings)


def changed(seed: int = 1, **settings: Any) -> torch.Tensor:
    return SoundAugment(**settings).changed(tone(300, 1500), SETTINGS, np.random.default_rng(seed))


def test_without_settings_nothing_changes() -> None:
    assert torch.equal(changed(), SETTINGS.spectrogram(tone(300, 1500)))


@pytest.mark.parametrize(
    "settings",
    [
        {"speed": (0.7, 1.4)},
        {"warp": (0.8, 1.25)},
        {"noise": (0, 20)},
        {"pad": 0.2},
        {"equalize": 20.0},
        {"time_masks": 2, "time_mask": 0.4},
        {"frequency_masks": 2, "frequency_mask": 0.4},
    ],
    ids=lambda settings: "-".join(settings),
)
def test_a_change_follows_from_its_draws(settings: dict[str, Any]) -> None:
    assert torch.equal(changed(1, **settings), changed(1, **settings))
    forms = [changed(seed, **settings) for seed in range(8)]
    assert all(form.isfinite().all() for form in forms)
    assert any(form.shape != forms[0].shape or not torch.allclose(form, forms[0]) for form in forms)


def test_the_shortest_sound_there_is_can_be_changed() -> None:
    everything = SoundAugment((2.0, 2.0), (1.1, 1.1), (5, 5), 0.0, 5.0, 1, 0.5, 1, 0.5)
    frames = everything.changed(np.array([0.1, -0.2], np.float32), SETTINGS, np.random.default_rng(1))
    assert frames.shape == (1, 12)
    assert frames.isfinite().all()


def test_speed_changes_length_and_pitch() -> None:
    plain = SETTINGS.spectrogram(tone(600, None, 0.5))
    fast = SoundAugment(speed=(1.5, 1.5)).changed(tone(600, None, 0.5), SETTINGS, np.random.default_rng(1))
    assert len(fast) == pytest.approx(len(plain) / 1.5, abs=1)
    right = SETTINGS.spectrogram(tone(900, None, 0.5)).mean(0).argmax()
    assert fast.mean(0).argmax() == right != plain.mean(0).argmax()


def test_noise_has_the_strength_that_was_drawn() -> None:
    sound, draw = tone(300, 1500, 2.0), np.random.default_rng(3)
    noisy = SoundAugment(noise=(10, 10))._noisy(sound, draw)
    assert 20 * math.log10(sound.std() / (noisy - sound).std()) == pytest.approx(10, abs=0.01)


def test_masks_hide_whole_stretches_of_time_and_of_bands() -> None:
    plain, masked = changed(), changed(5, time_masks=1, time_mask=0.5, frequency_masks=1, frequency_mask=0.5)
    hidden = (masked == 0) & (plain != 0)
    times, bands = hidden.all(1), hidden.all(0)
    assert 0 < times.sum() <= len(plain) / 2
    assert 0 < bands.sum() <= 6
    assert torch.equal(hidden, (times[:, None] | bands[None]) & (plain != 0))
    for stretch in (times, bands):
        assert (stretch.int().diff() != 0).sum() <= 2


@pytest.mark.parametrize(
    "settings",
    [
        {"speed": (0.1, 1.0)},
        {"warp": (1.2, 0.8)},
        {"noise": (40, 5)},
        {"pad": -1.0},
        {"equalize": 100.0},
        {"time_masks": -1},
        {"frequency_mask": 1.5},
    ],
    ids=lambda settings: "-".join(settings),
)
def test_augmentation_that_makes_no_sense_is_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(settings))}"):
        SoundAugment(**settings)
