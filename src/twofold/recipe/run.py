"""Trains what a recipe says into a folder that is its own."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from twofold.errors import TwofoldError, did_you_mean
from twofold.metrics import metric_names
from twofold.recipe.base import Recipe, Split
from twofold.recipe.claim import TOKENIZERS, check_free, claim, record
from twofold.recipe.file import override, recipe_names
from twofold.storage.locks import held
from twofold.training import processes
from twofold.training.loop import Outcome, Trainer


def train(
    recipe: Recipe | str | Path,
    out: str | Path,
    changes: Sequence[str] = (),
    resume: bool = False,
    resume_anyway: bool = False,
) -> Outcome:
    """Train what the recipe says into the folder `out`, or go on with what was begun there.

    resume_anyway: go on also if the data has changed since
    """
    if not str(out):
        raise TwofoldError("the folder to train into has no name; give one, such as --out runs/mine")
    resume = resume or resume_anyway
    if not isinstance(recipe, Recipe):
        recipe = Recipe.load(recipe, changes)
    elif changes:
        recipe = Recipe.of(override(recipe.plain(), changes))
    _check_models(recipe)
    folder = Path(out)
    with processes.joined(), _alone(folder, resume):
        with processes.first_goes_ahead():
            fresh = claim(folder, recipe, resume, resume_anyway) if processes.rank() == 0 else {}
            recipe = recipe.prepare(folder)
            # Built before the data is read in full: what does not fit is said at once.
            torch.manual_seed(recipe.train.seed)
            with _within_memory():
                model = recipe.model(folder / TOKENIZERS)
            if fresh:
                record(folder, fresh)
            _check_best(recipe, metric_names(model))
            cache = recipe.cache(model)
        split = recipe.split(cache, model)
        _check_best(recipe, recipe.metrics(model, split.judged))
        if processes.is_first():
            _say_split(recipe.data, split, cache.rows)
        rows = recipe.rows(cache, split.rows, model)
        trainer = Trainer(model, rows, recipe.validator(split.judged), recipe.train, folder)
        if resume:
            trainer.resume()
        return trainer.run({"rows": len(split.rows), "validation_rows": len(split.judged), "cut": dict(cache.cut)})


@contextlib.contextmanager
def _alone(folder: Path, resume: bool) -> Iterator[None]:
    """Keep the folder to this training: the first of its processes holds the lock for all of them."""
    if processes.rank() == 0:
        check_free(folder, resume)  # before anything in it is touched
    with held(folder / ".lock", "training") if processes.rank() == 0 else contextlib.nullcontext():
        yield


def _check_models(recipe: Recipe) -> None:
    """Refuse a model to start or learn from that is yet to be trained."""
    mine, teacher = getattr(recipe, "mine", None), getattr(recipe, "teacher", None)
    named = {"start": recipe.start, "mine.model": mine and mine.model, "teacher.model": teacher and teacher.model}
    for setting, name in named.items():
        # What does not lie under runs/ may be found elsewhere.
        if name and not Path(name).exists() and (setting == "start" or Path(name).parts[0] == "runs"):
            first = Path(name).name if Path(name).name in recipe_names() else "RECIPE"
            raise TwofoldError(
                f"{setting}={name}: no such model; train it first, with `twofold train {first} --out {name}`, "
                f"or name another with {setting}=FOLDER"
            )


@contextlib.contextmanager
def _within_memory() -> Iterator[None]:
    """Turn a model that is too large into one line."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "memory" not in str(error):
            raise
        raise TwofoldError("the model does not fit into memory; lower its width or its number of layers") from error


def _say_split(data: Any, split: Split, count: int) -> None:
    """Warn where rows are learned from or judged by in other numbers than one would think."""
    held, learned = len(split.judged), len(split.rows)
    if data.held_out > held:
        warnings.warn(
            f"{held:,} of {count:,} rows are held out to judge by, not {data.held_out:,}: at most a share of "
            f"{data.held_out_share:g}; data.held_out=N sets another number",
            stacklevel=3,
        )
    elif data.held_out and held > learned:
        warnings.warn(
            f"{held:,} rows are held out to judge by and only {learned:,} are learned from; lower data.held_out",
            stacklevel=3,
        )
    if data.held_out_share and learned + held < count and (getattr(data, "rows", 0) or getattr(data, "skip", 0)):
        warnings.warn(
            f"{learned:,} of {count - held:,} rows are learned from (data.skip={data.skip}, data.rows={data.rows}); "
            "data.skip=0 data.rows=null takes all",
            stacklevel=3,
        )


def _check_best(recipe: Recipe, known: list[str]) -> None:
    best = recipe.train.best
    if best not in known:
        raise TwofoldError(f"train.best: no metric '{best}'; {did_you_mean(best, known)}")
    needed = {f"train.best={best}": best != type(recipe.train)().best, "train.patience": bool(recipe.train.patience)}
    for what, asked in needed.items():
        if asked and not (recipe.data.dev or recipe.data.held_out):
            raise TwofoldError(f"{what} needs rows to judge by: give data.dev or data.held_out")
