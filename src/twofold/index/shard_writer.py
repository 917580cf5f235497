"""Writes a shard: rows that are new, or rows of other shards, into one file in the layout of safetensors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twofold import storage
from twofold.index.quantized import Floats, QuantizedProjections, QuantizedVectors, Rows
from twofold.index.shard import DTYPES, Shard, ShardRecord
from twofold.storage.checksums import SummedFile

ROWS_AT_A_TIME = 1 << 14
"""Rows that are held in memory at a time while a shard is written."""
Shapes = Mapping[str, tuple[tuple[int, ...], str]]
"""The shape and the type of each array, by name."""


class NewRows:
    """Candidates that are not yet in a file."""

    def __init__(self, keys: Rows, vectors: NDArray[Any], directions: Floats) -> None:
        """vectors (rows, width) float32 or float16; directions: those of the projections"""
        wide = vectors.astype(np.float32)
        quantized, projections = QuantizedVectors.of(wide), QuantizedProjections.of(wide, directions)
        self.arrays: dict[str, NDArray[Any]] = {
            "keys": keys,
            "vectors": vectors,
            **vars(quantized),
            "heads": projections.integers,
            "head_steps": projections.steps,
        }

    def __len__(self) -> int:
        return len(self.arrays["keys"])

    def part(self, name: str, start: int, stop: int) -> NDArray[Any]:
        """Some rows of an array."""
        return self.arrays[name][start:stop]


@dataclass(frozen=True)
class KeptRows:
    """Rows of a shard that are copied into another."""

    shard: Shard
    rows: Rows
    directions: Floats | None = None
    """New directions of the projections; None keeps the projections as they are."""

    def __len__(self) -> int:
        return len(self.rows)

    def part(self, name: str, start: int, stop: int) -> NDArray[Any]:
        """Some rows of an array."""
        rows = self.rows[start:stop]
        if self.directions is None or name not in ("heads", "head_steps"):
            return self.shard.take(name, rows)
        projections = QuantizedProjections.of(self.shard.vectors(rows), self.directions)
        return projections.integers if name == "heads" else projections.steps


def write_shard(folder: Path, name: str, sources: Sequence[NewRows | KeptRows], dtype: str) -> ShardRecord:
    """Write the rows of all sources, whose keys ascend, into one file; few of them are in memory at a time."""
    rows = sum(map(len, sources))
    width, directions = (sources[0].part(array, 0, 1).shape[1] for array in ("vectors", "heads"))
    shapes: Shapes = {
        "keys": ((rows,), "int64"),
        "steps": ((rows,), "float32"),
        "errors": ((rows,), "float32"),
        "norms": ((rows,), "float32"),
        "head_steps": ((rows,), "float32"),
        "vectors": ((rows, width), dtype),
        "heads": ((rows, directions), "int8"),
        "integers": ((rows, width), "int8"),
    }  # wide numbers first, so that all arrays are aligned
    with storage.new_file(folder / name) as file:
        shard = SummedFile(file)
        shard.write(_header(shapes))
        for array in shapes:
            for source in sources:
                for start in range(0, len(source), ROWS_AT_A_TIME):
                    part = source.part(array, start, start + ROWS_AT_A_TIME)
                    shard.write(np.ascontiguousarray(part).tobytes())
    first, last = sources[0].part("keys", 0, 1)[0], sources[-1].part("keys", len(sources[-1]) - 1, len(sources[-1]))[0]
    return ShardRecord(name, int(first), int(last), rows, shard.size, shard.checksums())


def _header(shapes: Shapes) -> bytes:
    """The header of safetensors: its length, then the type, the shape and the place of each array as JSON."""
    names = {dtype: name for name, dtype in DTYPES.items()}
    arrays: dict[str, Any] = {}
    end = 0
    for array, (shape, dtype) in shapes.items():
        start, end = end, end + int(np.prod(shape)) * np.dtype(dtype).itemsize
        arrays[array] = {"dtype": names[dtype], "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(arrays).encode()
    text += b" " * (-len(text) % 64)
    return len(text).to_bytes(8, "little") + text
