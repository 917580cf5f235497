"""Folder of a training: its recipe, the checksums of its data, and the lock that keeps other trainings out."""

from __future__ import annotations

import contextlib
import os
import shutil
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twofold import storage
from twofold.config import structure
from twofold.data.files import DataFile
from twofold.errors import TwofoldError, listed
from twofold.model.saved import CONFIG
from twofold.recipe.file import read_yaml, to_yaml
from twofold.recipe.given import RECIPE, GivenData, is_moved, write_rows
from twofold.recipe.recipe import Recipe
from twofold.storage.locks import held
from twofold.training import processes
from twofold.training.log import FILE

FREE = ("epochs", "min_steps", "max_steps", "patience", "save_every", "save_minutes", "memory_tokens")
MAY_CHANGE = {f"train.{name}" for name in FREE}
"""Settings that may differ when a training is resumed: its length, and those that affect only time and memory."""
DATA, TOKENIZERS, PREPARED = "data.json", "tokenizers", "prepared.jsonl"
"""Files and folders of a training. The last file holds rows with mined negatives and a teacher's scores."""
FORMAT = 2
ELSEWHERE = "put the file back as it was or train in another folder"


@dataclass(frozen=True)
class Record:
    """Content of `data.json`: checksums of a training's data and of the files made from it."""

    format: int
    data: dict[str, dict[str, str]]
    """Path, stamp and checksum of files, by the setting that names them, such as data.train."""
    made: dict[str, str]
    """SHA-256 of tokenizers and prepared rows, by file name."""


@contextlib.contextmanager
def locked(folder: Path, resume: bool) -> Iterator[None]:
    """Locks the folder for this training; the first process holds the lock for all processes."""
    if processes.rank() == 0:
        _check_free(folder, resume)  # before any file in it changes
    with held(folder / ".lock", "training") if processes.rank() == 0 else contextlib.nullcontext():
        yield


def _check_free(folder: Path, resume: bool) -> bool:
    """Refuses a folder that holds a training, unless it is resumed. Returns True if it holds one."""
    for name, what in ((CONFIG, "a saved model"), ("index.sqlite", "an index")):
        if os.path.exists(folder / name):  # `load` would take it for the model of the training
            raise TwofoldError(f"{folder}: holds {what} ({name}), which is no place to train in; choose another folder")
    begun = any(os.path.exists(folder / name) for name in (FILE, "model", "checkpoints"))
    if begun and not resume:
        raise TwofoldError(f"{folder}: holds a training already; go on with --resume or choose another folder")
    return begun


def claim(folder: Path, recipe: Recipe, given: GivenData, resume: bool, anyway: bool) -> dict[str, DataFile]:
    """Writes the recipe and the given rows into the folder; refuses the folder of another recipe. Returns the data
    whose checksums the folder has yet to keep.

    anyway: resume even if the data has changed
    """
    begun = _check_free(folder, resume)
    if begun:
        for name in (RECIPE, DATA):
            if not (folder / name).exists():
                raise TwofoldError(f"{folder}: holds a training, but not its {name}; choose another folder")
        _compare_recipes(folder, recipe)
    for path, rows in given.rows.items():
        write_rows(rows, path, folder, unchanged=begun and not anyway)
    if begun:
        fresh = _compare_data(folder, recipe, anyway)
    else:
        fresh = recipe.files()
        # A start that failed may have left tokenizers or rows of another recipe.
        shutil.rmtree(folder / TOKENIZERS, ignore_errors=True)
        (folder / PREPARED).unlink(missing_ok=True)
    storage.recover(folder / "model")
    storage.write_bytes(folder / RECIPE, to_yaml(recipe.plain()).encode())
    return fresh


def record(folder: Path, inputs: dict[str, DataFile]) -> None:
    """Writes the checksums of the data and of the files made from it, before the first step."""
    files = [*sorted((folder / TOKENIZERS).glob("*.json")), folder / PREPARED]
    made = {file.relative_to(folder).as_posix(): storage.sha256(file) for file in files if file.exists()}
    data = {name: {"path": file.path, "stamp": file.stamp, "sum": file.sum()} for name, file in inputs.items()}
    storage.write_checked_json(folder / DATA, {"format": FORMAT, "data": data, "made": made})


def _compare_recipes(folder: Path, recipe: Recipe) -> None:
    """Refuses a recipe whose settings differ from those in the folder, but for those that may differ."""
    old, new = flat(read_yaml(folder / RECIPE)), flat(recipe.plain())
    for key in sorted((old.keys() | new.keys()) - MAY_CHANGE):
        if old.get(key) != new.get(key) and not is_moved(folder, old.get(key), new.get(key)):
            raise TwofoldError(
                f"{folder}: was begun with {key}={old.get(key)}, not {new.get(key)}; "
                "resume with the same recipe or choose another folder"
            )


def flat(content: Any, place: str = "") -> dict[str, Any]:
    """Flattens nested settings: keys are paths such as train.epochs."""
    if not isinstance(content, dict):
        return {place: content}
    settings: dict[str, Any] = {}
    for name, inner in content.items():
        settings |= flat(inner, f"{place}.{name}".lstrip("."))
    return settings


def _compare_data(folder: Path, recipe: Recipe, anyway: bool) -> dict[str, DataFile]:
    """Refuses changed data and damaged files. With `anyway`, changed data is recorded anew and returned."""
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
    (folder / PREPARED).unlink(missing_ok=True)  # made from the old data
    record(folder, inputs)
    return inputs


def _same(old: dict[str, str] | None, new: DataFile) -> bool:
    return old is not None and (bool(new.stamp and old.get("stamp") == new.stamp) or old.get("sum") == new.sum())
