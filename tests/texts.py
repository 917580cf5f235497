"""Sentences that a small model must learn to read, and recipes for them, for tests of labels, tags and trees."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import torch

from tests.conftest import output_of, write_jsonl
from twofold.config import structure
from twofold.data.tokenizer import TextTokenizer
from twofold.decoders import DecoderConfig
from twofold.encoders import EncoderConfig
from twofold.inputs import InputConfig
from twofold.model import Model, ModelConfig, Task

P = TypeVar("P")

COLORS = ("red", "green", "blue")
FILL = ("the", "old", "boat", "was", "seen", "by", "many", "people", "at", "noon")
KINDS = {**dict.fromkeys(FILL[:5], "low"), **dict.fromkeys(FILL[5:], "high"), **dict.fromkeys(COLORS, "color")}
"""For each word what it is."""
READS: dict[str, Any] = {"kind": "transformer", "width": 32, "layers": 2, "heads": 2, "feed_forward": 64}
READS |= {"dropout": 0.0}
Row = dict[str, Any]
Make = Callable[[random.Random], Row]


def sentence(draw: random.Random, least: int = 3, most: int = 8) -> list[str]:
    return [draw.choice(FILL) for _ in range(draw.randint(least, most))]


def colored(draw: random.Random) -> Row:
    """A sentence that names a color, which is its label."""
    words, color = sentence(draw), draw.choice(COLORS)
    words.insert(draw.randint(0, len(words)), color)
    return {"text": " ".join(words), "label": color}


def colorful(draw: random.Random) -> Row:
    """A sentence that names any number of colors, all of which are its labels."""
    colors = draw.sample(COLORS, draw.randint(0, 3))
    words = [*sentence(draw), *colors]
    draw.shuffle(words)
    return {"text": " ".join(words), "label": sorted(colors)}


def overlapping(draw: random.Random) -> Row:
    """Two texts of two words, and how many of them they share."""
    words, shared = draw.sample(FILL[:6], 4), draw.randint(0, 2)
    other = [*words[:shared], *words[2 : 4 - shared]]
    draw.shuffle(other)
    return {"one": " ".join(words[:2]), "other": " ".join(other), "score": shared}


def tagged(draw: random.Random) -> Row:
    """Words with what each of them is."""
    words = [*sentence(draw), *draw.sample(COLORS, 1)]
    draw.shuffle(words)
    return {"words": words, "tags": [KINDS[word] for word in words]}


def chained(draw: random.Random) -> Row:
    """Each word hangs from the one before it, the first from the root, by a relation that tells what it is."""
    words = [*sentence(draw, 1, 7), *draw.sample(COLORS, 1)]
    draw.shuffle(words)
    relations = ["root", *(KINDS[word] for word in words[1:])]
    return {"words": words, "heads": list(range(len(words))), "relations": relations}


def repeated(draw: random.Random) -> Row:
    """Texts of one word each, which comes again and again, also in the reply."""
    word = draw.choice(FILL)
    return {"text": " ".join([word] * 6), "reply": " ".join([word] * 3)}


def rows_of(make: Make, rows: int, seed: int) -> list[Row]:
    draw = random.Random(seed)
    return [make(draw) for _ in range(rows)]


DATA = ("dev", "held_out", "held_out_share", "rows", "skip")
"""Settings of the section `data`."""


def recipe(rows: str | Path, /, given: dict[str, Any], writes: dict[str, Any], **train: Any) -> dict[str, Any]:
    """A recipe, as plain values, of a small Transformer that trains in a second or two.

    given: settings of the recipe, and of its section `data`
    """
    section = {name: value for name, value in given.items() if name in DATA}
    rest = {name: value for name, value in given.items() if name not in (*DATA, "input")}
    return {
        "data": {"train": str(rows), **section},
        "input": {"max_tokens": 24, "tokenizer": {"size": 80}, **given.get("input", {})},
        **rest,
        "encoder": dict(READS),
        **({"decoder": writes} if "kind" in writes else {"decoders": writes}),
        "train": {"batch_rows": 16, "learning_rate": 1e-2, "warmup": 10, "log_every": 1, "device": "cpu", **train},
    }


def write(folder: Path, make: Make, rows: int = 200, seed: int = 1, name: str = "rows") -> str:
    """A file of such rows."""
    folder.mkdir(exist_ok=True)
    return write_jsonl(folder / f"{name}.jsonl", rows_of(make, rows, seed))


def small_reader(
    tokenizer: TextTokenizer,
    reads: EncoderConfig,
    writes: DecoderConfig,
    output: Mapping[str, Any] | None = None,
    input: Mapping[str, Any] | None = None,
) -> Model:
    """A model with random weights, far from each other, that reads `text`; `output` has its kind and settings."""
    torch.manual_seed(0)
    kind = (output or {}).get("kind", writes.output)
    task = Task(writes, output_of(kind, **{name: value for name, value in (output or {}).items() if name != "kind"}))
    given = {"kind": task.output.input or "text", "column": "text", "max_tokens": 30, **(input or {})}
    config = ModelConfig(structure(given, InputConfig), reads, {"main": task})
    model = Model(config, dict.fromkeys(config.tokenizers(), tokenizer))
    with torch.no_grad():
        for value in model.decoders.parameters():
            value.add_(torch.randn_like(value), alpha=0.3)
    return model


def without_dropout(part: P) -> P:
    """Settings of a part without dropout, which gives the same result at each call."""
    still: P = dataclasses.replace(cast(Any, part), dropout=0.0) if hasattr(part, "dropout") else part
    return still
