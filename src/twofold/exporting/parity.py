"""Certificate of an export: its largest difference from torch, and whether it ranks and answers alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from twofold import storage
from twofold.errors import TwofoldError
from twofold.exporting.graphs import CONTEXT, MASK, MODEL, PAIR, SCORE, SCORES, VECTORS, Graph, by_side, values_of
from twofold.exporting.read import read
from twofold.model import Model, Ranker
from twofold.outputs.ranking import CANDIDATE
from twofold.runtime.compiled import LARGEST_DIFFERENCE
from twofold.runtime.graph import arrays

FILE = "parity.json"
NEAR = 1e-3
"""Largest difference of pixels and spectrograms that `read.py` makes."""
Arrays = Mapping[str, NDArray[Any]]
Run = Callable[[str, Arrays], dict[str, NDArray[Any]]]
"""Computes the outputs of a written graph, by name, from its inputs."""


@dataclass(frozen=True)
class Parity:
    """Result of comparing an export with torch on sample inputs."""

    format: str
    version: str
    """Version of the library that computed it."""
    precision: str
    largest_difference: float
    """Largest difference, as a share of the largest value or of one."""
    agreement: float
    """Share of contexts ranked alike, or of answers that are equal."""
    samples: int
    tolerance: float = LARGEST_DIFFERENCE
    graphs: dict[str, float] = field(default_factory=dict)
    """Largest difference of each graph."""
    notes: tuple[str, ...] = ()
    """Differences that remain by design."""
    int8: dict[str, float] = field(default_factory=dict)
    """R@1 in float32 and in int8, and the number of rows."""

    def check(self) -> Parity:
        """Refuses an export that differs from torch."""
        if not self.largest_difference <= self.tolerance:
            raise TwofoldError(
                f"--to {self.format}: differs from torch by {self.largest_difference:.1e}; nothing is written"
            )
        if self.agreement < 1:
            raise TwofoldError(
                f"--to {self.format}: {1 - self.agreement:.0%} of the samples are ranked or answered otherwise than by "
                "torch; nothing is written"
            )
        return self

    def write(self, folder: Path) -> None:
        """Writes the certificate."""
        storage.write_json(folder / FILE, asdict(self))


def of_graphs(
    model: Model, graphs: list[Graph], run: Run, folder: Path, abouts: Mapping[str, Any], known: Parity
) -> Parity:
    """Compares every written graph with torch, then the whole from the values on."""
    each = {graph.name: max(_differences(graph, run)) for graph in graphs}
    for graph in graphs:
        if graph.input is not None:
            _check_reading(graph, abouts[graph.name], folder)
    count = sum(len(graph.samples) for graph in graphs)
    certificate = replace(known, graphs=each, largest_difference=max(each.values()), samples=count)
    if isinstance(model, Ranker):
        return replace(certificate, agreement=_rankings(model, run, folder, abouts))
    return replace(certificate, agreement=_answers(next(graph for graph in graphs if graph.name == MODEL), run))


def difference(ours: Any, theirs: Any) -> float:
    """Largest difference, as a share of the largest value or of one; infinite where shapes or infinities differ."""
    values, expected = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    finite = np.isfinite(expected)
    if values.shape != expected.shape or not np.array_equal(values[~finite], expected[~finite]):
        return float("inf")
    if not finite.any():
        return 0.0
    largest = float(np.abs(values[finite] - expected[finite]).max()) / max(1.0, float(np.abs(expected[finite]).max()))
    return largest if np.isfinite(largest) else float("inf")


def agreement(ours: NDArray[Any], theirs: NDArray[Any]) -> float:
    """Share of contexts whose candidates have the same order; scores that are equal but for rounding may change
    places."""
    order = np.argsort(-ours, axis=1, kind="stable")
    ranked = np.take_along_axis(theirs, order, axis=1).astype(np.float64)
    slack = 2 * LARGEST_DIFFERENCE * max(1.0, float(np.abs(theirs).max()))
    return float((np.diff(ranked, axis=1) <= slack).all(1).mean())


def scores_of(run: Run, read_side: Callable[[str], Arrays], pairs: Arrays | None, alone: bool) -> NDArray[Any]:
    """Scores (contexts, candidates) by the written graphs."""
    total: NDArray[Any] | float = 0.0
    if alone:
        sides = [run(side, read_side(side)) for side in (CONTEXT, CANDIDATE)]
        total = run(SCORE, by_side(*sides))[SCORES]
    if pairs is not None:
        joint = run(PAIR, pairs)[SCORES]
        total = total + (joint.reshape(total.shape) if alone else joint)  # type: ignore[union-attr]
    return np.asarray(total)


def _rankings(model: Ranker, run: Run, folder: Path, abouts: Mapping[str, Any]) -> float:
    """Agreement of the rankings of sample candidates, from the values on."""
    contexts, candidates = values_of(model.contexts), values_of(model.candidates)
    sides = {CONTEXT: contexts, CANDIDATE: candidates}
    with torch.no_grad():
        expected = model.score(contexts, model.prepare(candidates)).numpy()
    pairs = None
    if model.joined:
        pairs = read(abouts[PAIR], [(first, second) for first in contexts for second in candidates], folder)
    ours = scores_of(run, lambda side: read(abouts[side], sides[side], folder), pairs, model.reads_alone)
    return agreement(ours.reshape(expected.shape), expected)


def _answers(graph: Graph, run: Run) -> float:
    """Share of equal answers: the most likely label, tag, head, or class of a pixel."""
    equal = total = 0
    for sample in graph.samples:
        ours, theirs = run(graph.name, arrays(sample)), arrays(graph.expected(sample))
        for name, expected in theirs.items():
            axis = 1 if expected.ndim > 3 and name.endswith("logits") else -1
            slack = LARGEST_DIFFERENCE * max(1.0, float(np.abs(expected[np.isfinite(expected)]).max(initial=0.0)))
            chosen = np.take_along_axis(expected, ours[name].argmax(axis)[_new_axis(axis, expected.ndim)], axis)
            alike = chosen >= expected.max(axis, keepdims=True) - 2 * slack
            equal, total = equal + int(alike.sum()), total + alike.size
    return equal / max(total, 1)


def _new_axis(axis: int, dimensions: int) -> tuple[Any, ...]:
    """Index that adds an axis of size one."""
    index: list[Any] = [slice(None)] * (dimensions - 1)
    index.insert(axis % dimensions, None)
    return tuple(index)


def _differences(graph: Graph, run: Run) -> list[float]:
    """Differences of one graph over its samples; vectors of padding are nobody's."""
    differences = [0.0]
    for sample in graph.samples:
        ours, theirs = run(graph.name, arrays(sample)), arrays(graph.expected(sample))
        real = theirs.get(MASK)
        for name, expected in theirs.items():
            both = [ours[name], expected]
            if real is not None and name == VECTORS and ours[name].shape == expected.shape:
                both = [values[real] for values in both]
            differences.append(difference(*both))
    return differences


def _check_reading(graph: Graph, about: Mapping[str, Any], folder: Path) -> None:
    """Compares the arrays that `read.py` makes with those of the input itself."""
    assert graph.input is not None
    if graph.name == PAIR:
        return  # made of both sides; the rankings tell
    singles = graph.samples[-len(values_of(graph.input)) :]
    for value, sample in zip(values_of(graph.input), singles, strict=True):
        ours = read(dict(about), [value], folder)
        for name, expected in arrays(sample).items():
            exact = not np.issubdtype(expected.dtype, np.floating)
            near = np.array_equal(ours[name], expected) if exact else difference(ours[name], expected) < NEAR
            if not near:
                raise TwofoldError(
                    f"the graph '{graph.name}': read.py makes other {name} of a sample; nothing is written"
                )
