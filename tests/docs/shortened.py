"""Trainings of the packaged recipes within a second: every recipe is read strictly, then its model gets small, its
training two steps long and its data a few rows. `python -m tests.docs.shortened` is the command line with it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import pytest

from twofold.recipe import Recipe

BACKBONE = "TWOFOLD_TEST_BACKBONE"
"""Environment variable with the folder that stands for `default` in recipes."""
STEPS = 2
SMALL: dict[str, dict[str, Any]] = {
    "rnn": {"embedding": 8, "width": 16},
    "attention_rnn": {"embedding": 8, "width": 16},
    "transformer": {"width": 16, "layers": 2, "heads": 2, "feed_forward": 32},
    "convnet": {"blocks": 1},
    "vit": {"width": 16, "layers": 1, "heads": 2},
    "spectrogram": {"channels": [4, 4, 8], "width": 16, "layers": 1, "heads": 2},
    "tree": {"width": 8, "relation_width": 4},
}
"""Settings that make a part of each kind small."""
MOST = {"held_out": 6, "rows": 24, "skip": 8}
"""Upper bounds of settings of `data`."""


def shortened(content: Mapping[str, Any]) -> dict[str, Any]:
    """The plain values of a recipe with small parts, few rows and few steps."""
    changed = dict(content)
    for name in ("encoder", "candidate_encoder", "decoder"):
        if name in changed:
            changed[name] = _small(changed[name])
    if isinstance(changed.get("decoders"), dict):
        changed["decoders"] = {name: _small(part) for name, part in changed["decoders"].items()}
    if isinstance(data := changed.get("data"), dict):
        few = {name: min(data[name], most) for name, most in MOST.items() if data.get(name) is not None}
        changed["data"] = {**data, **few}
    train = {name: value for name, value in (changed.get("train") or {}).items() if name != "min_steps"}
    if train.get("batch_rows") is not None:
        train["batch_rows"] = min(train["batch_rows"], 8)
    changed["train"] = {**train, "max_steps": STEPS, "evaluate_every": STEPS, "candidates": 4, "device": "cpu"}
    return changed


def _small(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    small = {**part, **SMALL.get(str(part.get("kind")), {})}
    if "widths" in small:
        small["widths"] = [width // 8 for width in small["widths"]]
    if small.get("kind") == "pretrained" and small.get("name") == "default":
        small["name"] = os.environ[BACKBONE]
    return small


def shorten(patch: pytest.MonkeyPatch) -> None:
    """Makes every training small until the patch is undone."""
    load = Recipe.of.__func__  # type: ignore[attr-defined]

    def of(cls: type[Recipe], content: Mapping[str, Any], needs_data: bool = True) -> Recipe:
        load(cls, content, needs_data)  # as it is on the page
        recipe: Recipe = load(cls, shortened(content), needs_data)
        return recipe

    patch.setattr(Recipe, "of", classmethod(of))


if __name__ == "__main__":
    from twofold.cli import main

    shorten(pytest.MonkeyPatch())
    main()
