"""Turns texts, images and sounds into the arrays that the graphs beside this file take, without twofold.

It needs numpy, and `tokenizers` for texts or Pillow for images. `about` is `graphs.NAME.input` in config.json.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

About = dict[str, Any]
Arrays = dict[str, Any]
HERE = Path(__file__).parent


def read(about: About, values: Sequence[Any], folder: Path = HERE) -> Arrays:
    """Returns arrays by name; `folder` holds the tokenizer."""
    reader: Callable[[About, Sequence[Any], Path], Arrays] = globals()[about["reader"]]
    return reader(about, values, folder)


def texts(about: About, values: Sequence[str | list[str]], folder: Path) -> Arrays:
    """Token ids of texts, or of dialogues as lists of turns."""
    encode = _encoder(about, folder)
    rows = [about["before"] + _ids(about, encode, value) + about["after"] for value in values]
    return _padded([row or [about["alone"]] for row in rows], about["pad"])


def joined(about: About, values: Sequence[tuple[Any, Any]], folder: Path) -> Arrays:
    """Token ids of pairs of texts that are read as one; the longer text is cut first."""
    encode, rows, starts, room = _encoder(about, folder), [], [], about["room"]
    for pair in values:
        first, second = (_ids(about[side], encode, text) for side, text in zip(("first", "second"), pair, strict=True))
        kept = min(len(first), max(room - len(second), (room + 1) // 2))
        first = first[len(first) - kept :] if about["first"]["keep"] == "tail" else first[:kept]
        head = about["before"] + first + about["between"]
        starts.append(len(head))
        rows.append(head + second[: room - kept] + about["after"])
    arrays = _padded(rows, about["pad"])
    places = np.arange(arrays["tokens"].shape[1])
    return {**arrays, "segments": ((places >= np.array(starts)[:, None]) & arrays["mask"]).astype(np.int64)}


def apart(about: About, values: Sequence[tuple[Any, Any]], folder: Path) -> Arrays:
    """Token ids of pairs of texts that are read one by one."""
    encode = _encoder(about, folder)
    arrays: Arrays = {}
    for number, side in enumerate(("first", "second")):
        rows = [about["before"] + _ids(about[side], encode, pair[number]) + about["after"] for pair in values]
        arrays |= {f"{side}_{name}": array for name, array in _padded(rows, about["pad"]).items()}
    return arrays


def words(about: About, values: Sequence[list[str]], folder: Path) -> Arrays:
    """Token ids of sentences as lists of words, and where each word begins; a long one ends with the last that fits."""
    encode, rows, starts = _encoder(about, folder), [], []
    for sentence in values:
        spaced = [f" {word}" if number else word for number, word in enumerate(sentence)]
        pieces = [encode(word) or [about["unknown"]] for word in spaced]
        pieces = [word if len(word) <= about["room"] else word[: about["word_room"]] for word in pieces]
        ends = np.cumsum([len(word) for word in pieces])
        kept = int(np.searchsorted(ends, about["room"], side="right"))
        starts.append([len(about["before"]) + int(end) for end in [0, *ends[: kept - 1]]])
        rows.append(about["before"] + [token for word in pieces[:kept] for token in word] + about["after"])
    return {**_padded(rows, about["pad"]), "starts": _padded(starts, -1)["tokens"]}


def images(about: About, values: Sequence[Any], folder: Path) -> Arrays:
    """Pixels of images of one size: Pillow images, file names, or arrays (height, width, 3)."""
    from PIL import Image

    rows = []
    for value in values:
        given = Image.fromarray(value) if isinstance(value, np.ndarray) else value
        image = (given if isinstance(given, Image.Image) else Image.open(given)).convert("RGB")
        if about["size"] and (image.height, image.width) != tuple(about["size"]):
            height, width = about["size"]
            box = (0.0, 0.0, float(image.width), float(image.height))
            if about["fit"] == "crop":
                scale = min(image.height / height, image.width / width)
                kept = min(height * scale, image.height), min(width * scale, image.width)
                top, left = (image.height - kept[0]) / 2, (image.width - kept[1]) / 2
                box = (left, top, left + kept[1], top + kept[0])
            image = image.resize((width, height), Image.Resampling.BILINEAR, box, about["gap"])
        rows.append(np.asarray(image, np.float32).transpose(2, 0, 1))
    mean, deviation = (np.array(about[name], np.float32)[:, None, None] * 255 for name in ("mean", "deviation"))
    return {"pixels": ((np.stack(rows) - mean) / deviation).astype(np.float32)}


def sounds(about: About, values: Sequence[Any], folder: Path) -> Arrays:
    """Log-mel spectrograms of sounds as samples, (samples,), at the sample rate `rate`."""
    points, step, width = about["points"], about["step"], about["width"]
    window = 0.5 - 0.5 * np.cos(2 * math.pi * np.arange(width) / width)
    window = np.pad(window, ((points - width) // 2, points - width - (points - width) // 2))
    filters, rows = _mel_filters(about["rate"], points, about["mels"]), []
    for value in values:
        samples = np.asarray(value, np.float32) - np.asarray(value, np.float32).mean()
        samples = np.pad(samples / max(np.abs(samples).max(), 1e-30), points // 2)
        frames = np.lib.stride_tricks.sliding_window_view(samples, points)[::step] * window
        powers = np.log(np.maximum(np.abs(np.fft.rfft(frames)) ** 2 @ filters, 1e-30))
        rows.append(np.maximum((powers - powers.max()) * (2 / about["range"]) + 1, -1))
    longest = max(map(len, rows))
    frames = np.stack([np.pad(row, ((0, longest - len(row)), (0, 0))) for row in rows]).astype(np.float32)
    return {"frames": frames, "mask": np.arange(longest) < np.array([len(row) for row in rows])[:, None]}


def _mel_filters(rate: int, points: int, mels: int) -> Any:
    """Triangles of equal width on the mel scale from 20 Hz to half the sample rate, (frequencies, mels)."""
    frequencies, highest = np.linspace(0, rate / 2, points // 2 + 1), 2595 * math.log10(1 + rate / 2 / 700)
    edges = 700 * (10 ** (np.linspace(2595 * math.log10(1 + 20 / 700), highest, mels + 2) / 2595) - 1)
    rising = (frequencies[:, None] - edges[:-2]) / (edges[1:-1] - edges[:-2])
    falling = (edges[2:] - frequencies[:, None]) / (edges[2:] - edges[1:-1])
    return np.minimum(rising, falling).clip(0)


def _encoder(about: About, folder: Path) -> Callable[[str], list[int]]:
    """Function that tokenizes a text, in which the names of special tokens are ordinary text."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / about["tokenizer"]))
    tokenizer.encode_special_tokens = True
    tokenizer.no_truncation()
    return lambda text: list(tokenizer.encode(text, add_special_tokens=False).ids)


def _ids(about: About, encode: Callable[[str], list[int]], value: str | list[str]) -> list[int]:
    """Token ids of a text, or of the turns of a dialogue, within the limit."""
    turns = [value] if isinstance(value, str) else list(value)
    ids = encode(about["prompt"] + turns[0])
    for turn in turns[1:]:
        ids += about["separator"] + encode(turn)
    room, keep = about["room"], about["keep"]
    if len(ids) <= room:
        return ids
    prompt = len(encode(about["prompt"].rstrip())) if about["prompt"] else 0
    head = room if keep == "head" or (keep == "turns" and len(turns) < 2) else prompt
    return ids[:head] + ids[len(ids) - room + head :]


def _padded(rows: list[list[int]], pad: int) -> Arrays:
    """Rows as one array, padded to the longest, and the padding mask."""
    lengths = np.array([len(row) for row in rows])
    mask = np.arange(lengths.max()) < lengths[:, None]
    tokens = np.full(mask.shape, pad, np.int64)
    tokens[mask] = np.concatenate([np.asarray(row, np.int64) for row in rows])
    return {"tokens": tokens, "mask": mask}
