"""The rows of a whole file as numbers, such as token ids, memory-mapped: written once, keyed by file and settings."""

from __future__ import annotations

import contextlib
import dataclasses
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
CHUNK = 500_000
"""About how many characters are tokenized at a time, whether in many short rows or in a few long ones."""
Report = Callable[[int], None]
"""Called with the number of rows read so far."""
Read = Callable[[Sources], Iterator[Row]]
"""How the rows of a file are read."""


@dataclass(frozen=True)
class Encoded:
    """The numbers of some rows, and how many rows lost a part."""

    ids: list[Any]
    """For each row a sequence of numbers."""
    cut: int = 0


class Field(Protocol):
    """What a cache asks of a column: numbers for each row, their type, and what they depend on."""

    @property
    def dtype(self) -> str: ...

    def settings(self) -> list[Any]: ...

    def encode(self, rows: Sequence[Row]) -> Encoded: ...


@dataclass(frozen=True)
class Column:
    """The ids of one column of all rows."""

    ids: NDArray[Any]
    """Of all rows, one after the other; `row` and `whole` check what they give."""
    offsets: NDArray[np.int64]
    file: CheckedFile | None = None
    """Where the ids lie, if not in memory."""

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)

    def row(self, number: int) -> NDArray[Any]:
        start, stop = self.offsets[number], self.offsets[number + 1]
        if self.file:
            self.file.check(int(start) * self.ids.itemsize, int(stop) * self.ids.itemsize)
        return self.ids[start:stop]

    def whole(self) -> NDArray[Any]:
        """The ids of all rows, one after the other."""
        return self.file.whole(self.ids.dtype) if self.file else self.ids


@dataclass(frozen=True)
class Cache:
    """All rows of a file as token ids; only what is touched is read."""

    columns: Mapping[str, Column]
    rows: int
    cut: Mapping[str, int]
    """For each column how many rows lost their tail to the length limit."""
    where: Sources = ""
    """What it was made of."""

    @classmethod
    def of(
        cls,
        where: Sources,
        fields: Mapping[str, Field],
        report: Report | None = None,
        read: Read | None = None,
        content: str | None = None,
    ) -> Cache:
        """The cache of a file, from disk if the same was read before; some field's settings must tell `read`.

        content: a hash of all that is read, where that is more than one file
        """
        folder = cache_folder() / _key(content or fingerprint(where), fields)
        if not folder.exists():
            _build(folder, (read or read_rows)(where), fields, report)
        return dataclasses.replace(cls._open(folder), where=where)

    @classmethod
    def in_memory(cls, rows: Sequence[Row], fields: Mapping[str, Field]) -> Cache:
        """The same of rows at hand, without a file."""
        columns, cut = {}, {}
        for name, field in fields.items():
            encoded = field.encode(rows)
            offsets = np.cumsum([0, *(len(row) for row in encoded.ids)], dtype=np.int64)
            columns[name] = Column(np.fromiter(itertools.chain(*encoded.ids), field.dtype), offsets)
            cut[name] = encoded.cut
        return cls(columns, len(rows), cut)

    @classmethod
    def _open(cls, folder: Path) -> Cache:
        remedy = f"remove {folder} and run again"
        about = _read_about(folder / ABOUT, remedy)
        columns = {}
        for number, (name, kind) in enumerate(about["types"].items()):
            ids, offsets = (
                CheckedFile(folder / file, about["files"][file], remedy)
                for file in (f"{number}.ids", f"{number}.offsets")
            )
            columns[name] = Column(ids.bytes.view(np.dtype(kind)), offsets.whole(np.dtype(np.int64)), ids)
        return cls(columns, about["rows"], about["cut"])


def _read_about(path: Path, remedy: str) -> dict[str, Any]:
    """What is known of a cache, if it stands there as it was written."""
    about = storage.read_json(path, remedy)
    storage.check_content(about, path, remedy)
    missing = {"rows", "types", "cut", "files"} - about.keys()
    if missing or about.get("format") != FORMAT:
        raise TwofoldError(f"{path}: damaged, it lacks {', '.join(sorted(missing or {'format'}))}; {remedy}")
    return about


def cache_folder() -> Path:
    """`$TWOFOLD_CACHE`, or `twofold` in the user's cache folder."""
    own = os.environ.get("TWOFOLD_CACHE")
    return Path(own) if own else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "twofold"


def _key(content: str, fields: Mapping[str, Field]) -> str:
    settings = [[name, *field.settings()] for name, field in fields.items()]
    return hashlib.sha256(json.dumps([FORMAT, content, settings]).encode()).hexdigest()[:32]


def _build(folder: Path, rows: Iterator[Row], fields: Mapping[str, Field], report: Report | None) -> None:
    """Read the file once, chunk by chunk, into a folder of a name of its own; the first to finish keeps its copy."""
    types = {name: field.dtype for name, field in fields.items()}
    cut = dict.fromkeys(fields, 0)
    total = 0
    with storage.writing(folder):
        aside = _new_folder(folder.parent)
        try:
            with ExitStack() as stack:
                names = [f"{number}.{ending}" for ending in ("ids", "offsets") for number in range(len(fields))]
                files = {name: SummedFile(stack.enter_context((aside / name).open("wb"))) for name in names}
                ids, offsets = list(files.values())[: len(fields)], list(files.values())[len(fields) :]
                ends = [0] * len(fields)
                for file in offsets:
                    file.write(np.zeros(1, np.int64).tobytes())
                while chunk := list(_chunk(rows)):
                    for number, (name, field) in enumerate(fields.items()):
                        encoded = field.encode(chunk)
                        stops = ends[number] + np.cumsum([len(row) for row in encoded.ids], dtype=np.int64)
                        ids[number].write(np.fromiter(itertools.chain(*encoded.ids), types[name]).tobytes())
                        offsets[number].write(stops.tobytes())
                        ends[number] = int(stops[-1])
                        cut[name] += encoded.cut
                    total += len(chunk)
                    if report:
                        report(total)
                for opened in files.values():
                    opened.file.flush()
                    os.fsync(opened.file.fileno())
            sums = {name: opened.about() for name, opened in files.items()}
            about = {"format": FORMAT, "rows": total, "types": types, "cut": cut, "files": sums}
            storage.write_checked_json(aside / ABOUT, about)
            aside.rename(folder)
        except BaseException as error:
            shutil.rmtree(aside, ignore_errors=True)
            if not (isinstance(error, OSError) and folder.exists()):
                raise


def _new_folder(parent: Path) -> Path:
    """A new folder to write a cache in."""
    try:
        parent.mkdir(parents=True, exist_ok=True)
        _sweep(parent)
        return Path(tempfile.mkdtemp(prefix=".new-", dir=parent))
    except OSError as error:
        raise TwofoldError(
            f"{parent}: token ids cannot be cached there ({error.strerror}); name a folder that can be written to: "
            "TWOFOLD_CACHE=/path/to/a/folder"
        ) from None


def _chunk(rows: Iterator[Row]) -> Iterator[Row]:
    size = 0
    for row in rows:
        yield row
        size += sum(len(str(value)) for value in row.values.values())
        if size > CHUNK:
            return


def _sweep(folder: Path, days: float = 7) -> None:
    """Remove what a killed process left behind long ago."""
    for left in folder.glob(".new-*"):
        with contextlib.suppress(FileNotFoundError):  # its owner may just have put it in its place
            if time.time() - left.stat().st_mtime > days * 86_400:
                shutil.rmtree(left, ignore_errors=True)
