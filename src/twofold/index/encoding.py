"""Vectors of candidates for the writer: encoded when they are asked for, or by processes while others are written."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from twofold.index.places import Places
from twofold.index.quantized import Floats
from twofold.progress import Report

if TYPE_CHECKING:
    from twofold.model.ranker import Ranker

PIECE = 512
"""Number of texts whose vectors, if a text has several, are held at a time with the padding of the longest."""


class Workers(Protocol):
    """Processes that encode beside this one."""

    def encode(self, items: Sequence[Any]) -> Future[Sequence[NDArray[Any]]]:
        """Begins to encode items that are read together: their vectors as stored, and the number of each."""
        ...


StartWorkers = Callable[["Ranker", int], AbstractContextManager[Workers | None]]
"""Function that starts processes for a model and a number of texts; None means that this process encodes alone."""


@dataclass(frozen=True)
class Encoded:
    """Candidates as vectors."""

    vectors: Floats
    """(vectors, width), those of one candidate after those of another."""
    counts: NDArray[Any]
    """(candidates,): number of vectors of each."""

    def take(self, rows: NDArray[Any]) -> Encoded:
        """Returns some candidates."""
        return Encoded(self.vectors[Places(self.counts).of_rows(rows)], self.counts[rows])

    @classmethod
    def joined(cls, parts: Sequence[Encoded]) -> Encoded:
        """Joins candidates."""
        vectors, counts = [part.vectors for part in parts], [part.counts for part in parts]
        return cls(np.concatenate(vectors), np.concatenate(counts))


Wait = Callable[[Report], Encoded]
"""Function that gives the vectors as soon as they are there."""


def begin(model: Ranker, contents: Sequence[Any], workers: Workers | None) -> Wait:
    """Begins to encode candidates; without workers they are encoded when they are waited for."""
    step = PIECE if model.head.several else max(1, len(contents))
    pieces = [contents[start : start + step] for start in range(0, len(contents), step)]
    encode = [_here(model, piece) if workers is None else _elsewhere(model, piece, workers) for piece in pieces]

    def wait(report: Report) -> Encoded:
        done, parts = 0, []
        for piece, encoded in zip(pieces, encode, strict=True):
            parts.append(encoded(lambda read, before=done: report(before + read)))
            done += len(piece)
        return Encoded.joined(parts)

    return wait


def _here(model: Ranker, contents: Sequence[Any]) -> Wait:
    def wait(report: Report) -> Encoded:
        kept = model.head.stored(model.embed_candidates(contents, report))
        return Encoded(kept.present.cpu().numpy(), kept.counts.cpu().numpy())

    return wait


def _elsewhere(model: Ranker, contents: Sequence[Any], workers: Workers) -> Wait:
    """Encodes the same batches as `embed_candidates`, in any order."""
    from twofold.model.ranking import candidate_items
    from twofold.model.representation import CANDIDATES
    from twofold.model.vectors import Batches

    plan = Batches.of(model.side(CANDIDATES), candidate_items(model, contents))
    asked = [workers.encode(plan.batch(numbers)) for numbers in plan.batches]
    times = np.bincount(plan.places)

    def wait(report: Report) -> Encoded:
        done, parts = 0, []
        for numbers, future in zip(plan.batches, asked, strict=True):
            parts.append(Encoded(*future.result()))
            done += int(times[numbers].sum())
            report(done)
        place = np.argsort(np.concatenate(plan.batches))  # of each item among those of all batches
        return Encoded.joined(parts).take(place[plan.places])

    return wait
