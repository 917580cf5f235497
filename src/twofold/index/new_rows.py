"""Candidates that are not yet in a file of the index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twofold.data.passages import Span
from twofold.index.places import Places
from twofold.index.quantized import Floats, QuantizedProjections, QuantizedVectors, Rows, round_up, widened

OF_VECTORS = ("vectors", "scales")
"""Arrays with an entry for each vector, of which a row has the number in `counts`; others have one a row."""


class NewRows:
    """Candidates that are not yet in a file."""

    def __init__(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self.arrays, self.names = arrays, tuple(arrays)
        self.places = Places(arrays["counts"]) if "counts" in arrays else None

    @classmethod
    def single(cls, keys: Rows, vectors: NDArray[Any], directions: Floats, stored: str) -> NewRows:
        """Makes rows of one vector each: vectors (rows, width) float32 or float16; directions of the projections."""
        wide = vectors.astype(np.float32, copy=False)
        quantized = QuantizedVectors.of(wide)
        arrays = {"keys": keys, **vars(quantized.alone() if stored == "int8" else quantized)}
        arrays |= {} if stored == "int8" else {"vectors": vectors}
        return cls(arrays | projected(wide, directions))

    @classmethod
    def several(cls, keys: Rows, vectors: NDArray[Any], counts: NDArray[Any], stored: str) -> NewRows:
        """Makes rows of several vectors each, `counts` of a row: vectors (vectors, width), one row after another."""
        arrays: dict[str, NDArray[Any]] = {"keys": keys, "counts": counts.astype(np.int32)}
        if stored != "int8":
            return cls({**arrays, "vectors": vectors})
        quantized = QuantizedVectors.of(vectors)
        lengths = np.linalg.norm(widened(quantized.integers, quantized.steps).astype(np.float64), axis=1)
        longest = np.zeros(len(counts))
        np.maximum.at(longest, np.repeat(np.arange(len(counts)), counts), lengths)
        arrays |= {"vectors": quantized.integers, "scales": quantized.steps, "norms": round_up(longest)}
        return cls(arrays)

    def with_spans(self, spans: Sequence[Sequence[Span]] | None) -> NewRows:
        """Adds the places of passages, if rows are passages: those of each document."""
        places = [astuple(span) for document in spans or () for span in document]
        return NewRows({**self.arrays, "spans": np.array(places, np.int32)}) if places else self

    def __len__(self) -> int:
        return len(self.arrays["keys"])

    def length(self, name: str) -> int:
        """Number of entries of an array."""
        return len(self.arrays[name])

    def part(self, name: str, start: int, stop: int) -> NDArray[Any]:
        """Returns some rows of an array."""
        return self.arrays[name][places_of(self.places, name, slice(start, stop))]


def places_of(places: Places | None, name: str, rows: Rows | slice) -> Rows | slice:
    """Places of an array's entries for some rows."""
    return rows if places is None or name not in OF_VECTORS else places.of(rows)


def projected(vectors: Floats, directions: Floats) -> dict[str, NDArray[Any]]:
    """Arrays of the vectors' projections."""
    projections = QuantizedProjections.of(vectors, directions)
    return {"heads": projections.integers, "head_steps": projections.steps}
