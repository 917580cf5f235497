"""A set of small models of every kind that the page has a tab for, saved in folders."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.conftest import decoder, encoder, small_image_model
from tests.model.kinds import KINDS
from twofold.data.tokenizer import TextTokenizer
from twofold.index import Index

NAMES = {
    "bi": "bi",
    "poly": "poly",
    "late": "late",
    "cross": "cross that compares",
    "translate": "text, transformer",
    "caption": "captions",
    "transcribe": "audio → text",
    "with-skips": "mask",
    "label": "label",
    "labels": "labels",
    "number": "number",
    "tags": "tags",
    "tree": "tree",
}
"""Names under which kinds of small models are served."""
STORED = [
    {"id": f"n{number}", "text": f"{number} and {number * 7 % 100}", "lang": "ko" if number % 2 else "en"}
    for number in range(80)
]
"""Candidates of the index."""


@dataclass(frozen=True)
class SmallSet:
    """Models by name, and the folders that are served."""

    models: dict[str, Any]
    index: Index
    folders: dict[str, Path]


def small_set(tokenizer: TextTokenizer, folder: Path) -> SmallSet:
    """Builds and saves the models, and an index for one of them."""
    models: dict[str, Any] = {name: KINDS[kind](tokenizer) for name, kind in NAMES.items()}
    models["without-skips"] = small_image_model(tokenizer, encoder("convnet"), decoder("unet", skips=False)).eval()
    for name, model in models.items():
        model.save_pretrained(folder / name)
    index = Index.build(folder / "numbers", models["poly"], STORED, name=str(folder / "poly"))
    return SmallSet(models, index, {**{name: folder / name for name in models}, "numbers": folder / "numbers"})
