"""Audio files and arrays: decoding within limits and resampling. Broken, empty or silent sounds raise an error."""

from __future__ import annotations

import io
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from twofold.data.files import Row
from twofold.data.named_files import FileError, NamedFile, find_files, open_files, read_named_table
from twofold.errors import TwofoldError

ENDINGS = (".wav", ".flac", ".ogg", ".mp3")
"""File name suffixes of sounds; the format itself is read from the content."""
RATES = (1000, 768_000)
"""Minimum and maximum sample rate, in Hz."""
MOST_CHANNELS = 64
BLOCK = 1 << 13
"""Samples decoded or resampled at a time."""
ZEROS, BETA, ROLLOFF = 16, 8.0, 0.95
"""Resampling filter: zero crossings on either side, beta of the Kaiser window, and fraction of the band that is
kept."""
Samples = NDArray[np.float32]


class Header(NamedTuple):
    """Header of a sound file: sample rate and samples per channel."""

    rate: int
    samples: int

    def within(self, seconds: float) -> int:
        """Number of samples in the first `seconds`."""
        return min(self.samples, max(1, int(seconds * self.rate)))


@dataclass(frozen=True)
class SoundFile(NamedFile):
    """Sound file."""

    def header(self) -> Header:
        with self._opened() as file:
            return Header(file.samplerate, file.frames)

    def read(self, seconds: float, rate: int) -> Samples:
        """Reads the first `seconds` of the sound at sample rate `rate`, averaged over the channels (mono)."""
        with self._opened() as file:
            header = Header(file.samplerate, file.frames)
            wanted = header.within(seconds)
            blocks, left = [], wanted
            # soundfile seeks after every block, which loses its position in MP3.
            block_size = wanted if file.format == "MP3" else BLOCK
            while left and len(block := file.read(min(block_size, left), dtype="float32", always_2d=True)):
                blocks.append(block.mean(1))
                left -= len(block)
        if left:
            raise FileError(f"{self.place}: breaks off after {wanted - left:,} of {wanted:,} samples; replace it")
        return resample(_checked(np.concatenate(blocks), self.place), header.rate, rate)

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        soundfile, content = _library(), self.content()
        try:
            with soundfile.SoundFile(io.BytesIO(content)) as file:
                _check_header(file.samplerate, file.frames, file.channels, self.place)
                yield file
        except soundfile.SoundFileError as error:
            reason = str(getattr(error, "error_string", error)).rstrip(".")
            raise FileError(
                f"{self.place}: not a sound that can be read ({reason}); make it wav, flac or ogg"
            ) from None


@dataclass(frozen=True)
class GivenSound:
    """Sound in memory."""

    values: Any = field(repr=False)
    """Samples (samples,) or (samples, channels), of any numeric type."""
    rate: int
    place: str = "sound"

    def header(self) -> Header:
        values = self._array()
        _check_header(self.rate, len(values), 1 if values.ndim == 1 else values.shape[1], self.place)
        return Header(self.rate, len(values))

    def read(self, seconds: float, rate: int) -> Samples:
        """Does the same as `SoundFile.read`."""
        header = self.header()
        with np.errstate(over="ignore"):  # values that float32 cannot hold become infinite and are refused
            values = self._array()[: header.within(seconds)].astype(np.float32)
        return resample(_checked(values if values.ndim == 1 else values.mean(1), self.place), header.rate, rate)

    def _array(self) -> NDArray[Any]:
        wanted = "real numbers of (samples,) or (samples, channels), or a pair of them and their rate"
        try:
            values = np.asarray(self.values)
        except (TypeError, ValueError, RuntimeError) as error:  # rows of different lengths, or a tensor on a GPU
            raise FileError(f"{self.place}: not {wanted} ({error})") from None
        if values.dtype.kind not in "if" or values.ndim not in (1, 2):
            raise FileError(f"{self.place}: not {wanted}, but {values.dtype} of {values.shape}")
        return values


def as_sound(given: Any, place: str, rate: int) -> SoundFile | GivenSound:
    """Accepts a path, an array of samples at rate `rate`, or a pair of an array and its own rate."""
    if isinstance(given, SoundFile | GivenSound):
        return given
    if isinstance(given, str | Path):
        return SoundFile.at(given)
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], int | np.integer):
        return GivenSound(given[0], int(given[1]), place)
    return GivenSound(given, rate, place)


def read_sounds(where: str, folder: str | None, column: str) -> Iterator[Row]:
    """Reads rows with sounds: from a table that names files in `folder`, or from a folder of sounds."""
    files = find_files(where)
    if files is None:
        yield from read_named_table(where, open_files(folder or Path(where).parent), column, SoundFile, ENDINGS)
        return
    names = [name for name in files.names() if name.lower().endswith(ENDINGS)]
    if not names:
        raise TwofoldError(f"{where}: holds no sounds ({', '.join(ENDINGS)})")
    yield from (Row(files.place(name), {column: SoundFile(files, name)}) for name in names)


def _library() -> Any:
    try:
        import soundfile  # type: ignore[import-untyped,unused-ignore]
    except (ImportError, OSError):  # OSError: the native library behind it is missing
        raise TwofoldError("reading sounds needs `pip install 'twofold[audio]'`") from None
    return soundfile


def _check_header(rate: int, samples: int, channels: int, place: str) -> None:
    if not RATES[0] <= rate <= RATES[1]:
        raise FileError(f"{place}: {rate:,} samples a second; resample it to between {RATES[0]:,} and {RATES[1]:,}")
    if not 1 <= channels <= MOST_CHANNELS:
        raise FileError(f"{place}: {channels} channels; mix it down to 1, {MOST_CHANNELS} at most")
    if samples < 1:
        raise FileError(f"{place}: holds no samples; record it anew or remove its row")


def _checked(samples: Samples, place: str) -> Samples:
    if not np.isfinite(samples).all():
        raise FileError(f"{place}: holds samples that are not numbers (nan or infinite); record it anew")
    if not np.ptp(samples):
        raise FileError(f"{place}: is silent, all samples are the same; record it anew or remove its row")
    return samples


def resampled_length(samples: int, rate: int, wanted: int) -> int:
    """Number of samples after resampling from `rate` to `wanted`."""
    return -(-samples * wanted // rate)


def resample(samples: Samples, rate: int, wanted: int) -> Samples:
    """Resamples with a Kaiser-windowed sinc (polyphase), which removes frequencies above the new limit."""
    common = math.gcd(rate, wanted)
    up, down = wanted // common, rate // common
    if up == down:
        return samples
    filters = _filters(up, down)
    half = filters.shape[1] // 2
    windows = sliding_window_view(np.pad(samples, (half - 1, half)), 2 * half)
    resampled = np.empty(resampled_length(len(samples), rate, wanted), np.float32)
    for number in range(min(up, len(resampled))):  # every up-th output sample has the same phase
        first, phase = divmod(number * down, up)
        part = resampled[number::up]
        for start in range(0, len(part), BLOCK):
            stop = min(start + BLOCK, len(part))
            part[start:stop] = (
                windows[first + start * down : first + stop * down : down][: stop - start] @ filters[phase]
            )
    return resampled


@lru_cache(maxsize=128)
def _filters(up: int, down: int) -> Samples:
    """Filter weights (phases, taps): for each phase the weights of the surrounding samples, which sum to 1."""
    cutoff = ROLLOFF * min(1.0, up / down)
    half = math.ceil(ZEROS / cutoff)
    distance = np.arange(1 - half, half + 1) - np.arange(up)[:, None] / up
    window = np.i0(BETA * np.sqrt(np.clip(1 - (distance / half) ** 2, 0, None))) / np.i0(BETA)
    filters = np.sinc(cutoff * distance) * window
    weights: Samples = (filters / filters.sum(1, keepdims=True)).astype(np.float32)
    return weights
