"""Trains what a recipe says into a folder that is its own."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from twofold import storage
from twofold.errors import TwofoldError, did_you_mean
from twofold.evaluation import metric_names
from twofold.locks import held
from twofold.recipe.base import PREPARED, Recipe
from twofold.recipe_file import override, read_yaml, to_yaml
from twofold.training import processes
from twofold.training.loop import Outcome, Trainer

FREE = ("epochs", "max_steps", "patience", "save_every", "save_minutes", "memory_tokens")
MAY_CHANGE = {f"train.{name}" for name in FREE}
"""What may differ when a training is resumed: how long it goes on, and what changes nothing but time and memory."""


def train(recipe: Recipe | str | Path, out: str | Path, changes: Sequence[str] = (), resume: bool = False) -> Outcome:
    """Train what the recipe says into the folder `out`, or go on with what was begun there."""
    if not isinstance(recipe, Recipe):
        recipe = Recipe.load(recipe, changes)
    elif changes:
        recipe = Recipe.of(override(recipe.plain(), changes))
    folder = Path(out)
    with processes.joined(), _alone(folder):
        with processes.first_goes_ahead():
            if processes.rank() == 0:
                _claim(folder, recipe, resume)
            recipe = recipe.prepare(folder)
            # Built before the data is read in full: what does not fit is said at once.
            torch.manual_seed(recipe.train.seed)
            model = recipe.model(folder / "tokenizers")
            _check_best(recipe, metric_names(model))
            cache = recipe.cache(model)
        split = recipe.split(cache, model)
        _check_best(recipe, recipe.metrics(model, split.judged))
        rows = recipe.rows(cache, split.rows, model)
        trainer = Trainer(model, rows, recipe.validator(split.judged), recipe.train, folder)
        if resume:
            trainer.resume()
        return trainer.run({"rows": len(split.rows), "validation_rows": len(split.judged), "cut": dict(cache.cut)})


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Keep the folder to this training: the first of its processes holds the lock for all of them."""
    with held(folder / ".lock", "training") if processes.rank() == 0 else contextlib.nullcontext():
        yield


def _claim(folder: Path, recipe: Recipe, resume: bool) -> None:
    """Make the folder this recipe's own; never take one that holds another training."""
    path = folder / "recipe.yaml"
    begun = any((folder / name).exists() for name in ("log.jsonl", "model", "checkpoints"))
    if begun and resume and not path.exists():
        raise TwofoldError(f"{folder}: holds a training, but not its recipe.yaml; choose another folder")
    if begun and not resume:
        raise TwofoldError(f"{folder}: holds a training already; go on with --resume or choose another folder")
    if not begun:
        # A start that failed, perhaps over the data, may have left tokenizers or rows of another recipe.
        shutil.rmtree(folder / "tokenizers", ignore_errors=True)
        (folder / PREPARED).unlink(missing_ok=True)
    else:
        old, new = _flat(read_yaml(path)), _flat(recipe.plain())
        for key in sorted(old.keys() | new.keys()):
            if old.get(key) != new.get(key) and key not in MAY_CHANGE:
                raise TwofoldError(
                    f"{folder}: was begun with {key}={old.get(key)}, not {new.get(key)}; "
                    "resume with the same recipe or choose another folder"
                )
    storage.recover(folder / "model")
    storage.write_bytes(path, to_yaml(recipe.plain()).encode())


def _flat(content: Any, place: str = "") -> dict[str, Any]:
    if not isinstance(content, dict):
        return {place: content}
    return {
        key: value
        for name, inner in content.items()
        for key, value in _flat(inner, f"{place}.{name}".lstrip(".")).items()
    }


def _check_best(recipe: Recipe, known: list[str]) -> None:
    best = recipe.train.best
    if best not in known:
        raise TwofoldError(f"train.best: no metric '{best}'; {did_you_mean(best, known)}")
    needed = {f"train.best={best}": best != type(recipe.train)().best, "train.patience": bool(recipe.train.patience)}
    for what, asked in needed.items():
        if asked and not (recipe.data.dev or recipe.data.held_out):
            raise TwofoldError(f"{what} needs rows to judge by: give data.dev or data.held_out")
