"""Token ids of a whole file, memory-mapped: written once, keyed by file, tokenizer and settings."""

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

FORMAT = 1
CHUNK = 500_000
"""About how many characters are tokenised at a time, whether in many short rows or in a few long ones."""
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
    offsets: NDArray[np.int64]

    @property
    def lengths(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)

    def row(self, number: int) -> NDArray[Any]:
        return self.ids[self.offsets[number] : self.offsets[number + 1]]


@dataclass(frozen=True)
class Cache:
    """All rows of a file as token ids; only what is touched is read."""

    columns: Mapping[str, Column]
    rows: int
    cut: Mapping[str, int]
    """For each column how many rows lost their tail to the length limit."""

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
        return cls._open(folder)

    @classmethod
    def _open(cls, folder: Path) -> Cache:
        remedy = f"remove {folder} and run again"
        about = storage.read_json(folder / "about.json", remedy)
        columns = {
            name: Column(
                _mapped(folder / f"{number}.ids", np.dtype(about["types"][name])),
                _mapped(folder / f"{number}.offsets", np.dtype(np.int64)),
            )
            for number, name in enumerate(about["types"])
        }
        return cls(columns, about["rows"], about["cut"])


def _mapped(path: Path, kind: np.dtype[Any]) -> NDArray[Any]:
    """The numbers of a file; an empty one, as of a column without a single number, cannot be mapped."""
    return np.memmap(path, kind, "r") if path.stat().st_size else np.empty(0, kind)


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
        folder.parent.mkdir(parents=True, exist_ok=True)
        _sweep(folder.parent)
        aside = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
        try:
            with ExitStack() as stack:
                ids = [stack.enter_context((aside / f"{n}.ids").open("wb")) for n in range(len(fields))]
                offsets = [stack.enter_context((aside / f"{n}.offsets").open("wb")) for n in range(len(fields))]
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
                for file in (*ids, *offsets):
                    file.flush()
                    os.fsync(file.fileno())
            storage.write_json(aside / "about.json", {"format": FORMAT, "rows": total, "types": types, "cut": cut})
            aside.rename(folder)
        except BaseException as error:
            shutil.rmtree(aside, ignore_errors=True)
            if not (isinstance(error, OSError) and folder.exists()):
                raise


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
