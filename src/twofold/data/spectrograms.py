"""Audio preprocessing: mel spectrograms and random augmentation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from twofold.data.audio import RATES, Samples, resample
from twofold.data.batches import Draw

RANGE = 6 * math.log(10)
"""Dynamic range below the loudest power of a sound, in natural log units: 60 dB."""
LOWEST = 20.0
"""Lower edge of the lowest mel band, in Hz."""


@dataclass(frozen=True)
class MelSettings:
    """Settings of the mel spectrogram."""

    sample_rate: int = 16_000
    """Sample rate that every sound is resampled to, in Hz."""
    mels: int = 80
    """Number of mel bands, from 20 Hz to half the sample rate."""
    window: float = 0.025
    """Length of a frame in seconds (Hann window)."""
    hop: float = 0.01
    """Seconds from one frame to the next (hop length)."""

    def __post_init__(self) -> None:
        if not RATES[0] <= self.sample_rate <= 192_000:
            raise ValueError(f"sample_rate must be from {RATES[0]:,} to 192,000, not {self.sample_rate}")
        if not 0.001 <= self.hop <= self.window <= 1:
            raise ValueError("window and hop must be from 0.001 to 1 second, the hop no longer than the window")
        if not 1 <= self.mels <= 512 or not mel_filters(self.sample_rate, self.points, self.mels).any(0).all():
            raise ValueError(f"mels={self.mels}: some band would hold no frequency; lower it or raise window")

    @property
    def step(self) -> int:
        """Hop length in samples."""
        return round(self.hop * self.sample_rate)

    @property
    def points(self) -> int:
        """FFT size in samples: the smallest power of two that holds a window."""
        return 1 << (round(self.window * self.sample_rate) - 1).bit_length()

    def frames(self, samples: int) -> int:
        """Number of frames for this many samples."""
        return 1 + samples // self.step

    def spectrogram(self, samples: Samples, warp: float = 1.0) -> Tensor:
        """Log-mel spectrogram (frames, mels), scaled from -1 to 1 with maximum 1, so that loudness does not matter.

        warp: factor of the frequencies (vocal tract length perturbation)
        """
        values = torch.from_numpy(samples - samples.mean())
        values = values / values.abs().max().clamp(min=1e-30)
        width = round(self.window * self.sample_rate)
        transformed = torch.stft(
            values, self.points, self.step, width, torch.hann_window(width), pad_mode="constant", return_complex=True
        )
        filters = torch.from_numpy(mel_filters(self.sample_rate, self.points, self.mels, warp))
        powers = (transformed.abs().square().T @ filters).clamp(min=1e-30).log()
        return ((powers - powers.max()) * (2 / RANGE) + 1).clamp(min=-1)


@lru_cache(maxsize=256)
def mel_filters(rate: int, points: int, mels: int, warp: float = 1.0) -> Samples:
    """Mel filter bank (frequencies, mels): triangles of equal width on the mel scale, 2595 log10(1 + f / 700), peak 1.

    `warp` multiplies frequencies up to four fifths of the band; above that they bend back to its end.
    """
    highest = rate / 2
    frequencies = np.linspace(0, highest, points // 2 + 1)
    bend = 0.8 * highest * min(1.0, 1 / warp)
    slope = (highest - warp * bend) / (highest - bend)
    warped = np.where(frequencies < bend, warp * frequencies, highest - slope * (highest - frequencies))
    edges = 700 * (10 ** (np.linspace(_mel(LOWEST), _mel(highest), mels + 2) / 2595) - 1)
    lower, middle, upper = edges[:-2], edges[1:-1], edges[2:]
    rising = (warped[:, None] - lower) / (middle - lower)
    falling = (upper - warped[:, None]) / (upper - middle)
    triangles: Samples = np.minimum(rising, falling).clip(0).astype(np.float32)
    return triangles


def _mel(frequency: float) -> float:
    return 2595 * math.log10(1 + frequency / 700)


@dataclass(frozen=True)
class SoundAugment:
    """Random augmentation of sounds in training."""

    speed: tuple[float, float] = (1.0, 1.0)
    """Minimum and maximum playback speed (speed perturbation, which also shifts the pitch); [1, 1] changes nothing."""
    warp: tuple[float, float] = (1.0, 1.0)
    """Minimum and maximum frequency factor (vocal tract length perturbation, VTLP); [1, 1] changes nothing."""
    noise: tuple[float, float] | None = None
    """Minimum and maximum signal-to-noise ratio of added noise, in dB; null adds none."""
    pad: float = 0.0
    """Maximum seconds of silence put before and after a sound; 0 adds none."""
    equalize: float = 0.0
    """Maximum gain, in dB, of a random smooth equalizer over the mel bands, as from another microphone; 0 turns it
    off."""
    time_masks: int = 0
    """Number of time masks (SpecAugment); 0 masks none."""
    time_mask: float = 0.1
    """Maximum width of a time mask, as a fraction of the sound."""
    frequency_masks: int = 0
    """Number of frequency masks (SpecAugment); 0 masks none."""
    frequency_mask: float = 0.2
    """Maximum width of a frequency mask, as a fraction of the mel bands."""

    def __post_init__(self) -> None:
        for name in ("speed", "warp"):
            least, most = getattr(self, name)
            if not 0.5 <= least <= most <= 2:
                raise ValueError(f"{name} must be two numbers from 0.5 to 2, the smaller one first")
        if self.noise is not None and not -20 <= self.noise[0] <= self.noise[1] <= 100:
            raise ValueError("noise must be two numbers of decibels from -20 to 100, the smaller one first")
        if not 0 <= self.pad <= 60 or not 0 <= self.equalize <= 60:
            raise ValueError("pad must be from 0 to 60 seconds, equalize from 0 to 60 decibels")
        if min(self.time_masks, self.frequency_masks) < 0 or not 0 <= max(self.time_mask, self.frequency_mask) <= 1:
            raise ValueError("time_masks and frequency_masks must be at least 0, time_mask and frequency_mask shares")

    def changed(self, samples: Samples, settings: MelSettings, draw: Draw) -> Tensor:
        """Spectrogram (frames, mels) of the sound after random speed, noise, warping, equalizing and masking."""
        percent = round(100 * _between(self.speed, draw))
        before, after = draw.integers(0, int(self.pad * settings.sample_rate) + 1, 2)
        samples = self._noisy(np.pad(resample(samples, percent, 100), (before, after)), draw)
        spectrogram = settings.spectrogram(samples, round(_between(self.warp, draw), 2))
        spectrogram += self._equalized(spectrogram.shape[1], draw)
        for axis, count, share in (
            (0, self.time_masks, self.time_mask),
            (1, self.frequency_masks, self.frequency_mask),
        ):
            size = spectrogram.shape[axis]
            for _ in range(count):
                width = int(draw.integers(int(share * size) + 1))
                spectrogram.narrow(axis, int(draw.integers(size - width + 1)), width).zero_()
        return spectrogram

    def _equalized(self, bands: int, draw: Draw) -> Tensor:
        """Random smooth gain of each band, (bands,)."""
        decibels, waves, phase = draw.uniform(0, self.equalize), draw.uniform(0, 1.5), draw.uniform(0, 2 * np.pi)
        wave = np.sin(np.linspace(0, 2 * np.pi * waves, bands) + phase) * decibels * (2 / 60)
        return torch.from_numpy(wave.astype(np.float32))

    def _noisy(self, samples: Samples, draw: Draw) -> Samples:
        """Adds random noise with a spectrum between white and brown."""
        if self.noise is None:
            return samples
        decibels, fall = draw.uniform(*self.noise), draw.uniform(0, 1)
        spectrum = np.fft.rfft(draw.standard_normal(max(2, 1 << (len(samples) - 1).bit_length())))
        noise = np.fft.irfft(spectrum / np.arange(1, len(spectrum) + 1) ** fall)[: len(samples)]
        level = samples.std() / max(noise.std(), 1e-20) * 10 ** (-decibels / 20)
        noisy: Samples = (samples + level * noise).astype(np.float32)
        return noisy


def _between(limits: tuple[float, float], draw: Draw) -> float:
    """Draws a factor between two limits, uniformly in its logarithm."""
    return math.exp(draw.uniform(*np.log(limits)))
