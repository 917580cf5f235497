"""One immutable file of candidates: keys, vectors and their 8-bit form, each part checked before its first use."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twofold import storage
from twofold.errors import TwofoldError
from twofold.index.quantized import Floats, QuantizedProjections, QuantizedVectors, Rows
from twofold.index.search import Query, StoredVectors, TopK, approximate_top_k, exact_top_k
from twofold.storage.checksums import CheckedBytes, SummedFile

SHARD_FOLDER = "shards"
COPIED = 1 << 14
"""Rows that are held at a time while shards are joined."""
STORED = ("float32", "float16")
REMEDY = "copy the index again, or build it anew"


@dataclass(frozen=True)
class ShardRecord:
    """What the index keeps of a shard: enough to notice any change of its file."""

    name: str
    first: int
    last: int
    """Its smallest and its largest key."""
    rows: int
    size: int
    sums: bytes
    """One CRC-32 for each block of the file."""


class Shard:
    """A shard's arrays, mapped into memory. The file is laid out as safetensors, so that others can read it."""

    def __init__(self, folder: Path, record: ShardRecord) -> None:
        self.path, self.record = folder / record.name, record
        try:
            content = np.memmap(self.path, np.uint8, "c")  # torch wants arrays that could be written
        except FileNotFoundError:
            raise MissingShardError(f"{self.path}: this part of the index is missing; {REMEDY}") from None
        except (OSError, ValueError) as error:
            raise TwofoldError(f"{self.path}: cannot be read ({error}); {REMEDY}") from None
        if len(content) != record.size:
            raise TwofoldError(f"{self.path}: {len(content):,} bytes long, not {record.size:,}; {REMEDY}")
        self._content = CheckedBytes(self.path, content, record.sums, REMEDY)
        self._content.check(0, 8)
        length = int.from_bytes(bytes(content[:8]), "little")
        self._content.check(0, 8 + length)
        self._starts: dict[str, int] = {}
        self._arrays: dict[str, NDArray[Any]] = {}
        for name, about in json.loads(bytes(content[8 : 8 + length])).items():
            start, stop = (8 + length + offset for offset in about["data_offsets"])
            self._starts[name] = start
            self._arrays[name] = content[start:stop].view(_KINDS[about["dtype"]]).reshape(about["shape"])
        self.keys: Rows = self._whole("keys")
        self.quantized = QuantizedVectors(*(self._whole(name) for name in ("integers", "steps", "errors", "norms")))
        self.projections = QuantizedProjections(self._whole("heads"), self._whole("head_steps"))

    def __len__(self) -> int:
        return len(self.keys)

    def vectors(self, rows: Rows | slice) -> Floats:
        """(rows, width), as float32"""
        return self.take("vectors", rows).astype(np.float32, copy=False)

    def take(self, name: str, rows: Rows | slice) -> NDArray[Any]:
        """Some rows of an array."""
        stored = self._arrays[name]
        wide, start = stored[:1].nbytes, self._starts[name]
        if isinstance(rows, slice):
            self._content.check(start + rows.start * wide, start + rows.stop * wide)
        else:
            self._content.check_rows(start + rows * wide, wide)
        return stored[rows]

    def rows_of(self, keys: Rows) -> Rows:
        """Where those of the keys stand that are here; keys grow from row to row."""
        places = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        found: Rows = places[self.keys[places] == keys]
        return found

    def check(self) -> None:
        """Read everything and compare it with its checksums."""
        self._content.check_again()

    def _whole(self, name: str) -> NDArray[Any]:
        array = self._arrays[name]
        start = self._starts[name]
        self._content.check(start, start + array.nbytes)
        return array


class MissingShardError(TwofoldError):
    """A shard that is listed has no file."""


@dataclass(frozen=True)
class Shelved:
    """A shard to be searched, but for some of its rows."""

    shard: Shard
    out: NDArray[np.bool_] | None

    def top_k(self, query: Query, k: int, floor: float) -> TopK:
        shard = self.shard
        stored = StoredVectors(shard.quantized, shard.vectors, self.out, shard.projections)
        top = (exact_top_k if query.guess is None else approximate_top_k)(query, stored, k, floor)
        top.keys = shard.keys[top.keys]
        return top


class Fresh:
    """Candidates that are not yet in a file."""

    def __init__(self, keys: Rows, vectors: NDArray[Any], directions: Floats) -> None:
        """vectors (rows, width) float32 or float16"""
        wide = vectors.astype(np.float32)
        projections = QuantizedProjections.of(wide, directions)
        about = {"heads": projections.integers, "head_steps": projections.steps}
        self.arrays = {"keys": keys, "vectors": vectors, **vars(QuantizedVectors.of(wide)), **about}

    def __len__(self) -> int:
        return len(self.arrays["keys"])

    def part(self, name: str, start: int, stop: int) -> NDArray[Any]:
        part: NDArray[Any] = self.arrays[name][start:stop]
        return part


@dataclass(frozen=True)
class Kept:
    """Rows of a shard that go into another."""

    shard: Shard
    rows: Rows
    directions: Floats | None = None
    """Those of the heads, where they are new."""

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, name: str, start: int, stop: int) -> NDArray[Any]:
        rows = self.rows[start:stop]
        if self.directions is None or name not in ("heads", "head_steps"):
            return self.shard.take(name, rows)
        projections = QuantizedProjections.of(self.shard.vectors(rows), self.directions)
        return projections.integers if name == "heads" else projections.steps


def write_shard(folder: Path, name: str, sources: Sequence[Fresh | Kept], kind: str) -> ShardRecord:
    """One file with the rows of all sources, their keys growing; never more than a part of them in memory."""
    rows = sum(map(len, sources))
    width, head = (sources[0].part(array, 0, 1).shape[1] for array in ("vectors", "heads"))
    shapes = {
        "keys": ((rows,), "int64"),
        "steps": ((rows,), "float32"),
        "errors": ((rows,), "float32"),
        "norms": ((rows,), "float32"),
        "head_steps": ((rows,), "float32"),
        "vectors": ((rows, width), kind),
        "heads": ((rows, head), "int8"),
        "integers": ((rows, width), "int8"),
    }  # wide numbers first: all stand where the processor wants them
    header: dict[str, Any] = {}
    offset = 0
    for array, (shape, dtype) in shapes.items():
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        header[array] = {"dtype": _NAMES[dtype], "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 64)
    with storage.new_file(folder / name) as file:
        summed = SummedFile(file)
        for piece in _pieces(text, sources, list(shapes)):
            summed.write(piece)
    first, last = sources[0].part("keys", 0, 1)[0], sources[-1].part("keys", len(sources[-1]) - 1, len(sources[-1]))[0]
    return ShardRecord(name, int(first), int(last), rows, summed.size, summed.checksums())


def _pieces(header: bytes, sources: Sequence[Fresh | Kept], arrays: list[str]) -> Iterator[bytes]:
    yield len(header).to_bytes(8, "little") + header
    for array in arrays:
        for source in sources:
            for start in range(0, len(source), COPIED):
                yield np.ascontiguousarray(source.part(array, start, start + COPIED)).tobytes()


_NAMES = {"int64": "I64", "int8": "I8", "float32": "F32", "float16": "F16"}
_KINDS = {short: name for name, short in _NAMES.items()}
