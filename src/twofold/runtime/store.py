"""Engine files in the user's cache folder: one folder for each graph, written aside, renamed, and bounded in size."""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from twofold import storage
from twofold.data import named_models
from twofold.data.cache import ABOUT, cache_folder
from twofold.errors import TwofoldError
from twofold.precision import processor_flags

FOLDER, RANKERS = "engines", "rankers"
GRAPH = "graph.onnx"
FORMAT = 1
MOST_RANKERS = 100
"""Number of rankers without torch; the oldest are removed."""
MOST_BYTES = 8 << 30
"""Total size of all graphs; the ones that were not used for longest are removed."""
ABANDONED = 3600.0
"""Seconds after which a graph that was never finished is removed."""
REMEDY = "it is made anew"


@dataclass(frozen=True)
class Record:
    """Result of checking one engine and precision on a graph."""

    engine: str
    precision: str
    version: str
    """Version of the engine's library."""
    processor: list[str]
    """Flags of the processor that it was checked on."""
    sha256: str
    """Checksum of the graph."""
    about: dict[str, Any] = field(default_factory=dict)
    """Names of the tensors that the graph takes and gives."""
    largest_difference: float = 0.0
    """Largest difference from torch on the sample inputs."""
    refused: str = ""
    """Reason why torch is used instead, if the check failed."""

    @property
    def file(self) -> str:
        return f"{self.engine}-{self.precision}.json"


def engines_folder() -> Path:
    """Returns the folder of all graphs."""
    return cache_folder() / FOLDER


def read_record(folder: Path, engine: str, precision: str) -> Record | None:
    """Reads the record of an engine; None if there is none, or one of another format."""
    path = folder / f"{engine}-{precision}.json"
    if not path.is_file():
        return None
    content = storage.read_json(path, REMEDY)
    storage.check_content(content, path, REMEDY)
    if content.pop("format", None) != FORMAT:
        return None
    content.pop(storage.CHECKSUM, None)
    return Record(**content)


def write_record(folder: Path, record: Record) -> None:
    """Writes the record of an engine beside its graph."""
    storage.write_checked_json(folder / record.file, {"format": FORMAT, **record.__dict__})


def known_record(path: Path, engine: str, precision: str, version: str, say: Callable[[str], None]) -> Record | None:
    """Reads the record of an earlier check of a file, if file, engine and processor are still the same."""
    try:
        record = read_record(path.parent, engine, precision)
    except (TwofoldError, TypeError, KeyError):
        say("the record of its file is damaged; made anew")
        return None
    if record is None:
        return None
    if not record.refused and (not path.is_file() or storage.sha256(path) != record.sha256):
        path.unlink(missing_ok=True)
        say("its file is damaged; made anew")
        return None
    if record.version != version or record.processor != list(processor_flags()):
        say("its file is of another version or another processor; made anew")
        return None
    return record


def add_folder(folder: Path, write: Callable[[Path], None]) -> None:
    """Makes a folder in one step; `write` fills it. The first process to finish keeps its copy."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = folder.parent / f".new-{folder.name}-{os.getpid()}"
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir()
    try:
        write(aside)
        with contextlib.suppress(OSError):  # another process was faster
            aside.rename(folder)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    if not folder.is_dir():
        raise TwofoldError(f"{folder}: the files of an engine cannot be kept there")
    remove_oldest(folder)


def remove_oldest(kept: Path | None = None, most: int | None = None) -> None:
    """Removes the graphs that were not used for longest until all fit; `kept` always stays."""
    most = MOST_BYTES if most is None else most
    now, sizes = time.time(), {}
    for folder in engines_folder().glob("*"):
        with contextlib.suppress(OSError):  # another process may remove it now
            used = folder.stat().st_mtime
            if folder.name.startswith(".new-"):
                if now - used > ABANDONED:
                    shutil.rmtree(folder, ignore_errors=True)
            elif folder != kept:
                sizes[folder] = (used, size_of(folder))
    total = sum(size for _, size in sizes.values()) + (size_of(kept) if kept else 0)
    for folder, (_, size) in sorted(sizes.items(), key=lambda entry: entry[1]):
        if total <= most:
            return
        shutil.rmtree(folder, ignore_errors=True)
        total -= size


def mark_used(folder: Path) -> None:
    """Notes that a graph is used now, so that it is removed last."""
    with contextlib.suppress(OSError):
        os.utime(folder)


def size_of(folder: Path) -> int:
    """Returns the number of bytes of all files in a folder."""
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):
            total += path.stat().st_size if path.is_file() else 0
    return total


def rankers_folder() -> Path:
    """Returns the folder of all rankers that need no torch."""
    return cache_folder() / RANKERS


def remove_oldest_rankers() -> None:
    """Keeps the newest rankers."""
    with contextlib.suppress(OSError):
        folders = sorted(rankers_folder().iterdir(), key=lambda folder: -folder.stat().st_mtime)
        remove(folders[MOST_RANKERS:])


def entries() -> dict[str, list[Path]]:
    """Returns the folders of all entries of the cache, by kind."""
    engines = {kind: _folders(cache_folder() / kind) for kind in (FOLDER, RANKERS)}
    data = [folder for folder in _folders(cache_folder()) if (folder / ABOUT).is_file()]
    models = [folder for folder in _folders(cache_folder() / named_models.FOLDER) if not folder.name.startswith(".")]
    return {"data": data, **engines, named_models.FOLDER: models}


def remove(folders: Sequence[Path]) -> int:
    """Removes entries; returns their number."""
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
    return len(folders)


def _folders(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
