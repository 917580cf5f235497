"""Small models and an index for tests of `twofold index` and `twofold search`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests import made
from tests.commands import run
from tests.conftest import decoder, encoder, small_model, write_jsonl
from tests.rankers import small_ranker
from twofold.data.tokenizer import TextTokenizer

TEXTS = list(dict.fromkeys(row["source"] for row in made.numbers(40, seed=5)))
ROWS = [
    {"id": f"n{number}" if number % 2 else number, "text": text, "third": number % 3}
    for number, text in enumerate(TEXTS)
]
NAMES = {row["text"]: row["id"] for row in ROWS}


def done(*arguments: str | Path) -> str:
    """Standard error of a command that prints nothing else."""
    result = run(*arguments)
    assert result.exit_code == 0, (result.stderr, result.exception)
    assert result.stdout == ""
    return result.stderr


def ids(content: Any) -> list[Any]:
    return [hit["id"] for hit in content["hits"]]


def save_models(folder: Path, tokenizer: TextTokenizer) -> Path:
    """Rankers with weights of their own, and `text`, a model that writes."""
    for seed, kind in enumerate(["bi", "poly", "cross", "late"]):
        small_ranker(tokenizer, encoder("transformer"), decoder(kind), seed).save_pretrained(folder / kind)
    heads = decoder("poly", attention="multihead", heads=2)
    small_ranker(tokenizer, encoder("transformer"), heads).save_pretrained(folder / "heads")
    small_model(tokenizer, encoder("rnn"), decoder("attention_rnn")).save_pretrained(folder / "text")
    return folder


def build(folder: Path, models: Path) -> Path:
    """An index of `ROWS`, which lie beside it."""
    rows = write_jsonl(folder / "rows.jsonl", ROWS)
    said = done("index", "build", folder / "index", "--model", models / "poly", "--texts", rows)
    assert said == f"{len(ROWS)} candidates in {folder / 'index'}\n"
    return folder / "index"
