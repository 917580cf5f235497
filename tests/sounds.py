"""Sounds made up on the spot: tones that rise or fall, in files of many formats, and tasks about them."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import soundfile  # type: ignore[import-untyped]

from tests.images import write_files
from twofold.data.audio import Samples

RATE = 4000
"""Samples a second of the made-up sounds."""
WORDS = {"low": (300, 300), "high": (1200, 1200), "rising": (300, 1200), "falling": (1200, 300)}
"""The frequencies that a word goes from and to."""
READ = {"sample_rate": RATE, "mels": 12, "window": 0.032}
"""Input settings of small models."""


def tone(
    first: float, last: float | None = None, seconds: float = 0.15, rate: int = RATE, phase: float = 0.0
) -> Samples:
    """A sine whose frequency goes evenly from one to another, fading in and out."""
    time = np.arange(round(seconds * rate)) / rate
    rise = ((first if last is None else last) - first) / seconds
    sound = np.sin(2 * np.pi * (first * time + rise * time**2 / 2) + phase)
    return (0.5 * sound * np.hanning(len(time) + 2)[1:-1] ** 0.2).astype(np.float32)


def spoken(words: str, seed: int) -> Samples:
    """Words as tones, each a little higher or longer than another time, with some noise."""
    draw = np.random.default_rng(seed)
    sounds = []
    for word in words.split():
        first, last = (frequency * draw.uniform(0.9, 1.1) for frequency in WORDS[word])
        sounds += [tone(first, last, draw.uniform(0.12, 0.2), phase=draw.uniform(0, 6)), np.zeros(200, np.float32)]
    sound = np.concatenate(sounds)
    return (sound + 0.01 * draw.standard_normal(len(sound))).astype(np.float32)


def encoded(samples: Any, rate: int = RATE, kind: str = "WAV", subtype: str | None = None) -> bytes:
    """A sound as a file."""
    content = io.BytesIO()
    soundfile.write(content, np.asarray(samples), rate, format=kind, subtype=subtype)
    return content.getvalue()


def bad_files() -> dict[str, tuple[bytes, str]]:
    """Files that hold no usable sound, each with its error."""
    good, sound = encoded(tone(500), kind="FLAC"), tone(500)
    broken, endless = (np.where(np.arange(len(sound)) == 7, value, sound) for value in (np.nan, np.inf))
    return {
        "text": (b"hello, this is no sound", "not a sound that can be read"),
        "nothing": (b"", "not a sound that can be read"),
        "no samples": (encoded(sound[:0]), "holds no samples; record it anew or remove its row"),
        "silence": (encoded(0 * sound), "is silent, all samples are the same; record it anew"),
        "constant": (encoded(0 * sound + 0.25), "is silent, all samples are the same; record it anew"),
        "cut off": (good[: len(good) // 2], ""),
        "damaged": (good[:60] + bytes(range(256)) * 2 + good[572:], ""),
        "nan": (encoded(broken, subtype="FLOAT"), "holds samples that are not numbers"),
        "infinite": (encoded(endless, subtype="FLOAT"), "holds samples that are not numbers"),
        "long": (encoded(np.tile(sound, 100)), "15.0 seconds are longer than input.max_seconds=5; shorten it, raise"),
        "slow": (encoded(sound, 500), "500 samples a second; resample it to between 1,000 and 768,000"),
    }


def speech(rows: int, words: int, first: int = 0) -> dict[str, str]:
    """Names of sounds with what they say, `words` words at most."""
    texts = {}
    for number in range(first, first + rows):
        draw = np.random.default_rng([number, 1])
        texts[f"{number:03}.wav"] = " ".join(draw.choice(list(WORDS), int(draw.integers(1, words + 1))))
    return texts


def speech_files(texts: Mapping[str, str]) -> dict[str, bytes]:
    """The sounds as files."""
    return {name: encoded(spoken(text, int(name[:3]))) for name, text in texts.items()}


def write_speech(folder: Path, rows: int, words: int = 1, first: int = 0) -> Path:
    """Sounds in a folder, and beside them a table that names what they say."""
    texts = speech(rows, words, first)
    write_files(folder, speech_files(texts))
    table = folder / "rows.tsv"
    table.write_text("\n".join(["audio\tsaid", *(f"{name}\t{text}" for name, text in texts.items())]) + "\n")
    return table


def labeling(train: str | Path, /, **changes: Any) -> dict[str, Any]:
    """A recipe of a second or two that tells single words apart."""
    return _recipe(train, {"kind": "label", "dropout": 0.0}, {"kind": "label", "column": "said"}, changes)


def transcribing(train: str | Path, writes: str = "attention_rnn", /, **changes: Any) -> dict[str, Any]:
    """A recipe that writes what is said."""
    small = {"transformer": {"layers": 1, "heads": 2}}.get(writes, {"embedding": 8})
    decoder = {"kind": writes, "width": 16, "dropout": 0.0, **small}
    output = {"kind": "text", "column": "said", "max_tokens": 12, "tokenizer": {"size": 40}}
    return _recipe(train, decoder, output, changes)


def _recipe(train: str | Path, decoder: Any, output: Any, changes: Mapping[str, Any]) -> dict[str, Any]:
    content: dict[str, Any] = {
        "data": {"train": str(train)},
        "input": {"kind": "audio", "max_seconds": 5, **READ},
        "encoder": {"kind": "spectrogram", "channels": [8, 8], "width": 16, "layers": 1, "heads": 2, "dropout": 0.0},
        "decoder": decoder,
        "output": output,
        "train": {"max_steps": 3, "batch_rows": 4, "warmup": 2, "log_every": 1, "precision": "float32"},
    }
    for section, values in changes.items():
        content[section] = {**content.get(section, {}), **values} if isinstance(values, dict) else values
    return content
