"""Fixtures that many tests share: small tokenizers, small models, and small files."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests import made
from twofold.config import structure
from twofold.data.tokenizer import TextTokenizer, TokenizerConfig
from twofold.decoders import DecoderConfig
from twofold.encoders import EncoderConfig
from twofold.inputs import InputConfig
from twofold.model import Model, ModelConfig, Task
from twofold.outputs import OutputConfig

# Digits are compared in float32, computed by torch unless a test says otherwise; fixtures of a session read this too.
os.environ["TWOFOLD_PRECISION"], os.environ["TWOFOLD_RUNTIME"] = "float32", "torch"

SMALL: dict[str, dict[str, Any]] = {
    "rnn": {"embedding": 8, "width": 12},
    "attention_rnn": {"embedding": 8, "width": 12},
    "transformer": {"width": 16, "layers": 2, "heads": 2},
    "text_convnet": {"embedding": 12, "channels": 8, "orders": [2, 3], "width": 10, "bottleneck": 16},
    "pretrained": {
        "architecture": {
            "model_type": "bert",
            "hidden_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": 16,
            "vocab_size": 100,
            "max_position_embeddings": 64,
        }
    },
    "convnet": {"widths": [8, 12, 16], "blocks": 1},
    "mobilenet": {"width_multiplier": 0.1, "top": 24},
    "spectrogram": {"channels": [4, 8], "width": 16, "layers": 1, "heads": 2},
    "vit": {"width": 16, "layers": 2, "heads": 2, "patch": 4},
    "poly": {"codes": 3},
    "cross": {"pooling": "mean"},
    "late": {"projection": 12},
    "tree": {"width": 16, "relation_width": 8},
}
"""Settings that make each kind of part small; an unknown one is tested with its own defaults."""
ELSEWHERE = {"timm": "needs a package and larger images: tests/encoders/test_timm.py"}
"""Parts that the contracts leave to tests of their own, and why."""


def part_params(names: Sequence[str]) -> list[Any]:
    """Kinds of parts to test with; one that is tested elsewhere is skipped, saying so."""
    return [pytest.param(name, id=name, marks=skipped_here(name)) for name in names]


def skipped_here(kind: str) -> list[pytest.MarkDecorator]:
    return [pytest.mark.skip(reason=ELSEWHERE[kind])] if kind in ELSEWHERE else []


CLASSES = ("ground", "sky", "tree")
"""Classes in the masks of small images."""
VOID = 9
"""The number of their pixels that do not count."""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or leaves anything in the user's cache."""
    monkeypatch.setenv("TWOFOLD_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="session")
def tokenizer() -> TextTokenizer:
    """Knows the words of the made-up tasks, English and Korean."""
    pairs = made.numbers(300, seed=1) + made.reverse(100, seed=1)
    texts = [text for pair in pairs for text in pair.values()]
    return TextTokenizer.train(texts, TokenizerConfig(size=100))


def encoder(kind: str, **settings: Any) -> EncoderConfig:
    """A small encoder's settings."""
    return structure({"kind": kind, **SMALL.get(kind, {}), **settings}, EncoderConfig)


def decoder(kind: str, **settings: Any) -> DecoderConfig:
    """A small decoder's settings."""
    return structure({"kind": kind, **SMALL.get(kind, {}), **settings}, DecoderConfig)


def input_of(kind: str, **settings: Any) -> InputConfig:
    """An input's settings."""
    return structure({"kind": kind, **settings}, InputConfig)


def output_of(kind: str, **settings: Any) -> OutputConfig:
    """An output's settings, with names and columns of small models unless they are given."""
    return structure({"kind": kind, **OUTPUTS.get(kind, {}), **settings}, OutputConfig)


OUTPUTS: dict[str, dict[str, Any]] = {
    "text": {"column": "target", "max_tokens": 30},
    "captions": {"column": "captions", "max_tokens": 30},
    "label": {"column": "label", "names": ["few", "many"]},
    "labels": {"column": "label", "names": ["few", "many"]},
    "number": {"column": "label", "mean": 0.0, "deviation": 1.0},
    "tags": {"column": "tags", "names": ["B-N", "I-N", "O"]},
    "tree": {"column": ["heads", "relations"], "names": ["of", "root"]},
    "mask": {"column": "mask", "classes": list(CLASSES), "ignore": VOID},
}
"""Settings of the outputs of small models."""


def tasks_of(writes: Sequence[DecoderConfig], kinds: Mapping[str, str], settings: Mapping[str, Any]) -> dict[str, Task]:
    """Decoders with their outputs, called main, main1, ...; `kinds` puts one kind of output in the place of another."""
    tasks = {}
    for number, part in enumerate(writes):
        tasks[f"main{number or ''}"] = Task(part, output_of(kinds.get(part.output, part.output), **settings))
    return tasks


def small_model(
    tokenizer: TextTokenizer,
    reads: EncoderConfig,
    *writes: DecoderConfig,
    seed: int = 0,
    input: Mapping[str, Any] | None = None,
    output: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Model:
    """A model with random weights that reads the column `source`; several decoders are called main, main1, ..."""
    torch.manual_seed(seed)
    tasks = tasks_of(writes, {}, output or {})
    kind = next((task.output.input for task in tasks.values() if task.output.input), "text")
    given = {"kind": kind, "column": "source", "max_tokens": 30, **(input or {})}
    config = ModelConfig(structure(given, InputConfig), reads, tasks, **settings)
    return Model(config, dict.fromkeys(config.tokenizers(), tokenizer))


def small_image_model(
    tokenizer: TextTokenizer,
    reads: EncoderConfig,
    *writes: DecoderConfig,
    seed: int = 0,
    input: Mapping[str, Any] | None = None,
    output: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Model:
    """Recipe of images: texts are written after the column `captions`, masks after `mask`."""
    torch.manual_seed(seed)
    tasks = tasks_of(writes, {"text": "captions"}, output or {})
    config = ModelConfig(input_of("image", **(input or {})), reads, tasks, **settings)
    return Model(config, dict.fromkeys(config.tokenizers(), tokenizer))


def small_audio_model(
    tokenizer: TextTokenizer,
    reads: EncoderConfig,
    *writes: DecoderConfig,
    seed: int = 0,
    input: Mapping[str, Any] | None = None,
    output: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Model:
    """Recipe of sounds: texts are written after the column `target`."""
    torch.manual_seed(seed)
    tasks = tasks_of(writes, {}, output or {})
    given = {"sample_rate": 4000, "mels": 12, "window": 0.032, **(input or {})}
    config = ModelConfig(input_of("audio", **given), reads, tasks, **settings)
    return Model(config, dict.fromkeys(config.tokenizers(), tokenizer))


def some_sound(samples: int = 900, seed: int = 0) -> NDArray[np.float32]:
    """(samples,) of noise that swells and fades."""
    noise = np.random.default_rng(seed).standard_normal(samples)
    return (noise * np.sin(np.linspace(0.1, 3, samples))).astype(np.float32)


def some_image(height: int = 10, width: int = 13, seed: int = 0) -> NDArray[np.uint8]:
    """(height, width, 3) of random colors."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def some_mask(height: int = 10, width: int = 13, seed: int = 0) -> NDArray[np.uint8]:
    """(height, width) of random classes, some of which do not count."""
    return np.random.default_rng([seed, 1]).choice(np.array([0, 1, 2, VOID], np.uint8), (height, width))


def write_jsonl(path: Path, rows: Sequence[Mapping[str, Any]]) -> str:
    """Write rows as jsonl and return the path as a text."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def small_recipe(rows: str, /, reads: str = "rnn", writes: str = "attention_rnn", **changes: Any) -> dict[str, Any]:
    """A recipe, as plain values, that trains in a second or two; changes are merged section by section."""
    content: dict[str, Any] = {
        "data": {"train": rows},
        "input": {"max_tokens": 30, "tokenizer": {"size": 90}},
        "output": {"max_tokens": 30},
        "encoder": {"kind": reads, **SMALL.get(reads, {})},
        "decoder": {"kind": writes, **SMALL.get(writes, {})},
        "train": {"max_steps": 4, "batch_tokens": 200, "warmup": 2, "log_every": 1},
    }
    for section, values in changes.items():
        content[section] = {**content.get(section, {}), **values} if isinstance(values, dict) else values
    return content


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Tiny models are faster with one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
