"""Trains what a recipe says into a folder that is its own."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray

from twofold.data.ranking import AUTO
from twofold.errors import TwofoldError, did_you_mean
from twofold.metrics import evaluate, metric_directions
from twofold.model import Model
from twofold.outputs.ranking import Config as RankingOutput
from twofold.recipe.build import build_model, cache_rows, split_rows, training_rows
from twofold.recipe.data import DataConfig, Split, draw_rows
from twofold.recipe.file import recipe_names
from twofold.recipe.hard_negatives import prepare_rows
from twofold.recipe.recipe import Recipe, as_recipe
from twofold.recipe.training_folder import PREPARED, TOKENIZERS, check_free, claim, record
from twofold.storage.locks import held
from twofold.training import processes
from twofold.training.config import TrainConfig
from twofold.training.loop import Outcome, Trainer


def train(
    recipe: Recipe | Mapping[str, Any] | str | Path,
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
    recipe = as_recipe(recipe, changes)
    _check_models(recipe)
    folder = Path(out)
    with processes.joined(), _alone(folder, resume):
        with processes.first_goes_ahead():
            fresh = claim(folder, recipe, resume, resume_anyway) if processes.rank() == 0 else {}
            recipe = _prepared(recipe, folder / PREPARED)
            # Built before the data is read in full: what does not fit is said at once.
            torch.manual_seed(recipe.train.seed)
            with _within_memory():
                model = build_model(recipe, folder / TOKENIZERS)
            if fresh:
                record(folder, fresh)
            _check_best(recipe, metric_directions(model))
            cache = cache_rows(recipe, model)
        split = split_rows(recipe, cache, model)
        directions = metric_directions(model, split.validation, candidates=recipe.train.candidates)
        _check_best(recipe, directions)
        if processes.is_first():
            _say_split(recipe, split, cache.rows)
        rows, validate = training_rows(recipe, cache, split, model), _validator(recipe, split)
        trainer = Trainer(model, rows, validate, recipe.train, folder, directions[recipe.train.best])
        if resume:
            trainer.resume()
        counts = {"rows": len(split.rows), "validation_rows": len(split.validation), "cut": dict(cache.cut)}
        return trainer.run(counts)


def _prepared(recipe: Recipe, path: Path) -> Recipe:
    """The recipe that learns from rows with mined negatives and a teacher's scores, if any are asked for."""
    if not (recipe.mine or recipe.teacher):
        return recipe
    data, seed = recipe.data, recipe.train.seed
    if not path.exists():
        output = cast(RankingOutput, next(iter(recipe.tasks.values())).output)
        reader = output.reader(recipe.input, data.form)
        learned = partial(_learned, data, seed)
        prepare_rows(reader, data.train, recipe.mine, recipe.teacher, seed, path, learned)
    return replace(recipe, data=replace(data, train=str(path), form=AUTO))


def _learned(data: DataConfig, seed: int, count: int) -> NDArray[np.int64]:
    return draw_rows(data, count, seed)[0]


def _validator(recipe: Recipe, split: Split) -> Callable[[Model], dict[str, float]] | None:
    """Judges by the loss alone unless the recipe picks the best model by what it writes."""
    rows, train = split.validation, recipe.train
    if not rows:
        return None
    families = ["loss", "likelihood"] if train.best in ("loss", "perplexity") else None
    options = replace(recipe.generate, beam=1, n_best=1, sample=False)
    return lambda model: evaluate(model, rows, options, families=families, candidates=train.candidates, timed=0).metrics


@contextlib.contextmanager
def _alone(folder: Path, resume: bool) -> Iterator[None]:
    """Keep the folder to this training: the first of its processes holds the lock for all of them."""
    if processes.rank() == 0:
        check_free(folder, resume)  # before anything in it is touched
    with held(folder / ".lock", "training") if processes.rank() == 0 else contextlib.nullcontext():
        yield


def _check_models(recipe: Recipe) -> None:
    """Refuse a model to start or learn from that is yet to be trained."""
    mine, teacher = recipe.mine, recipe.teacher
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


def _say_split(recipe: Recipe, split: Split, count: int) -> None:
    """Warn where rows are learned from or judged by in other numbers than one would think."""
    data, held, learned = recipe.data, len(split.validation), len(split.rows)
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
    if data.held_out_share and learned + held < count and (data.rows or data.skip):
        warnings.warn(
            f"{learned:,} of {count - held:,} rows are learned from (data.skip={data.skip}, data.rows={data.rows}); "
            "data.skip=0 data.rows=null takes all",
            stacklevel=3,
        )


def _check_best(recipe: Recipe, known: Mapping[str, bool]) -> None:
    best = recipe.train.best
    if best not in known:
        raise TwofoldError(f"train.best: no metric '{best}'; {did_you_mean(best, known)}")
    brought = [task.output.training.get("best") for task in recipe.tasks.values()]
    default = best in (TrainConfig().best, *brought)
    needed = {f"train.best={best}": not default, "train.patience": bool(recipe.train.patience)}
    for what, asked in needed.items():
        if asked and not (recipe.data.dev or recipe.data.held_out):
            raise TwofoldError(f"{what} needs rows to judge by: give data.dev or data.held_out")
