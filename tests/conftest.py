"""What many tests share: small tokenizers, small models, and small files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from twofold.config import DecoderPart, EncoderPart, structure
from twofold.data import made
from twofold.data.tokenizer import TextTokenizer, TokenizerConfig
from twofold.model import DecoderSlot, Model, ModelConfig

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
    "poly": {"codes": 3},
    "cross": {"reduction": "mean"},
}
"""Settings that make each kind of part small; an unknown one is tested with its own defaults."""


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


def encoder(kind: str, **settings: Any) -> EncoderPart:
    """A small encoder's settings."""
    return structure({"kind": kind, **SMALL.get(kind, {}), **settings}, EncoderPart)


def decoder(kind: str, **settings: Any) -> DecoderPart:
    """A small decoder's settings."""
    return structure({"kind": kind, **SMALL.get(kind, {}), **settings}, DecoderPart)


def small_model(
    tokenizer: TextTokenizer, reads: EncoderPart, *writes: DecoderPart, seed: int = 0, **settings: Any
) -> Model:
    """A model with random weights; several decoders are called main, main1, ..."""
    torch.manual_seed(seed)
    slots = {f"main{number or ''}": DecoderSlot(part, "target") for number, part in enumerate(writes)}
    limits: dict[str, Any] = {"max_source": 30, "max_target": 30}
    config = ModelConfig(encoder=reads, decoders=slots, source="source", **{**limits, **settings})
    return Model(config, dict.fromkeys(["source", *slots], tokenizer))


def write_jsonl(path: Path, rows: Sequence[Mapping[str, Any]]) -> str:
    """Write rows as jsonl and return the path as a text."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def small_recipe(rows: str, /, reads: str = "rnn", writes: str = "attention_rnn", **changes: Any) -> dict[str, Any]:
    """A recipe, as plain values, that trains in a second or two; changes are merged section by section."""
    content: dict[str, Any] = {
        "data": {"train": rows, "max_source": 30, "max_target": 30},
        "tokenizer": {"size": 90},
        "encoder": {"kind": reads, **SMALL.get(reads, {})},
        "decoder": {"kind": writes, **SMALL.get(writes, {})},
        "train": {"max_steps": 4, "batch_tokens": 200, "warmup": 2, "log_every": 1},
    }
    for section, values in changes.items():
        content[section] = {**content.get(section, {}), **values} if isinstance(values, dict) else values
    return content
