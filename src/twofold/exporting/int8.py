"""Weights in int8 for ONNX Runtime, kept only if a ranker finds the right candidates as before."""

from __future__ import annotations

import copy
import logging
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import torch

from twofold.decoders import Vectors
from twofold.errors import TwofoldError
from twofold.exporting.files import Written, compared
from twofold.exporting.graphs import CONTEXT, MASK, PAIR, SCORE, SCORES, VECTORS
from twofold.exporting.job import Job
from twofold.exporting.parity import Parity, Run
from twofold.metrics import evaluate
from twofold.model import Model, Ranker
from twofold.model.representation import CANDIDATES, CONTEXTS, PAIRS, Seeds, Side
from twofold.outputs.ranking import CANDIDATE
from twofold.runtime.flat import flatten
from twofold.runtime.graph import arrays

MOST_LOST = 0.005
"""Largest fall of R@1."""
METRIC = "r@1"
GRAPHS = {CONTEXTS: CONTEXT, CANDIDATES: CANDIDATE, PAIRS: PAIR}


def check(model: Model, rows: bool) -> None:
    """Refuses int8 that could not be measured."""
    if not isinstance(model, Ranker):
        raise TwofoldError("--int8 is for rankers, whose R@1 tells what it costs; leave it out")
    if not rows:
        raise TwofoldError("--int8 needs --rows FILE: rows on which R@1 is measured before and after")


def quantized(job: Job, written: Written, folder: Path, parity: Parity) -> Parity:
    """Replaces the weights of all graphs that read inputs by int8; refuses a model that then ranks worse."""
    for name, path in written.files.items():
        if name != SCORE:
            quantize(path)
    model = cast(Ranker, job.model)
    before, after = (_recall(each, job) for each in (model, computed_by(model, written.opened())))
    if before - after > MOST_LOST:
        raise TwofoldError(
            f"--int8: R@1 falls from {before:.3f} to {after:.3f} on the given rows, by more than {MOST_LOST}; "
            "export without --int8"
        )
    measured = {"float32": before, "int8": after, "rows": float(len(job.rows))}
    certificate = compared(job, written, folder, parity)
    return replace(certificate, precision="int8", tolerance=1.0, int8=measured)


def quantize(path: Path) -> None:
    """Replaces a graph by one with weights in int8, per channel."""
    library: Any = import_module("onnxruntime.quantization")
    aside = path.with_suffix(".int8.onnx")
    kind = library.QuantType.QInt8
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)  # it recommends a step that is for convolutions
    try:
        library.quantize_dynamic(path, aside, per_channel=True, reduce_range=True, weight_type=kind)
    finally:
        logging.disable(before)
    aside.replace(path)


@dataclass(frozen=True)
class GraphSide(Side):
    """Side of a ranker whose representations a written graph computes."""

    run: Run
    name: str

    def represent(self, items: Any, seeds: Seeds, device: torch.device) -> Vectors:
        tensors = {name.replace(".", "_"): tensor for name, tensor in flatten(self.input.batch(items))}
        outputs = {name: torch.from_numpy(value) for name, value in self.run(self.name, arrays(tensors)).items()}
        if SCORES in outputs:
            return Vectors(outputs[SCORES])
        vectors = outputs[VECTORS]
        return Vectors(vectors if vectors.ndim > 2 else vectors[:, None], outputs.get(MASK))


def computed_by(model: Ranker, run: Run) -> Ranker:
    """Copy of a ranker that reads through written graphs; it shares the weights of the decoder."""

    def side(what: str) -> Side:
        known = model.side(what)
        return GraphSide(known.input, known.encoder, known.keep, run, GRAPHS[what])

    twin = copy.copy(model)
    twin.side = side  # type: ignore[method-assign]
    return twin


def _recall(model: Ranker, job: Job) -> float:
    report = evaluate(model, list(job.rows), timed=0)
    return report.metrics[METRIC]
