"""Audio input: mel spectrograms, with random augmentation in training."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from twofold.data.audio import (
    ENDINGS,
    GivenSound,
    Samples,
    SoundFile,
    as_sound,
    read_sounds,
    resampled_length,
)
from twofold.data.batches import Draw, pad_ids
from twofold.data.cache import Cache, Encoded, Field
from twofold.data.columns import TooLong, TooLongError
from twofold.data.file_columns import NAME, FileColumn, FileSettings, cached_name
from twofold.data.files import Row, Sources
from twofold.data.named_files import NamedFile
from twofold.data.spectrograms import RANGE, MelSettings, SoundAugment
from twofold.data.tokenizer import TextTokenizer
from twofold.inputs import INPUT, Input, InputConfig
from twofold.results import Timeline
from twofold.types import Features, InputBatch


@dataclass(frozen=True)
class Spectrogram(InputBatch):
    """Mel spectrograms, padded with zeros to the longest."""

    frames: Tensor
    """Log-mel values (rows, frames, mels)."""
    mask: Tensor
    """Padding mask (rows, frames); true where real."""

    def __len__(self) -> int:
        return self.frames.shape[0]


@dataclass(frozen=True)
class Config(MelSettings, FileSettings, InputConfig):
    """Settings of audio inputs."""

    gives: ClassVar[type[InputBatch]] = Spectrogram
    noun: ClassVar[str] = "sound"
    endings: ClassVar[tuple[str, ...]] = ENDINGS
    file: ClassVar[type[NamedFile]] = SoundFile
    training: ClassVar[Mapping[str, Any]] = {"batch_rows": 16, "warmup_share": 0.1}

    column: str = "audio"
    """Column of the table that names the sound."""
    max_seconds: float = 30.0
    """Maximum length of a sound, in seconds."""
    too_long: TooLong = "refuse"
    """Action for longer sounds: `refuse` raises an error that names the file, `cut` keeps the beginning and warns."""
    augment: SoundAugment = field(default_factory=SoundAugment)
    """Random augmentation in training."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.01 <= self.max_seconds <= 3600:
            raise ValueError(f"max_seconds must be from 0.01 to 3600, not {self.max_seconds}")

    def build(self, tokenizer: TextTokenizer | None) -> AudioInput:
        return AudioInput(self)

    def rows(self, where: Sources) -> Iterator[Row]:
        return read_sounds(self.source(where), self.folder, self.column)

    def given(self, value: Any, place: str) -> SoundFile | GivenSound:
        return as_sound(value, place, self.sample_rate)


@dataclass(frozen=True)
class SizedSound:
    """Sound to read: its number of frames, and whether it is truncated."""

    sound: SoundFile | GivenSound
    frames: int
    cut: bool = False


@dataclass(frozen=True)
class AudioInput(FileColumn, Input[SizedSound]):
    """Audio input; items are sounds whose samples are read later."""

    config: Config
    dtype: str = "int32"
    example: ClassVar[str] = "np.sin(np.arange(8000.0) / 9)"

    def settings(self) -> list[Any]:
        config = self.config
        limits = [config.max_seconds, config.too_long, config.sample_rate, config.step]
        return ["audio", config.column, config.broken, *limits]

    @property
    def spec(self) -> Features:
        augment = self.config.augment
        seconds = self.config.max_seconds / min(1.0, augment.speed[0]) + 2 * augment.pad
        return Features(self.config.mels, 1 + self.config.frames(round(seconds * self.config.sample_rate)))

    def columns(self) -> dict[str, Field]:
        return {NAME: self.names(), INPUT: self}

    def numbers(self, row: Row) -> list[int]:
        """Returns the number of frames and whether the sound is truncated."""
        item = self._sized(self.value(row))
        self._samples(item)
        return [item.frames, int(item.cut)]

    def encode(self, rows: Sequence[Row]) -> Encoded:
        encoded = super().encode(rows)
        self._say_cut(sum(cut for ids in encoded.ids for cut in ids[1:]))
        return encoded

    def items(self, rows: Sequence[Row]) -> list[SizedSound]:
        items = [self._sized(self.value(row)) for row in rows]
        self._say_cut(sum(item.cut for item in items))
        return items

    def cached(self, cache: Cache, row: int) -> SizedSound:
        sound = SoundFile(self.config.files_of(str(cache.where)), cached_name(cache, NAME, row))
        return SizedSound(sound, int(cache.columns[INPUT].row(row)[0]))

    def length(self, item: SizedSound) -> int:
        return item.frames

    def lengths(self, cache: Cache) -> NDArray[np.int64]:
        column = cache.columns[INPUT]
        frames = np.zeros(cache.rows, np.int64)  # skipped rows have none
        frames[column.lengths > 0] = column.whole().reshape(-1, 2)[:, 0]
        return frames

    def batch(self, items: Sequence[SizedSound], draws: Sequence[Draw] | None = None) -> Spectrogram:
        samples, config = [self._samples(item) for item in items], self.config
        if draws is None:
            frames = [config.spectrogram(sound) for sound in samples]
        else:
            frames = [config.augment.changed(sound, config, draw) for sound, draw in zip(samples, draws, strict=True)]
        mask = pad_ids([np.ones(len(bands), np.int64) for bands in frames], 0)[1]
        return Spectrogram(pad_sequence(frames, batch_first=True), mask)

    def is_single(self, inputs: Any) -> bool:
        return not isinstance(inputs, list | Iterator)  # a tuple is one sound with its sample rate

    def reading(self) -> dict[str, Any]:
        config = self.config
        sizes = {"points": config.points, "step": config.step, "width": round(config.window * config.sample_rate)}
        return {"reader": "sounds", "rate": config.sample_rate, "mels": config.mels, **sizes, "range": RANGE}

    def samples(self) -> list[Any]:
        draw, longest = np.random.default_rng(0), min(1.0, self.config.max_seconds)
        lengths = [max(2, round(share * longest * self.config.sample_rate)) for share in (1.0, 1.0, 0.6, 0.31)]
        return [(draw.standard_normal(length) / 4).astype(np.float32) for length in lengths]

    def timeline(self, item: SizedSound) -> Timeline:
        frames = self.batch([item]).frames[0]
        return Timeline(frames.T.numpy(), len(frames) * self.config.hop)

    def _sized(self, sound: SoundFile | GivenSound) -> SizedSound:
        header, config = sound.header(), self.config
        seconds = header.samples / header.rate
        cut = seconds > config.max_seconds
        if cut and config.too_long == "refuse":
            said = f"{seconds:,.1f} seconds are longer than input.max_seconds={config.max_seconds:g}"
            raise TooLongError(f"{sound.place}: {said}; shorten it, raise that, or set input.too_long=cut")
        samples = resampled_length(header.within(config.max_seconds), header.rate, config.sample_rate)
        return SizedSound(sound, config.frames(samples), cut)

    def _samples(self, item: SizedSound) -> Samples:
        """Samples at the model's sample rate."""
        return item.sound.read(self.config.max_seconds, self.config.sample_rate)

    def _say_cut(self, cut: int) -> None:
        if cut:
            said = "longer than input.max_seconds and cut"
            warnings.warn(f"{cut:,} sounds are {said}" if cut > 1 else f"a sound is {said}", stacklevel=3)
