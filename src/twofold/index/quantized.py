"""Vectors as small integers with known errors, from which bounds and guesses of scores are computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twofold.index.kernels import quantize
from twofold.precision import loaded_torch

Integers = NDArray[Any]
Floats = NDArray[np.float32]
Rows = NDArray[np.int64]
LARGEST = 127
"""Largest 8-bit integer that is used."""
TINY = 1e-30


@dataclass(frozen=True)
class QuantizedVectors:
    """Candidate vectors c = step·q + r, as 8-bit integers q with the length of r."""

    integers: Integers
    """(rows, width) int8"""
    steps: Floats
    """(rows,): value of the integer 1."""
    errors: Floats
    """(rows,): ‖c − step·q‖, rounded up."""
    norms: Floats
    """(rows,): ‖c‖, rounded up."""

    @classmethod
    def of(cls, vectors: Floats) -> QuantizedVectors:
        """vectors (rows, width)"""
        integers, steps, errors, norms = _quantized(vectors, LARGEST, np.int8)
        return cls(integers, steps, errors, norms)

    def integers_of(self, rows: Rows) -> Integers:
        """Integers of some rows, which ascend: (rows, width)."""
        if len(rows) and rows[-1] - rows[0] == len(rows) - 1:
            return self.integers[rows[0] : rows[-1] + 1]  # neighbors need no copy
        return self.integers.take(rows, 0)

    def alone(self) -> QuantizedVectors:
        """Returns these integers times their steps as the vectors themselves, from which only float32 differs."""
        norms = np.linalg.norm(self.integers.astype(np.float64), axis=1) * self.steps
        return QuantizedVectors(self.integers, self.steps, round_up(norms * 2.0**-23), round_up(norms * (1 + 2.0**-23)))

    def __len__(self) -> int:
        return len(self.integers)


@dataclass(frozen=True)
class QuantizedProjections:
    """Candidate vectors in their principal directions, as 8-bit integers: for guesses, not for proofs."""

    integers: Integers
    """(rows, directions) int8"""
    steps: Floats
    """(rows,)"""

    @classmethod
    def of(cls, vectors: Floats, directions: Floats) -> QuantizedProjections:
        """vectors (rows, width), directions (directions, width)"""
        projections = QuantizedVectors.of(vectors @ directions.T)
        return cls(projections.integers, projections.steps)


def widened(vectors: NDArray[Any], scales: Floats | None) -> Floats:
    """Vectors as float32, each times its scale if there are scales; those that are float32 are not copied."""
    torch = loaded_torch()  # numpy takes four times as long for float16
    wide: Floats = (
        vectors.astype(np.float32, copy=False) if torch is None else torch.from_numpy(vectors).float().numpy()
    )
    return wide if scales is None else wide * scales[:, None]


def principal_directions(vectors: Floats) -> Floats:
    """Orthonormal directions, a third of the width, that hold most of these vectors: (directions, width)."""
    width = vectors.shape[1]
    count = min(width, 32 * max(1, round(width / 96)))
    vectors = vectors / max(float(np.abs(vectors).max()), TINY)  # squares stay finite
    _, eigenvectors = np.linalg.eigh(vectors.T @ vectors)
    return np.ascontiguousarray(eigenvectors[:, ::-1].T[:count], np.float32)


@dataclass(frozen=True)
class QuantizedDirections:
    """Unit vectors u = step·q + r, as 16-bit integers q with the length of r."""

    integers: Integers
    """(directions, width) int16, or int8 of coarse ones."""
    steps: Floats
    """(directions,): value of the integer 1."""
    errors: Floats
    """(directions,): ‖u − step·q‖, rounded up."""

    @classmethod
    def of(cls, vectors: NDArray[np.float64]) -> QuantizedDirections:
        """vectors (directions, width)"""
        # No sum of products leaves 32 bits.
        largest = min(2**15 - 1, (2**31 - 1) // (LARGEST * vectors.shape[1]))
        integers, steps, errors, _ = _quantized(vectors, largest, np.int16)
        return cls(integers, steps, errors)

    @classmethod
    def coarse(cls, vectors: NDArray[np.float64]) -> QuantizedDirections:
        """Rounds to 8-bit integers, of which processors multiply matrices fast."""
        integers, steps, errors, _ = _quantized(vectors, LARGEST, np.int8)
        return cls(integers, steps, errors)


def _quantized(vectors: NDArray[Any], largest: int, dtype: Any) -> tuple[Integers, Floats, Floats, Floats]:
    """Integers and their steps, and the lengths of what is lost and of the vectors, rounded up."""
    count = len(vectors)
    integers, steps = np.empty(vectors.shape, dtype), np.empty(count, np.float32)
    errors, norms = np.empty(count), np.empty(count)
    quantize(vectors, float(largest), integers, steps, errors, norms)
    return integers, steps, round_up(errors), round_up(norms)


def round_up(values: NDArray[np.float64]) -> Floats:
    """Returns the next float32 above each value."""
    return np.nextafter(values.astype(np.float32), np.float32(np.inf))


def round_down(values: NDArray[np.float64]) -> Floats:
    """Returns the next float32 below each value."""
    return np.nextafter(values.astype(np.float32), np.float32(-np.inf))
