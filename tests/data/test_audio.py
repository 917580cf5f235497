"""Sounds are decoded within limits and resampled; whatever cannot be used is named in one line."""

from __future__ import annotations

import io
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile  # type: ignore[import-untyped]
from scipy.signal import resample_poly  # type: ignore[import-untyped]

from tests.images import write_files, write_zip
from tests.sounds import RATE, bad_files, encoded, tone
from twofold.data.audio import GivenSound, Samples, SoundFile, as_sound, read_sounds, resample
from twofold.data.named_files import FileError
from twofold.errors import TwofoldError


def saved(folder: Path, content: bytes, name: str = "a.wav") -> SoundFile:
    return SoundFile.at(write_files(folder, {name: content}) / name)


def sines(frequencies: tuple[float, ...], times: Any) -> Any:
    return sum(np.sin(2 * np.pi * frequency * times + frequency) for frequency in frequencies)


@pytest.mark.parametrize(
    ("kind", "subtype", "off"),
    [
        ("WAV", "PCM_16", 1e-4),
        ("WAV", "FLOAT", 1e-7),
        ("WAV", "PCM_U8", 1e-2),
        ("FLAC", "PCM_16", 1e-4),
        ("OGG", "VORBIS", 0.1),
        ("MP3", None, 0.1),
    ],
)
def test_a_sound_of_each_format_is_read_as_it_was_written(
    tmp_path: Path, kind: str, subtype: str | None, off: float
) -> None:
    right = tone(440, seconds=1, rate=16_000)
    # The content says the format, whatever the name is.
    samples = saved(tmp_path, encoded(right, 16_000, kind, subtype)).read(30, 16_000)
    assert samples.dtype == np.float32
    assert len(samples) == len(right)
    assert np.abs(samples - right).max() < off


def test_the_head_of_a_file_says_how_long_it_is(tmp_path: Path) -> None:
    assert saved(tmp_path, encoded(tone(440, seconds=0.5), RATE)).header() == (RATE, RATE // 2)


def test_channels_are_averaged(tmp_path: Path) -> None:
    left, right = tone(300), tone(900)
    sound = saved(tmp_path, encoded(np.stack([left, right], 1), subtype="FLOAT"))
    assert np.allclose(sound.read(30, RATE), (left + right) / 2, atol=1e-7)
    given = GivenSound(np.stack([left, right], 1), RATE)
    assert np.allclose(given.read(30, RATE), (left + right) / 2, atol=1e-7)


@pytest.mark.parametrize(
    "rates", [(96_000, 16_000), (44_100, 16_000), (8000, 16_000), (48_000, 44_100), (85, 100)], ids=str
)
def test_resampled_sines_are_the_sines_at_the_other_rate(rates: tuple[int, int]) -> None:
    rate, wanted = rates
    below = (0.03 * min(rates), 0.11 * min(rates), 0.4 * min(rates))
    samples = sines(below, np.arange(9000) / rate).astype(np.float32)
    resampled = resample(samples, rate, wanted)
    assert len(resampled) == -(-9000 * wanted // rate)
    right = sines(below, np.arange(len(resampled)) / wanted)
    inner = slice(len(resampled) // 10, -len(resampled) // 10)  # before and after the sound there is silence
    assert np.abs(resampled - right)[inner].max() < 1e-3


@pytest.mark.parametrize("rates", [(96_000, 16_000), (44_100, 16_000), (8000, 16_000)], ids=str)
def test_a_resampled_sound_is_that_of_scipy(rates: tuple[int, int]) -> None:
    rate, wanted = rates
    draw = np.random.default_rng(0)
    spectrum = np.fft.rfft(draw.standard_normal(8820))
    spectrum[int(0.35 * min(1.0, wanted / rate) * 8820) :] = 0  # what both filters let through whole
    samples = np.fft.irfft(spectrum, 8820).astype(np.float32)
    common = np.gcd(rate, wanted)
    right = resample_poly(samples.astype(float), wanted // common, rate // common, window=("kaiser", 8.0))
    resampled = resample(samples, rate, wanted)
    inner = slice(100, -100)
    assert len(resampled) == len(right)
    assert np.abs(resampled - right)[inner].max() < 0.01 * np.abs(right).max()


def test_what_the_lower_rate_cannot_hold_is_gone() -> None:
    times = np.arange(48_000) / 48_000
    high = resample(sines((9000.0, 20_000.0), times).astype(np.float32), 48_000, 16_000)
    assert np.abs(high[500:-500]).max() < 1e-3


def test_a_sound_at_its_own_rate_stays_as_it_is() -> None:
    samples = tone(440)
    assert resample(samples, RATE, RATE) is samples
    assert np.allclose(resample(np.ones(500, np.float32), 3, 2)[50:-50], 1, atol=1e-6)


@pytest.mark.parametrize("name", [name for name in bad_files() if name != "long"])
def test_a_sound_that_cannot_be_used_is_one_line_that_names_it(tmp_path: Path, name: str) -> None:
    content, said = bad_files()[name]
    with pytest.raises(FileError) as caught:
        saved(tmp_path, content).read(30, RATE)
    line = str(caught.value)
    assert line.startswith(f"{tmp_path}/a.wav: {said}")
    assert "\n" not in line


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            np.zeros((2, 3, 4)),
            "not real numbers of (samples,) or (samples, channels), or a pair of them and their rate, but",
        ),
        (np.array(["a"]), "not real numbers of"),
        ([1, None], "not real numbers of"),
        (7.0, "not real numbers of"),
        (b"RIFF", "not real numbers of"),
        ((8000, np.ones(9)), "not real numbers of"),
        ([[0.1], [0.2, 0.3]], "not real numbers of"),
        ([0.1, 1e300], "holds samples that are not numbers"),
        (np.zeros(0), "holds no samples"),
        (np.zeros(99), "is silent"),
        (np.array([0.1, np.nan]), "holds samples that are not numbers"),
        (np.array([0.1, -np.inf]), "holds samples that are not numbers"),
        (np.zeros((9, 65)), "65 channels; mix it down"),
        (np.zeros((9, 0)), "0 channels; mix it down"),
        ((np.ones(9), 10), "10 samples a second; resample it"),
        ((np.ones(9), -8000), "-8,000 samples a second; resample it"),
    ],
)
def test_an_array_that_is_no_sound_is_one_line(given: Any, said: str) -> None:
    with pytest.raises(FileError) as caught:
        as_sound(given, "input 2", RATE).read(30, RATE)
    assert str(caught.value).startswith(f"input 2: {said}")


def test_an_array_is_at_the_models_rate_or_brings_its_own() -> None:
    sound = tone(440, seconds=0.5, rate=8000)
    assert as_sound(sound, "x", 8000).header() == (8000, 4000)
    assert as_sound((sound, 16_000), "x", 8000).header() == (16_000, 4000)
    whole = as_sound((np.round(30_000 * sound).astype(np.int16), 8000), "x", 4000).read(30, 8000)
    assert np.abs(whole / 30_000 - sound).max() < 1e-4


def test_only_as_much_as_is_wanted_is_decoded_however_long_a_file_is(tmp_path: Path) -> None:
    hour = np.zeros(3600 * 1000, np.int16)
    hour[::7] = 1000
    sound = saved(tmp_path, encoded(hour, 1000, "FLAC"), "hour.flac")
    assert sound.header() == (1000, 3_600_000)
    tracemalloc.start()
    try:
        samples = sound.read(20, 1000)
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(samples) == 20_000
    assert most < 5 << 20  # the whole would take 14 MB, and its file is read as well


def test_a_table_names_sounds_in_a_folder_or_an_archive_with_or_without_endings(tmp_path: Path) -> None:
    files = {"in/a.wav": encoded(tone(300)), "in/b.flac": encoded(tone(900), kind="FLAC")}
    folder, archive = write_files(tmp_path / "f", files), write_zip(tmp_path / "z.zip", files)
    table = tmp_path / "rows.tsv"
    table.write_text("audio\tsaid\na.wav\tlow\nb\thigh\n")
    for place in (folder / "in", archive / "in"):
        rows = list(read_sounds(str(table), str(place), "audio"))
        assert [row.values["said"] for row in rows] == ["low", "high"]
        assert [str(row.values["audio"]) for row in rows] == [f"{place}/a.wav", f"{place}/b.flac"]
        assert np.allclose(rows[1].values["audio"].read(30, RATE), tone(900), atol=1e-4)
        assert [row.values.keys() for row in read_sounds(str(place), None, "audio")] == [{"audio"}] * 2
    with pytest.raises(TwofoldError, match=r"empty: holds no sounds \(\.wav, \.flac, \.ogg, \.mp3\)"):
        list(read_sounds(str(write_files(tmp_path / "empty", {"a.txt": b""})), None, "audio"))


@pytest.mark.parametrize("name", ["../a.wav", "/etc/a.wav", "in/../../a.wav"])
def test_a_name_that_leads_outside_is_refused(tmp_path: Path, name: str) -> None:
    write_files(tmp_path, {"a.wav": encoded(tone(300))})
    archive = write_zip(tmp_path / "z.zip", {"in/b.wav": encoded(tone(300)), name: encoded(tone(300))})
    table = tmp_path / "rows.tsv"
    table.write_text(f"audio\n{name}\n")
    for place in (archive, write_files(tmp_path / "in", {"c.wav": b""})):
        (row,) = read_sounds(str(table), str(place), "audio")
        with pytest.raises(FileError, match="leads outside"):
            row.values["audio"].read(30, RATE)


def test_without_the_package_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sound = saved(tmp_path, encoded(tone(300)))
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(TwofoldError, match=r"^reading sounds needs `pip install 'twofold\[audio\]'`$"):
        sound.header()


def test_what_is_read_is_what_soundfile_reads(tmp_path: Path) -> None:
    content = encoded(np.stack([tone(300), tone(400)], 1), kind="FLAC")
    right: Samples = soundfile.read(io.BytesIO(content), dtype="float32")[0].mean(1)
    assert np.array_equal(saved(tmp_path, content).read(30, RATE), right)
