"""Writes the files of a ranker that needs no torch: settings, tokenizer, and graphs of its heads."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from twofold import storage
from twofold.config import unstructure
from twofold.data.candidates import Candidate
from twofold.decoders import RankingDecoder, Vectors
from twofold.errors import TwofoldError
from twofold.inputs import INPUT
from twofold.model import Ranker
from twofold.model.representation import CANDIDATES, CONTEXTS, Side
from twofold.runtime import graph, light_ranker, store
from twofold.runtime.compiled import CompiledEncoder
from twofold.runtime.flat import flatten, rebuilt
from twofold.runtime.light_ranker import ABOUT, CANDIDATE, CONTEXT, FORMAT, TOKENIZER
from twofold.types import Batch, Hidden

SAMPLES = ("how do I list a folder?", "삼백 🙂", "a", "Returns the names of all files in a folder, sorted. " * 8)
"""Texts on which both ways of ranking are compared."""
TOLERANCE = {"float32": 1e-5, "bfloat16": 2e-2}
"""Largest difference of the scores, as a share of the largest score or of one."""


class Head(nn.Module):
    """Vectors of one side as a function of tensors: what a context is compared by, or what is stored of a candidate."""

    def __init__(self, head: RankingDecoder, side: Side, what: str, sample: Hidden, takes: tuple[str, ...]) -> None:
        super().__init__()
        self.head, self.side, self.what, self.sample, self.takes = head, side, what, sample, takes

    def forward(self, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        """Vectors (rows, vectors, width) and their mask."""
        hidden = rebuilt(self.sample, dict(zip(self.takes, tensors, strict=True)))
        kept: Vectors = self.side.keep(hidden)
        if self.what == CANDIDATES:
            kept = self.head.stored(kept)
        vectors, mask = kept.vectors.float(), kept.mask
        if self.what == CONTEXTS and not self.head.several:
            vectors = self.head.ceiling(Vectors(vectors, None))
        return vectors, torch.ones_like(vectors[..., 0], dtype=torch.bool) if mask is None else mask


def can_be_light(ranker: Ranker) -> bool:
    """Returns True if a ranker can rank texts without torch."""
    sides = (ranker.contexts, ranker.candidates)
    texts = all(side.config.without_torch and side.config.before() is None for side in sides)
    engines = all(isinstance(encoder.engine, CompiledEncoder) for encoder in ranker.encoders())
    return texts and engines and ranker.head.softmax_scale is not None and not ranker.joined and not ranker.is_reversed


@torch.no_grad()
def write(ranker: Ranker, folder: Path) -> bool:
    """Writes the files of a ranker, and compares them with it first; returns False if it cannot be done."""
    if not can_be_light(ranker) or _can_be_opened(ranker, folder):
        return False
    try:
        with ranker.evaluating(), storage.new_folder(folder) as aside:
            about = _about(ranker, aside)
            storage.write_checked_json(aside / ABOUT, about)
            _compare(ranker, aside, about)
    except (TwofoldError, OSError):
        return False
    store.remove_oldest_rankers()
    return True


def _can_be_opened(ranker: Ranker, folder: Path) -> bool:
    """Returns True if the files are there and whole; removes those that are damaged or of another version."""
    engine = ranker.encoder.engine
    assert isinstance(engine, CompiledEncoder)
    if not folder.exists():
        return False
    if light_ranker.open_ranker(folder, engine.engine, torch.get_num_threads()) is not None:
        return True
    shutil.rmtree(folder, ignore_errors=True)
    return False


def _about(ranker: Ranker, aside: Path) -> dict[str, Any]:
    ranker.tokenizer.save(aside / TOKENIZER)
    engines = [encoder.engine for encoder in ranker.encoders()]
    engine = engines[0]
    assert isinstance(engine, CompiledEncoder)
    about: dict[str, Any] = {
        "format": FORMAT,
        "version": engine.engine.version(),
        "precision": engine.precision,
        "fingerprint": ranker.fingerprint(),
        "kind": ranker.kind,
        "softmax_scale": ranker.head.softmax_scale,
        "grouped": ranker.head.several,
        "sha256": {TOKENIZER: storage.sha256(aside / TOKENIZER)},
    }
    for what, name in ((CONTEXTS, CONTEXT), (CANDIDATES, CANDIDATE)):
        about[name] = side = _write_side(ranker, what, aside)
        for file in (side["encoder"], side["head"]):
            about["sha256"][file] = storage.sha256(light_ranker._place(aside, file))
    return about


def _write_side(ranker: Ranker, what: str, aside: Path) -> dict[str, Any]:
    side = ranker.side(what)
    engine = side.encoder.engine
    assert isinstance(engine, CompiledEncoder)
    read = side.input.batch(side.input.items_of(list(SAMPLES)))
    batch = Batch({INPUT: read})
    form = engine.form(batch)
    if form is None:
        raise TwofoldError("the engine cannot compute the encoder")
    hidden = read.encode(side.encoder, batch)
    named = {name: tensor for name, tensor in flatten(hidden) if name in (*form.signature.gives, "mask", "tokens")}
    takes, file = tuple(named), f"{what}.onnx"
    module = Head(ranker.head, side, what, hidden, takes)
    graph.export_module(module, tuple(named.values()), takes, ("vectors", "there"), aside / file)
    prefix = f"inputs.{INPUT}."
    return {
        "input": unstructure(side.input.config),
        "encoder": f"engines/{graph.fingerprint(side.encoder, batch)}",
        "head": file,
        "takes": {name.removeprefix(prefix): name for name in form.signature.takes},
        "gives": list(form.signature.gives),
        "passes": [name for name in takes if name not in form.signature.gives],
    }


def _compare(ranker: Ranker, aside: Path, about: dict[str, Any]) -> None:
    """Compares the scores of both; differences are an error, and nothing is written."""
    engine = ranker.encoder.engine
    assert isinstance(engine, CompiledEncoder)
    light = light_ranker.open_ranker(aside, engine.engine, torch.get_num_threads())
    if light is None:
        raise TwofoldError("the files cannot be read")
    candidates = [Candidate(text, number) for number, text in enumerate(SAMPLES)]
    for text in SAMPLES:
        ours = {hit.id: hit.score for hit in light.rank(text, candidates, len(candidates))}
        theirs = {hit.id: hit.score for hit in ranker.rank(text, list(SAMPLES), len(SAMPLES))}
        largest = max(1.0, *map(abs, theirs.values()))
        if any(abs(ours[id] - score) > TOLERANCE[about["precision"]] * largest for id, score in theirs.items()):
            raise TwofoldError("the scores differ")
