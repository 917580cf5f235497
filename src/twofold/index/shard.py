"""One immutable file of candidates: keys, vectors and their 8-bit form, each part checked before its first use."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twofold.errors import TwofoldError
from twofold.index.quantized import Floats, QuantizedProjections, QuantizedVectors, Rows
from twofold.storage.checksums import CheckedBytes

SHARD_FOLDER = "shards"
DTYPES = {"I64": "int64", "I8": "int8", "F32": "float32", "F16": "float16"}
"""The types of numbers in a shard, by their names in safetensors."""
REMEDY = "copy the index again, or build it anew"


class MissingShardError(TwofoldError):
    """A shard that is listed has no file."""


@dataclass(frozen=True)
class ShardRecord:
    """What the catalog keeps of a shard: enough to notice any change of its file."""

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
            self._arrays[name] = content[start:stop].view(DTYPES[about["dtype"]]).reshape(about["shape"])
        self.keys: Rows = self._whole("keys")
        self.quantized = QuantizedVectors(*map(self._whole, ("integers", "steps", "errors", "norms")))
        self.projections = QuantizedProjections(self._whole("heads"), self._whole("head_steps"))

    def __len__(self) -> int:
        return len(self.keys)

    def vectors(self, rows: Rows | slice) -> Floats:
        """Vectors of some rows, as float32: (rows, width)."""
        return self.take("vectors", rows).astype(np.float32, copy=False)

    def take(self, name: str, rows: Rows | slice) -> NDArray[Any]:
        """Some rows of an array."""
        array = self._arrays[name]
        row_size, start = array[:1].nbytes, self._starts[name]
        if isinstance(rows, slice):
            self._content.check(start + rows.start * row_size, start + rows.stop * row_size)
        else:
            self._content.check_rows(start + rows * row_size, row_size)
        return array[rows]

    def rows_of(self, keys: Rows) -> Rows:
        """Rows of those keys that are in this shard, whose keys ascend."""
        rows = np.minimum(np.searchsorted(self.keys, keys), len(self.keys) - 1)
        present: Rows = rows[self.keys[rows] == keys]
        return present

    def check(self) -> None:
        """Read everything and compare it with its checksums."""
        self._content.check_again()

    def _whole(self, name: str) -> NDArray[Any]:
        array, start = self._arrays[name], self._starts[name]
        self._content.check(start, start + array.nbytes)
        return array
