"""Rows of a file as memory-mapped numbers (such as token ids), written once and keyed by file and settings."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from twofold import storage
from twofold.data.files import Row, Sources, fingerprint, read_rows
from twofold.errors import TwofoldError
from twofold.storage.checksums import CheckedFile, SummedFile

FORMAT = 2
ABOUT = "about.json"
ABANDONED = 7 * 86_400
"""Seconds after which an unfinished folder counts as abandoned by a killed process."""
CHUNK = 500_000
"""Approximate number of characters tokenized at a time."""
Report = Callable[[int], None]
"""Progress report: called with the number of rows read so far."""
Read = Callable[[Sources], Iterator[Row]]
"""Function that reads the rows of a file."""


@dataclass(frozen=True)
class Encoded:
    """Numbers of several rows, and the number of rows that were truncated."""

    ids: list[Any]
    """Sequence of numbers for each row."""
    cut: int = 0

    def flat(self, dtype: str) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Concatenates the numbers of all rows; also returns the end of each row."""
        ends = np.cumsum([len(row) for row in self.ids], dtype=np.int64)
        return np.fromiter(itertools.chain(*self.ids), dtype), ends


class Field(Protocol):
    """Column of a cache: turns rows into numbers and names the settings that these depend on."""

    @property
    def dtype(self) -> str: ...

    def settings(self) -> list[Any]: ...

    def encode(self, rows: Sequence[Row]) -> Encoded: ...


@dataclass(frozen=True)
class DerivedField:
    """Additional field of a cache beside the main one, such as the positions where words begin."""

    dtype: str
    settings: Callable[[], list[Any]]
    encode: Callable[[Sequence[Row]], Encoded]


Fields = Mapping[str, Field]


@dataclass(frozen=True)
class Column:
    """Ids of one column for all rows."""

    ids: NDArray[Any]
    """Concatenated ids of all rows; `row` and `whole` verify checksums before use."""
    offsets: NDArray[np.int64]
    file: CheckedFile | None = None
    """File that holds the ids, if they are not in memory."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)

    def row(self, number: int) -> NDArray[Any]:
        start, stop = self.offsets[number], self.offsets[number + 1]
        if self.file:
            self.file.check(int(start) * self.ids.itemsize, int(stop) * self.ids.itemsize)
        return self.ids[start:stop]

    def whole(self) -> NDArray[Any]:
        """Concatenated ids of all rows."""
        return self.file.whole(self.ids.dtype) if self.file else self.ids


@dataclass(frozen=True)
class Cache:
    """Rows of a file as token ids, memory-mapped."""

    columns: Mapping[str, Column]
    rows: int
    cut: Mapping[str, int]
    """Number of rows truncated by the length limit, for each column."""
    where: Sources = ""
    """Source of the rows."""

    @classmethod
    def of(
        cls, where: Sources, fields: Fields, report: Report | None = None, read: Read = read_rows, content: str = ""
    ) -> Cache:
        """Opens the cache of a file, or builds it. The settings of some field must determine `read`.

        content: hash of all sources, where there is more than one file
        """
        settings = [[name, *field.settings()] for name, field in fields.items()]
        key = json.dumps([FORMAT, content or fingerprint(where), settings])
        folder = cache_folder() / hashlib.sha256(key.encode()).hexdigest()[:32]
        if not folder.exists():
            _build(folder, read(where), fields, report)
        return cls._open(folder, where)

    @classmethod
    def in_memory(cls, rows: Sequence[Row], fields: Fields) -> Cache:
        """Builds a cache in memory from rows."""
        columns, cut = {}, {}
        for name, field in fields.items():
            encoded = field.encode(rows)
            ids, ends = encoded.flat(field.dtype)
            columns[name], cut[name] = Column(ids, np.append(0, ends)), encoded.cut
        return cls(columns, len(rows), cut)

    @classmethod
    def _open(cls, folder: Path, where: Sources) -> Cache:
        path, remedy = folder / ABOUT, f"remove {folder} and run again"
        about = storage.read_json(path, remedy)
        storage.check_content(about, path, remedy)
        missing = {"rows", "types", "cut", "files"} - about.keys()
        if missing or about.get("format") != FORMAT:
            raise TwofoldError(f"{path}: damaged, it lacks {', '.join(sorted(missing or {'format'}))}; {remedy}")
        files = {name: CheckedFile(folder / name, sums, remedy) for name, sums in about["files"].items()}
        columns = {}
        for number, (name, kind) in enumerate(about["types"].items()):
            ids, offsets = files[f"{number}.ids"], files[f"{number}.offsets"]
            columns[name] = Column(ids.bytes.view(np.dtype(kind)), offsets.whole(np.dtype(np.int64)), ids)
        return cls(columns, about["rows"], about["cut"], where)


def cache_folder() -> Path:
    """Returns `$TWOFOLD_CACHE`, or `twofold` in the user's cache folder."""
    chosen = os.environ.get("TWOFOLD_CACHE")
    return Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "twofold"


def _build(folder: Path, rows: Iterator[Row], fields: Fields, report: Report | None) -> None:
    """Reads the file into a folder with a unique name; the first process to finish keeps its copy."""
    with storage.writing(folder):
        aside = _new_folder(folder.parent)
        try:
            storage.write_checked_json(aside / ABOUT, _write(aside, rows, fields, report))
            aside.rename(folder)
        except BaseException as error:
            shutil.rmtree(aside, ignore_errors=True)
            if not (isinstance(error, OSError) and folder.exists()):
                raise


def _new_folder(parent: Path) -> Path:
    """Creates a folder for a new cache and removes those that killed processes abandoned."""
    try:
        parent.mkdir(parents=True, exist_ok=True)
        for left in parent.glob(".new-*"):
            with contextlib.suppress(FileNotFoundError):  # its owner may just have moved it into place
                if time.time() - left.stat().st_mtime > ABANDONED:
                    shutil.rmtree(left, ignore_errors=True)
        return Path(tempfile.mkdtemp(prefix=".new-", dir=parent))
    except OSError as error:
        remedy = "name a folder that can be written to: TWOFOLD_CACHE=/path/to/a/folder"
        raise TwofoldError(f"{parent}: token ids cannot be cached there ({error.strerror}); {remedy}") from None


def _write(folder: Path, rows: Iterator[Row], fields: Fields, report: Report | None) -> dict[str, Any]:
    """Writes the numbers of all rows chunk by chunk; returns the metadata needed to read them."""
    types = {name: field.dtype for name, field in fields.items()}
    cut = dict.fromkeys(fields, 0)
    total = 0
    names = [f"{number}.{ending}" for ending in ("ids", "offsets") for number in range(len(fields))]
    with ExitStack() as stack:
        files = {name: SummedFile(stack.enter_context((folder / name).open("wb"))) for name in names}
        for number in range(len(fields)):
            files[f"{number}.offsets"].write(np.zeros(1, np.int64).tobytes())
        while chunk := list(_chunk(rows)):
            for number, (name, field) in enumerate(fields.items()):
                encoded = field.encode(chunk)
                numbers, ends = encoded.flat(types[name])
                ids, offsets = files[f"{number}.ids"], files[f"{number}.offsets"]
                offsets.write((ids.size // numbers.itemsize + ends).tobytes())
                ids.write(numbers.tobytes())
                cut[name] += encoded.cut
            total += len(chunk)
            if report:
                report(total)
        for file in files.values():
            file.file.flush()
            os.fsync(file.file.fileno())
    sums = {name: file.about() for name, file in files.items()}
    return {"format": FORMAT, "rows": total, "types": types, "cut": cut, "files": sums}


def _chunk(rows: Iterator[Row]) -> Iterator[Row]:
    size = 0
    for row in rows:
        yield row
        size += sum(len(str(value)) for value in row.values.values())
        if size > CHUNK:
            return
