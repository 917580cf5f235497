"""The models, rows, images and indexes that all hostile inputs meet: small, made once, changed by none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests import made
from tests.cli.text_models import CONLLU
from tests.commands import run
from tests.conftest import decoder, encoder, small_image_model, small_model, small_recipe, write_jsonl
from tests.images import captioning, segmenting, squares_files, write_files, write_shapes
from tests.rankers import small_ranker
from tests.texts import chained, colored, recipe, rows_of, tagged
from twofold.data.tokenizer import TextTokenizer
from twofold.recipe.file import to_yaml

ROWS = made.numbers(24, seed=9)
CANDIDATES = [
    {"id": number if number % 2 else f"n{number}", "text": row["source"], "lang": "ko", "year": 2000 + number}
    for number, row in enumerate(ROWS)
]
PAIRS = [{"context": row["source"], "response": row["target"]} for row in ROWS]
TEXTS: dict[str, tuple[Any, dict[str, Any], dict[str, Any]]] = {
    "label": (colored, {"source": "text", "target": "label"}, {"kind": "label"}),
    "tags": (tagged, {"source": "words", "target": "tags"}, {"kind": "tags"}),
    "tree": (chained, {"source": "words", "target": ["heads", "relations"]}, {"kind": "tree", "width": 8}),
}


def build_stage(folder: Path, tokenizer: TextTokenizer) -> Path:
    """The folder that `STAGE` stands for."""
    folder.mkdir(parents=True, exist_ok=True)
    _save_models(folder, tokenizer)
    _write_files(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TWOFOLD_CACHE", str(folder.parent / "cache"))
        _do("train", folder / "recipe.yaml", "--out", folder / "run")
        for kind in ("bi", "poly"):
            build: list[str | Path] = ["index", "build", folder / f"{kind}.index", "--model", folder / kind]
            _do(*build, "--texts", folder / "candidates.jsonl")
    return folder


def _save_models(folder: Path, tokenizer: TextTokenizer) -> None:
    for seed, kind in enumerate(["bi", "poly", "cross"]):
        small_ranker(tokenizer, encoder("transformer"), decoder(kind), seed).save_pretrained(folder / kind)
    reads = encoder("transformer")
    small_model(tokenizer, encoder("rnn"), decoder("attention_rnn")).save_pretrained(folder / "text")
    for kind in ("label", "tags", "tree"):
        small_model(tokenizer, reads, decoder(kind)).save_pretrained(folder / kind)
    small_image_model(tokenizer, encoder("convnet"), decoder("unet")).save_pretrained(folder / "paint")
    small_image_model(tokenizer, encoder("convnet"), decoder("rnn")).save_pretrained(folder / "caption")


def _write_files(folder: Path) -> None:
    rows = write_jsonl(folder / "rows.jsonl", ROWS)
    write_jsonl(folder / "candidates.jsonl", CANDIDATES)
    pairs = write_jsonl(folder / "pairs.jsonl", PAIRS)
    (folder / "some.conllu").write_text(CONLLU, encoding="utf-8")
    write_files(folder / "squares", squares_files(4))
    write_shapes(folder / "shapes", 4)
    ranking = {"data": {"train": pairs}, "encoder": {"kind": "rnn", "embedding": 8, "width": 12}}
    recipes = {
        "recipe": small_recipe(rows, train={"max_steps": 2}),
        "ranking": {
            **ranking,
            "input": {"tokenizer": {"size": 90}},
            "decoder": {"kind": "bi"},
            "train": {"max_steps": 1},
        },
        "paint": segmenting(folder / "squares", train={"max_steps": 1}),
        "caption": captioning(folder / "shapes/rows.tsv", train={"max_steps": 1}),
    }
    for name, (make, data, writes) in TEXTS.items():
        file = write_jsonl(folder / f"{name}.jsonl", rows_of(make, 12, 1))
        recipes[name] = recipe(file, data, writes, max_steps=1)
    for name, content in recipes.items():
        (folder / f"{name}.yaml").write_text(to_yaml(content), encoding="utf-8")


def _do(*arguments: str | Path) -> None:
    result = run(*arguments)
    assert result.exit_code == 0, (result.stderr, result.exception)
