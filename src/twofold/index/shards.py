"""Shards of an index, immutable files of candidate vectors: read in parts, written whole, merged."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twofold import storage
from twofold.errors import TwofoldError
from twofold.index.catalog import Catalog
from twofold.index.database import REMEDY, ShardRecord
from twofold.index.new_rows import OF_VECTORS, NewRows, places_of, projected
from twofold.index.places import Places
from twofold.index.quantized import Floats, QuantizedProjections, QuantizedVectors, Rows, principal_directions, widened
from twofold.storage.checksums import CheckedBytes, SummedFile

SHARD_FOLDER = "shards"
ARRAYS = ("keys", "steps", "errors", "norms", "head_steps", "scales", "counts", "spans", "vectors", "heads", "integers")
"""Names of a shard's arrays, wide numbers first, so that all arrays are aligned."""
DTYPES = {"I64": "int64", "I32": "int32", "I8": "int8", "F32": "float32", "F16": "float16"}
"""Types of numbers in a shard, by their names in safetensors."""
DTYPE_NAMES = {dtype: name for name, dtype in DTYPES.items()}
ENTRIES_AT_A_TIME = 1 << 14
"""Approximate number of entries of an array that are held in memory at a time while a shard is written."""
MERGE_FACTOR = 8
"""Number of neighboring shards of similar size that are merged into one."""
SMALL_SHARD, FULL_SHARD = 512, 1 << 20
"""Rows up to which shards are of similar size, and rows of a full shard."""
SAMPLE_SIZE = 8192
"""Number of vectors from which the directions of the projections are learned."""


class MissingShardError(TwofoldError):
    """Error for a shard that is listed but has no file."""


class Shard:
    """Arrays of a shard, mapped into memory; each part is checked before its first use.

    The file is laid out as safetensors, so that others can read it.
    """

    def __init__(self, folder: Path, record: ShardRecord) -> None:
        self.path = folder / record.name
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
        header_end = 8 + int.from_bytes(bytes(content[:8]), "little")
        self._content.check(0, header_end)
        self._starts: dict[str, int] = {}
        self._arrays: dict[str, NDArray[Any]] = {}
        for name, about in json.loads(bytes(content[8:header_end])).items():
            start, stop = (header_end + offset for offset in about["data_offsets"])
            self._starts[name] = start
            self._arrays[name] = np.asarray(content)[start:stop].view(DTYPES[about["dtype"]]).reshape(about["shape"])
        self.names = tuple(self._arrays)
        self.places: Places | None = None
        """Places of the vectors of each row, if rows hold several."""
        self.places = Places(self._whole("counts")) if "counts" in self.names else None
        self.keys: Rows = self._whole("keys")
        self.documents = self.keys if "spans" in self.names else None
        """Document of each row, if rows are passages of documents: its key."""
        if self.documents is not None:
            self._distinct_keys, counts = np.unique(self.keys, return_counts=True)
            self._passages = Places(counts)
        self.norms = self._whole("norms") if "norms" in self.names else None
        if self.places is None:
            self.quantized = QuantizedVectors(*map(self._whole, ("integers", "steps", "errors", "norms")))

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of vectors, and their width."""
        count, width = self._arrays[self._numbers[0]].shape
        return count, width

    @property
    def _numbers(self) -> tuple[str, str]:
        """Names of the arrays of numbers and scales of the vectors; the 8-bit integers may be all there is."""
        return ("vectors", "scales") if "vectors" in self.names else ("integers", "steps")

    @cached_property
    def projections(self) -> QuantizedProjections:
        """Projections, which only a fast search reads."""
        return QuantizedProjections(self._whole("heads"), self._whole("head_steps"))

    def vectors(self, rows: Rows | slice) -> Floats:
        """Vectors of some rows, as float32: (vectors, width)."""
        numbers, scales = self._numbers
        return widened(self.take(numbers, rows), self.take(scales, rows) if scales in self.names else None)

    def integers(self, rows: slice) -> tuple[NDArray[Any], Floats]:
        """Vectors of some rows that are stored as 8-bit integers, (vectors, width), and their scales, (vectors,)."""
        return self.take("vectors", rows), self.take("scales", rows)

    def take(self, name: str, rows: Rows | slice) -> NDArray[Any]:
        """Returns some rows of an array."""
        array, places = self._arrays[name], places_of(self.places, name, rows)
        size, start = array[:1].nbytes, self._starts[name]
        if isinstance(places, slice):
            self._content.check(start + places.start * size, start + places.stop * size)
        else:
            self._content.check_rows(start + places * size, size)
            return array.take(places, 0)  # a third of the time of array[places]
        return array[places]

    def length(self, name: str, rows: Rows) -> int:
        """Number of entries of an array for some rows."""
        return len(rows) if self.places is None or name not in OF_VECTORS else int(self.places.counts[rows].sum())

    def rows_of(self, keys: Rows) -> Rows:
        """Rows of those keys that are in this shard, whose keys ascend."""
        distinct = self.keys if self.documents is None else self._distinct_keys
        rows = np.minimum(np.searchsorted(distinct, keys), len(distinct) - 1)
        rows = rows[distinct[rows] == keys]
        return rows if self.documents is None else self._passages.of_rows(rows)

    def check(self) -> None:
        """Reads everything and compares it with its checksums."""
        self._content.check_again()

    def _whole(self, name: str) -> NDArray[Any]:
        return self.take(name, slice(0, len(self._arrays[name])))


@dataclass(frozen=True)
class KeptRows:
    """Rows of a shard that are copied into another."""

    shard: Shard
    rows: Rows
    directions: Floats | None = None
    """New directions of the projections; None keeps the projections as they are."""

    @property
    def names(self) -> tuple[str, ...]:
        return self.shard.names

    def __len__(self) -> int:
        return len(self.rows)

    def length(self, name: str) -> int:
        """Number of entries of an array for these rows."""
        return self.shard.length(name, self.rows)

    def part(self, name: str, start: int, stop: int) -> NDArray[Any]:
        """Returns some rows of an array."""
        rows = self.rows[start:stop]
        if self.directions is None or name not in ("heads", "head_steps"):
            return self.shard.take(name, rows)
        return projected(self.shard.vectors(rows), self.directions)[name]


def write_shard(path: Path, sources: Sequence[NewRows | KeptRows]) -> ShardRecord:
    """Writes the rows of all sources, whose keys ascend, into one file; few of them are in memory at a time."""
    rows = sum(map(len, sources))
    names = [name for name in ARRAYS if name in sources[0].names]
    header, end = {}, 0
    for name in names:
        first = sources[0].part(name, 0, 1)[:1]
        count = sum(source.length(name) for source in sources)
        start, end = end, end + count * first.nbytes
        shape = (count, *first.shape[1:])
        header[name] = {"dtype": DTYPE_NAMES[first.dtype.name], "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 64)
    with storage.new_file(path) as file:
        shard = SummedFile(file)
        shard.write(len(text).to_bytes(8, "little") + text)
        for name in names:
            step = max(1, ENTRIES_AT_A_TIME * rows // header[name]["shape"][0])
            for source in sources:
                for start in range(0, len(source), step):
                    shard.write(source.part(name, start, start + step).tobytes())
    keys, last = (source.part("keys", 0, len(source)) for source in (sources[0], sources[-1]))
    return ShardRecord(path.name, int(keys[0]), int(last[-1]), rows, shard.size, shard.checksums())


class ShardFiles:
    """Writes, merges and removes shards, as the one process that may change the index."""

    def __init__(self, folder: Path, catalog: Catalog) -> None:
        self.folder, self.catalog = folder / SHARD_FOLDER, catalog
        self.merged = False
        """True while the files of merged shards are still there: they go when the new list is on the disk."""

    def write(self, sources: Sequence[NewRows | KeptRows], number: int = 0) -> ShardRecord:
        """Writes one shard, which counts when the catalog lists it; several at once differ in their numbers."""
        # The catalog has never had this version, so nobody reads a shard of this name.
        return write_shard(self.folder / f"{self.catalog.version + 1:010d}-{number:04d}.safetensors", sources)

    def merge_small(self) -> None:
        """Merges neighbors of similar size, so that there are never many shards; each row moves a few times in all."""
        while True:
            last = self.catalog.shards()[-MERGE_FACTOR:]
            sizes = [max(record.rows, SMALL_SHARD) for record in last]
            if len(last) < MERGE_FACTOR or max(sizes) > MERGE_FACTOR * min(sizes) or sum(sizes) > FULL_SHARD:
                return
            self._merge(last)

    def merge_all(self) -> None:
        """Merges all shards into as few as possible, with projections in directions that are learned from all rows."""
        self._merge(self.catalog.shards(), learn_directions=True)

    def remove_unlisted(self) -> None:
        """Removes files that the catalog does not list."""
        listed = {record.name for record in self.catalog.shards()}
        with storage.writing(self.folder):
            for path in self.folder.glob("*"):
                if path.name not in listed:
                    path.unlink()

    def _merge(self, old: Sequence[ShardRecord], learn_directions: bool = False) -> None:
        """Replaces shards by new ones with the rows that are not deleted."""
        deleted, directions = self.catalog.deleted_since(-1), None
        shards = [Shard(self.folder, record) for record in old]
        kept = [(shard, np.delete(np.arange(len(shard)), shard.rows_of(deleted))) for shard in shards]
        kept = [(shard, rows) for shard, rows in kept if len(rows)]
        if kept and learn_directions and kept[0][0].places is None:
            step = max(1, sum(len(rows) for _, rows in kept) // SAMPLE_SIZE)
            directions = principal_directions(np.concatenate([shard.vectors(rows[::step]) for shard, rows in kept]))
        groups: list[list[KeptRows]] = []
        for shard, rows in kept:
            if not groups or sum(map(len, groups[-1])) + len(rows) > FULL_SHARD:
                groups.append([])
            groups[-1].append(KeptRows(shard, rows, directions))
        new = [self.write(group, number) for number, group in enumerate(groups)]
        self.merged = True
        with self.catalog.write_transaction():
            self.catalog.replace_shards(old, new)
            if directions is not None:
                self.catalog.set_directions(directions)
