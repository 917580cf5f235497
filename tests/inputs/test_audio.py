"""Sounds as an input: rows, caches, batches, and the changes that a training draws."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.conftest import input_of
from tests.images import write_files, write_zip
from tests.sounds import RATE, READ, encoded, tone, write_speech
from twofold.data.cache import Cache
from twofold.data.columns import TooLongError
from twofold.data.files import Row
from twofold.data.named_files import FileError
from twofold.errors import TwofoldError
from twofold.inputs import BatchSizes
from twofold.inputs.audio import AudioInput


def hearing(**settings: Any) -> AudioInput:
    built = input_of("audio", **{**READ, **settings}).build(None)
    assert isinstance(built, AudioInput)
    return built


def frames_of(source: AudioInput, *given: Any) -> list[torch.Tensor]:
    batch = source.batch(source.items([source.row(value, "input 1") for value in given]))
    return [frames[mask] for frames, mask in zip(batch.frames, batch.mask, strict=True)]


def draws(*seeds: int) -> list[np.random.Generator]:
    return [np.random.default_rng(seed) for seed in seeds]


def cached(source: AudioInput, table: Path) -> Cache:
    where = str(table)
    return Cache.of(where, source.columns(), read=source.config.rows, content=source.config.content(where))


def test_a_path_an_array_and_an_array_with_its_rate_are_heard_alike(tmp_path: Path) -> None:
    sound = tone(300, 1500)
    path = write_files(tmp_path, {"a.wav": encoded(sound, subtype="FLOAT")}) / "a.wav"
    source = hearing()
    right = source.config.spectrogram(sound)
    for given in (
        path,
        str(path),
        sound,
        (sound, RATE),
        sound.tolist(),
        np.stack([sound, sound], 1),
        sound.astype(float),
    ):
        torch.testing.assert_close(frames_of(source, given)[0], right, atol=1e-5, rtol=0)
    fine = tone(300, 1500, rate=48_000)
    torch.testing.assert_close(frames_of(source, (fine, 48_000))[0][2:-2], right[2:-2], atol=0.1, rtol=0)


def test_one_sound_with_its_rate_is_one_input_and_a_list_is_several() -> None:
    sound = tone(300)
    assert hearing().several((sound, 8000)) == [(sound, 8000)]
    assert len(hearing().several([(sound, 8000), sound])) == 2


def test_sounds_of_a_batch_are_padded_to_the_longest() -> None:
    source = hearing()
    batch = source.batch(source.items([source.row(tone(300, seconds=s), "x") for s in (0.2, 0.5, 0.1)]))
    assert batch.mask.sum(1).tolist() == [21, 51, 11]
    assert batch.frames.shape == (3, 51, 12)
    assert not batch.frames[~batch.mask].any()


def test_how_many_frames_are_read_is_known_before_a_sound_is(tmp_path: Path) -> None:
    source = hearing(max_seconds=0.3, too_long="cut")
    sounds = [(tone(300, seconds=s, rate=rate), rate) for s in (0.1, 0.29, 0.31, 2.0) for rate in (4000, 44_100, 1003)]
    with pytest.warns(UserWarning, match=r"^6 sounds are longer than input.max_seconds and cut$"):
        items = source.items([source.row(sound, "x") for sound in sounds])
    assert [item.frames for item in items] == [
        len(frames) for frames in (source.batch([item]).frames[0] for item in items)
    ]


def test_what_is_cached_is_what_rows_give(tmp_path: Path) -> None:
    table, source = write_speech(tmp_path, 5, words=3), hearing()
    cache = cached(source, table)
    items = source.items(list(source.config.rows(str(table))))
    assert [source.cached(cache, row) for row in range(5)] == items
    assert source.lengths(cache).tolist() == [source.length(item) for item in items]


def test_batches_hold_sounds_of_like_length_or_a_number_of_rows(tmp_path: Path) -> None:
    table, source = write_speech(tmp_path, 12, words=4), hearing()
    cache = cached(source, table)
    lengths = source.lengths(cache)
    plan = source.plan(cache, np.arange(12), [], BatchSizes(300, None, 1), 0)
    batches = [plan.rows(batch) for batch in range(len(plan))]
    assert sorted(np.concatenate(batches)) == list(range(12))
    assert all(len(rows) * lengths[rows].max() <= 300 for rows in batches)
    assert len(source.plan(cache, np.arange(12), [], BatchSizes(0, 5, 1), 0)) == 3


def test_other_settings_of_reading_make_another_cache_and_those_of_training_do_not() -> None:
    plain = hearing().settings()
    assert hearing(augment={"noise": [5, 20]}).settings() == plain
    for settings in ({"max_seconds": 3.0}, {"too_long": "cut"}, {"sample_rate": 8000}, {"broken": "skip"}):
        assert hearing(**settings).settings() != plain


def test_a_training_hears_a_row_differently_each_time_and_the_same_by_the_same_draw() -> None:
    source = hearing(augment={"speed": [0.8, 1.2], "noise": [5, 20], "time_masks": 1, "frequency_masks": 1})
    items = source.items([source.row(tone(300, 1500), "x")] * 3)
    batch, again = (source.batch(items, draws(1, 1, 2)) for _ in range(2))
    assert torch.equal(batch.frames, again.frames)
    first, same, other = (frames[mask] for frames, mask in zip(batch.frames, batch.mask, strict=True))
    assert torch.equal(first, same)
    assert first.shape != other.shape or not torch.allclose(first, other)
    assert torch.equal(source.batch(items).frames[0], source.config.spectrogram(tone(300, 1500)))


def test_a_sound_that_is_too_long_is_refused_or_cut(tmp_path: Path) -> None:
    path = write_files(tmp_path, {"a.wav": encoded(tone(300, 1500, seconds=2.0), subtype="FLOAT")}) / "a.wav"
    with pytest.raises(TooLongError) as caught:
        frames_of(hearing(max_seconds=1.5), path)
    said = "2.0 seconds are longer than input.max_seconds=1.5; shorten it, raise that, or set input.too_long=cut"
    assert str(caught.value) == f"{path}: {said}"
    with pytest.warns(UserWarning, match=r"^a sound is longer than input.max_seconds and cut$"):
        (frames,) = frames_of(hearing(max_seconds=1.5, too_long="cut"), path)
    torch.testing.assert_close(frames, hearing().config.spectrogram(tone(300, 1500, seconds=2.0)[:6000]))


def test_rows_that_cannot_be_used_are_refused_or_left_out(tmp_path: Path) -> None:
    table = write_speech(tmp_path, 4)
    write_files(tmp_path, {"001.wav": encoded(0 * tone(300))})
    with pytest.raises(FileError, match=r"001\.wav: is silent"):
        cached(hearing(), table)
    source = hearing(broken="skip")
    with pytest.warns(UserWarning, match=r"left out: .*001\.wav: is silent"):
        cache = cached(source, table)
    assert (source.lengths(cache) > 0).tolist() == [True, False, True, True]


def test_a_row_without_a_sound_is_named() -> None:
    with pytest.raises(FileError, match=r"^row 3: 'audio' names no sound; this row has said$"):
        hearing().value(Row("row 3", {"said": "low"}))


def test_a_changed_sound_makes_another_content(tmp_path: Path) -> None:
    table, config = write_speech(tmp_path / "f", 3), hearing().config
    first = config.content(str(table))
    assert config.content(str(table)) == first
    write_files(tmp_path / "f", {"001.wav": encoded(tone(301))})
    assert config.content(str(table)) != first
    archive = write_zip(tmp_path / "z.zip", {"a.wav": encoded(tone(300))})
    before = config.content(str(archive))
    write_zip(archive, {"a.wav": encoded(tone(301))})
    assert config.content(str(archive)) != before


@pytest.mark.parametrize("seconds", [0.0, -1.0, 4000.0])
def test_a_limit_that_makes_no_sense_is_refused(seconds: float) -> None:
    with pytest.raises(TwofoldError, match=r"max_seconds must be from 0\.01 to 3600"):
        input_of("audio", max_seconds=seconds)
