"""What makes a training folder one training's own: its recipe, its data, and what was made before the first step."""

from __future__ import annotations

import os
import shutil
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twofold import storage
from twofold.config import structure
from twofold.errors import TwofoldError, listed
from twofold.inputs import DataFile
from twofold.model.saved import CONFIG
from twofold.recipe.file import read_yaml, to_yaml
from twofold.recipe.recipe import Recipe

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


def check_free(folder: Path, resume: bool) -> bool:
    """Refuse a folder that holds a training unless it is to be resumed; returns whether it holds one."""
    for name, what in ((CONFIG, "a saved model"), ("index.sqlite", "an index")):
        if os.path.exists(folder / name):  # a training beside it would be in its shadow
            raise TwofoldError(f"{folder}: holds {what} ({name}), which is no place to train in; choose another folder")
    begun = any(os.path.exists(folder / name) for name in ("log.jsonl", "model", "checkpoints"))
    if begun and not resume:
        raise TwofoldError(f"{folder}: holds a training already; go on with --resume or choose another folder")
    return begun


def claim(folder: Path, recipe: Recipe, resume: bool, anyway: bool) -> dict[str, DataFile]:
    """Make the folder this recipe's own, never another's, and give the data that is yet to be recorded there.

    anyway: go on although the data has changed
    """
    if check_free(folder, resume):
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


def record(folder: Path, inputs: dict[str, DataFile]) -> None:
    """Keep the checksums of the data and of the files made from it, before the first step."""
    files = [*sorted((folder / TOKENIZERS).glob("*.json")), folder / PREPARED]
    made = {file.relative_to(folder).as_posix(): storage.sha256(file) for file in files if file.exists()}
    data = {name: {"path": file.path, "stamp": file.stamp, "sum": file.sum()} for name, file in inputs.items()}
    storage.write_checked_json(folder / DATA, {"format": FORMAT, "data": data, "made": made})


def _compare_recipes(folder: Path, recipe: Recipe) -> None:
    old, new = _flat(read_yaml(folder / RECIPE)), _flat(recipe.plain())
    for key in sorted(old.keys() | new.keys()):
        if old.get(key) != new.get(key) and key not in MAY_CHANGE:
            raise TwofoldError(
                f"{folder}: was begun with {key}={old.get(key)}, not {new.get(key)}; "
                "resume with the same recipe or choose another folder"
            )


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
    changed = [name for name, one in inputs.items() if not _same(old.data.get(name), one)]
    if not changed:
        return {}
    said = listed([f"{inputs[name].path} ({name})" for name in changed])
    if not anyway:
        raise TwofoldError(
            f"{said}: changed since the training in {folder} began; put the data back as it was, "
            "train in another folder, or go on with --resume-anyway"
        )
    warnings.warn(f"{said}: changed since the training in {folder} began; going on with the new data", stacklevel=5)
    (folder / PREPARED).unlink(missing_ok=True)  # made of the old data
    record(folder, inputs)
    return inputs


def _same(old: dict[str, str] | None, new: DataFile) -> bool:
    if old is None:
        return False
    return bool(new.stamp and old.get("stamp") == new.stamp) or old.get("sum") == new.sum()


def _flat(content: Any, place: str = "") -> dict[str, Any]:
    if not isinstance(content, dict):
        return {place: content}
    return {
        key: value
        for name, inner in content.items()
        for key, value in _flat(inner, f"{place}.{name}".lstrip(".")).items()
    }
