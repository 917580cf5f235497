"""Tasks that a small ranker must be able to learn, and recipes for them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

from tests.conftest import write_jsonl

WORDS = 12
SMALL_ENCODER = {"kind": "transformer", "width": 32, "layers": 1, "heads": 2, "dropout": 0.0, "feed_forward": 64}


def pairs(rows: int, seed: int, words: int = WORDS) -> list[dict[str, str]]:
    """Two words to be answered by the two that belong to them: 'w7 w4' by 'r7 r4'; no context comes again."""
    draw = random.Random(seed)
    chosen = draw.sample([(one, two) for one in range(words) for two in range(words) if one != two], rows)
    return [{"context": f"w{one} w{two}", "response": f"r{one} r{two}"} for one, two in chosen]


def recipe(rows: str | Path, ranks: str = "bi", /, **changes: Any) -> dict[str, Any]:
    """A ranking recipe, as plain values, that trains in seconds; changes are merged section by section."""
    content: dict[str, Any] = {
        "data": {"train": str(rows)},
        "input": {"max_tokens": 12, "tokenizer": {"size": 90}},
        "output": {"candidate": {"max_tokens": 8}},
        "encoder": dict(SMALL_ENCODER),
        "decoder": {"kind": ranks, **({"codes": 4} if ranks == "poly" else {})},
        "train": {"max_steps": 4, "batch_rows": 16, "learning_rate": 3e-3, "log_every": 1},
    }
    for section, values in changes.items():
        content[section] = {**content.get(section, {}), **values} if isinstance(values, dict) else values
    return content


def write_pairs(folder: Path, rows: int = 100, seed: int = 1) -> str:
    return write_jsonl(folder / "pairs.jsonl", pairs(rows, seed))


def read_log(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
