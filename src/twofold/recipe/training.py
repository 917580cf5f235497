"""Trains what a recipe says into a folder."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from twofold.data.cache import Cache
from twofold.data.files import DataFile, Row
from twofold.data.named_models import MODELS
from twofold.errors import TwofoldError, did_you_mean
from twofold.metrics import evaluate, families_of, metric_directions
from twofold.model import Model
from twofold.recipe.build import Split, build_model, cache_rows, split_rows, training_rows
from twofold.recipe.file import recipe_names
from twofold.recipe.folder import PREPARED, TOKENIZERS, claim, locked, record
from twofold.recipe.given import DataSource, given_data
from twofold.recipe.hard_negatives import prepared
from twofold.recipe.recipe import Recipe, as_recipe
from twofold.training import processes
from twofold.training.config import TrainConfig
from twofold.training.log import Callback
from twofold.training.loop import Trainer, Validation
from twofold.training.run import Run

BY_LOSS = ("loss", "likelihood")
"""Metric families that need no answers of the model, only its loss."""
FINAL_ROWS = 500
"""Maximum number of validation rows for the metrics that are measured once, after the last step."""


def train(
    recipe: Recipe | Mapping[str, Any] | str | Path,
    out: str | Path,
    changes: Sequence[str] = (),
    resume: bool = False,
    resume_anyway: bool = False,
    *,
    data: DataSource | None = None,
    dev: DataSource | None = None,
    callbacks: Sequence[Callback] = (),
) -> Run:
    """Trains what the recipe says into the folder `out`, or resumes the training in it.

        rows = [{"text": "good", "label": "yes"}, {"text": "bad", "label": "no"}, ...]
        recipe = {"encoder": {"kind": "transformer"}, "decoder": {"kind": "label"}, "source": "text"}
        run = twofold.train(recipe, out="runs/mine", data=rows)
        run.model.predict("very good")

    recipe: recipe as plain values, the name of a packaged recipe, or a file
    changes: changed settings of the recipe, each as `key.path=value`
    resume_anyway: resume even if the data has changed since
    data: training rows in the place of `data.train`: dicts, a `datasets.Dataset`, a DataFrame, or names of files; the
        splits `train` and `validation` of a DatasetDict are the training and the validation rows
    dev: validation rows of the same types, in the place of `data.dev` and `data.held_out`
    callbacks: functions that are called with every line of the log, a dict
    """
    if not str(out):
        raise TwofoldError("the folder to train into has no name; give one, such as --out runs/mine")
    folder, resume = Path(out), resume or resume_anyway
    given = given_data(folder, data, dev, changes, resume)
    recipe = as_recipe(recipe, changes, given.settings)
    _check_models(recipe)
    with processes.joined(), locked(folder, resume):
        with processes.first_goes_ahead():
            fresh = claim(folder, recipe, given, resume, resume_anyway) if processes.rank() == 0 else {}
            recipe, model, cache = _prepare(recipe, folder, fresh)
        trainer, about = _trainer(recipe, model, cache, folder, callbacks)
        if resume:
            trainer.resume()
        return trainer.run(about)


def _prepare(recipe: Recipe, folder: Path, fresh: dict[str, DataFile]) -> tuple[Recipe, Model, Cache]:
    """Prepares rows and model before the first step; `fresh` is the data whose checksums the folder has yet to keep."""
    if recipe.mine or recipe.teacher:
        recipe = prepared(recipe, folder / PREPARED)
    # The model comes before the full pass over the data, so that parts that do not fit fail at once.
    model = _build_within_memory(recipe, folder / TOKENIZERS)
    if fresh:
        record(folder, fresh)
    _check_best(recipe, metric_directions(model))
    return recipe, model, cache_rows(recipe, model)


def _trainer(
    recipe: Recipe, model: Model, cache: Cache, folder: Path, callbacks: Sequence[Callback]
) -> tuple[Trainer, dict[str, object]]:
    """Returns the trainer, and what the first line of its log says about the rows."""
    split = split_rows(recipe, cache, model)
    directions = metric_directions(model, split.validation, candidates=recipe.train.candidates)
    _check_best(recipe, directions)
    if processes.is_first():
        _say_split(recipe, split, cache.rows)
    rows = training_rows(recipe, cache, split, model)
    validation = _validation(recipe, model, split.validation, directions[recipe.train.best])
    trainer = Trainer(model, rows, validation, recipe.train, folder, callbacks)
    return trainer, {"rows": len(split.rows), "validation_rows": len(split.validation), "cut": dict(cache.cut)}


def _check_models(recipe: Recipe) -> None:
    """Refuses a model to start from or to learn from that does not exist yet."""
    mine, teacher = recipe.mine, recipe.teacher
    named = {"start": recipe.start, "mine.model": mine and mine.model, "teacher.model": teacher and teacher.model}
    for setting, name in named.items():
        if not name or name in MODELS or Path(name).exists():
            continue
        if setting == "start" or Path(name).parts[0] == "runs":  # other names may be hub ids
            first = Path(name).name if Path(name).name in recipe_names() else "RECIPE"
            raise TwofoldError(
                f"{setting}={name}: no such model; train it first, with `twofold train {first} --out {name}`, "
                f"or name another with {setting}=FOLDER"
            )


def _build_within_memory(recipe: Recipe, folder: Path) -> Model:
    """Builds the model; a model too large for the memory is an error of one line."""
    torch.manual_seed(recipe.train.seed)
    try:
        return build_model(recipe, folder)
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and "memory" not in str(error):
            raise
        raise TwofoldError("the model does not fit into memory; lower its width or its number of layers") from error


def _check_best(recipe: Recipe, known: Mapping[str, bool]) -> None:
    best = recipe.train.best
    if best not in known:
        raise TwofoldError(f"train.best: no metric '{best}'; {did_you_mean(best, known)}")
    brought = [task.output.training.get("best") for task in recipe.tasks.values()]
    asked = {f"train.best={best}": best not in (TrainConfig().best, *brought), "train.patience": recipe.train.patience}
    for what, needed in asked.items():
        if needed and not (recipe.data.dev or recipe.data.held_out):
            raise TwofoldError(f"{what} needs validation rows: give data.dev or data.held_out")


def _say_split(recipe: Recipe, split: Split, count: int) -> None:
    """Warns if the numbers of training and validation rows are not those that the recipe asks for."""
    data, held, learned = recipe.data, len(split.validation), len(split.rows)
    lines = []
    if data.held_out > held:
        lines.append(
            f"{held:,} of {count:,} rows are set aside for validation, not {data.held_out:,}: at most a fraction of "
            f"{data.held_out_share:g}; data.held_out=N sets another number"
        )
    elif data.held_out and held > learned:
        lines.append(f"{held:,} validation rows, but only {learned:,} training rows; lower data.held_out")
    if data.held_out_share and learned + held < count and (data.rows or data.skip):
        lines.append(
            f"{learned:,} of {count - held:,} rows are training rows (data.skip={data.skip}, data.rows={data.rows}); "
            "data.skip=0 data.rows=null takes all"
        )
    for line in lines:
        warnings.warn(line, stacklevel=3)


def _validation(recipe: Recipe, model: Model, rows: list[Row], higher_is_better: bool) -> Validation | None:
    """Judges by the loss alone if the best model is kept by the loss; the other metrics are then measured at the end,
    greedily and on a bounded number of rows."""
    if not rows:
        return None
    train = recipe.train
    options = replace(recipe.generate, beam=1, n_best=1, sample=False)
    measured = BY_LOSS if train.best in ("loss", "perplexity") else None

    def measure(model: Model, rows: list[Row], families: Sequence[str] | None) -> dict[str, float]:
        return evaluate(model, rows, options, families=families, candidates=train.candidates, timed=0).metrics

    left = [kind for name in model.decoders for kind in families_of(model, name) if measured and kind not in measured]
    few = rows[:: -(-len(rows) // FINAL_ROWS)]
    return Validation(
        partial(measure, rows=rows, families=measured),
        partial(measure, rows=few, families=left) if left else None,
        higher_is_better,
    )
