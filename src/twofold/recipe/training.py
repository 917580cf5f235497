"""Trains what a recipe says into a folder that is its own: its recipe, its data, and what was made before a step."""

from __future__ import annotations

import contextlib
import os
import shutil
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from twofold import storage
from twofold.config import structure
from twofold.data.files import DataFile, Row
from twofold.errors import TwofoldError, did_you_mean, listed
from twofold.metrics import evaluate, metric_directions
from twofold.model import Model
from twofold.model.saved import CONFIG
from twofold.recipe.build import Split, build_model, cache_rows, split_rows, training_rows
from twofold.recipe.file import read_yaml, recipe_names, to_yaml
from twofold.recipe.hard_negatives import prepared
from twofold.recipe.recipe import Recipe, as_recipe
from twofold.storage.locks import held
from twofold.training import processes
from twofold.training.config import TrainConfig
from twofold.training.loop import Outcome, Trainer

FREE = ("epochs", "max_steps", "patience", "save_every", "save_minutes", "memory_tokens")
MAY_CHANGE = {f"train.{name}" for name in FREE}
"""What may differ when a training is resumed: how long it goes on, and what changes nothing but time and memory."""
RECIPE, DATA, TOKENIZERS, PREPARED = "recipe.yaml", "data.json", "tokenizers", "prepared.jsonl"
"""The files and folders of a training: the last one holds rows with mined negatives and a teacher's scores."""
FORMAT = 2
ELSEWHERE = "put the file back as it was or train in another folder"


@dataclass(frozen=True)
class Record:
    """What `data.json` holds: the checksums of a training's data and of the files made from it."""

    format: int
    data: dict[str, dict[str, str]]
    """By the setting that names them, such as data.train: the path, the stamp and the checksum of files."""
    made: dict[str, str]
    """The SHA-256 of tokenizers and prepared rows, by their names in the folder."""


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
            fresh = _claim(folder, recipe, resume, resume_anyway) if processes.rank() == 0 else {}
            if recipe.mine or recipe.teacher:
                recipe = prepared(recipe, folder / PREPARED)
            # Built before the data is read in full: what does not fit is said at once.
            model = _build_within_memory(recipe, folder / TOKENIZERS)
            if fresh:
                _record(folder, fresh)
            _check_best(recipe, metric_directions(model))
            cache = cache_rows(recipe, model)
        split = split_rows(recipe, cache, model)
        directions = metric_directions(model, split.validation, candidates=recipe.train.candidates)
        _check_best(recipe, directions)
        if processes.is_first():
            _say_split(recipe, split, cache.rows)
        rows, validate = training_rows(recipe, cache, split, model), _validator(recipe, split.validation)
        trainer = Trainer(model, rows, validate, recipe.train, folder, directions[recipe.train.best])
        if resume:
            trainer.resume()
        return trainer.run({"rows": len(split.rows), "validation_rows": len(split.validation), "cut": dict(cache.cut)})


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
def _alone(folder: Path, resume: bool) -> Iterator[None]:
    """Keep the folder to this training: the first of its processes holds the lock for all of them."""
    if processes.rank() == 0:
        _check_free(folder, resume)  # before anything in it is touched
    with held(folder / ".lock", "training") if processes.rank() == 0 else contextlib.nullcontext():
        yield


def _build_within_memory(recipe: Recipe, folder: Path) -> Model:
    """The model; one that is too large becomes one line."""
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
            raise TwofoldError(f"{what} needs rows to judge by: give data.dev or data.held_out")


def _say_split(recipe: Recipe, split: Split, count: int) -> None:
    """Warn where rows are learned from or judged by in other numbers than one would think."""
    data, held, learned = recipe.data, len(split.validation), len(split.rows)
    lines = []
    if data.held_out > held:
        lines.append(
            f"{held:,} of {count:,} rows are held out to judge by, not {data.held_out:,}: at most a share of "
            f"{data.held_out_share:g}; data.held_out=N sets another number"
        )
    elif data.held_out and held > learned:
        lines.append(
            f"{held:,} rows are held out to judge by and only {learned:,} are learned from; lower data.held_out"
        )
    if data.held_out_share and learned + held < count and (data.rows or data.skip):
        lines.append(
            f"{learned:,} of {count - held:,} rows are learned from (data.skip={data.skip}, data.rows={data.rows}); "
            "data.skip=0 data.rows=null takes all"
        )
    for line in lines:
        warnings.warn(line, stacklevel=3)


def _validator(recipe: Recipe, rows: list[Row]) -> Callable[[Model], dict[str, float]] | None:
    """Judges by the loss alone unless the recipe picks the best model by what it writes."""
    train = recipe.train
    families = ["loss", "likelihood"] if train.best in ("loss", "perplexity") else None
    options = replace(recipe.generate, beam=1, n_best=1, sample=False)

    def validate(model: Model) -> dict[str, float]:
        return evaluate(model, rows, options, families=families, candidates=train.candidates, timed=0).metrics

    return validate if rows else None


def _check_free(folder: Path, resume: bool) -> bool:
    """Refuse a folder that holds a training unless it is to be resumed; returns whether it holds one."""
    for name, what in ((CONFIG, "a saved model"), ("index.sqlite", "an index")):
        if os.path.exists(folder / name):  # a training beside it would be in its shadow
            raise TwofoldError(f"{folder}: holds {what} ({name}), which is no place to train in; choose another folder")
    begun = any(os.path.exists(folder / name) for name in ("log.jsonl", "model", "checkpoints"))
    if begun and not resume:
        raise TwofoldError(f"{folder}: holds a training already; go on with --resume or choose another folder")
    return begun


def _claim(folder: Path, recipe: Recipe, resume: bool, anyway: bool) -> dict[str, DataFile]:
    """Make the folder this recipe's own, never another's, and give the data that is yet to be recorded there.

    anyway: go on although the data has changed
    """
    if _check_free(folder, resume):
        for name in (RECIPE, DATA):
            if not (folder / name).exists():
                raise TwofoldError(f"{folder}: holds a training, but not its {name}; choose another folder")
        _compare_recipes(folder, recipe)
        fresh = _compare_data(folder, recipe, anyway)
    else:
        fresh = recipe.files()
        # A start that failed, perhaps over the data, may have left tokenizers or rows of another recipe.
        shutil.rmtree(folder / TOKENIZERS, ignore_errors=True)
        (folder / PREPARED).unlink(missing_ok=True)
    storage.recover(folder / "model")
    storage.write_bytes(folder / RECIPE, to_yaml(recipe.plain()).encode())
    return fresh


def _record(folder: Path, inputs: dict[str, DataFile]) -> None:
    """Keep the checksums of the data and of the files made from it, before the first step."""
    files = [*sorted((folder / TOKENIZERS).glob("*.json")), folder / PREPARED]
    made = {file.relative_to(folder).as_posix(): storage.sha256(file) for file in files if file.exists()}
    data = {name: {"path": file.path, "stamp": file.stamp, "sum": file.sum()} for name, file in inputs.items()}
    storage.write_checked_json(folder / DATA, {"format": FORMAT, "data": data, "made": made})


def _compare_recipes(folder: Path, recipe: Recipe) -> None:
    old, new = _flat(read_yaml(folder / RECIPE)), _flat(recipe.plain())
    for key in sorted((old.keys() | new.keys()) - MAY_CHANGE):
        if old.get(key) != new.get(key):
            raise TwofoldError(
                f"{folder}: was begun with {key}={old.get(key)}, not {new.get(key)}; "
                "resume with the same recipe or choose another folder"
            )


def _flat(content: Any, place: str = "") -> dict[str, Any]:
    """Nested settings by their paths: train.epochs."""
    if not isinstance(content, dict):
        return {place: content}
    flat: dict[str, Any] = {}
    for name, inner in content.items():
        flat |= _flat(inner, f"{place}.{name}".lstrip("."))
    return flat


def _compare_data(folder: Path, recipe: Recipe, anyway: bool) -> dict[str, DataFile]:
    """Refuse data that has changed and files that are damaged; `anyway` gives the data that has changed."""
    path = folder / DATA
    content = storage.read_json(path, ELSEWHERE)
    storage.check_content(content, path, ELSEWHERE)
    content.pop(storage.CHECKSUM, None)
    old = structure(content, Record, str(path))
    if old.format != FORMAT:
        raise TwofoldError(f"{path}: written in format {old.format}, this version reads {FORMAT}; {ELSEWHERE}")
    for name, expected in old.made.items():
        if not (folder / name).is_file():
            raise TwofoldError(f"{folder / name}: no such file; {ELSEWHERE}")
        if storage.sha256(folder / name) != expected:
            raise TwofoldError(f"{folder / name}: damaged, its checksum is not the one in {DATA}; {ELSEWHERE}")
    inputs = recipe.files()
    changed = [f"{file.path} ({name})" for name, file in inputs.items() if not _same(old.data.get(name), file)]
    if not changed:
        return {}
    said = f"{listed(changed)}: changed since the training in {folder} began"
    if not anyway:
        remedy = "put the data back as it was, train in another folder, or go on with --resume-anyway"
        raise TwofoldError(f"{said}; {remedy}")
    warnings.warn(f"{said}; going on with the new data", stacklevel=5)
    (folder / PREPARED).unlink(missing_ok=True)  # made of the old data
    _record(folder, inputs)
    return inputs


def _same(old: dict[str, str] | None, new: DataFile) -> bool:
    return old is not None and (bool(new.stamp and old.get("stamp") == new.stamp) or old.get("sum") == new.sum())
