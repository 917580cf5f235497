"""Warm-up: every model reads a few samples before the service says that it is ready."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Any

from twofold.errors import TwofoldError
from twofold.inputs import Input
from twofold.model import Ranker
from twofold.serve.readings import scoring
from twofold.serve.registry import Registry, ServedModel

SAMPLES = 4


async def warm(registry: Registry) -> None:
    """Has every model answer samples of its inputs, and every index a search."""
    for served in registry.models.values():
        await _warm_model(served)
    for chosen in registry.indexes.values():
        index, sample = chosen.index, _samples(chosen.served.ranker.contexts)[0]
        await chosen.served.batcher.call(partial(index.search, sample, 1))


async def _warm_model(served: ServedModel) -> None:
    model = served.model
    if isinstance(model, Ranker):
        contexts, candidates = (side.items_of(_samples(side)) for side in (model.contexts, model.candidates))
        await served.batcher.run(scoring(model, contexts[:1], candidates))
        await served.batcher.run(scoring(model, contexts, candidates[:1]))
        return
    samples = _samples(model.input)
    for decoder in model.decoders if samples else ():
        with contextlib.suppress(TwofoldError):  # a language model for pre-training answers nothing
            await served.batcher.call(partial(model.predict, samples[:1], decoder=decoder))


def _samples(side: Input[Any]) -> list[Any]:
    """Values that the input reads: short ones and longer ones."""
    try:
        samples = side.samples()
    except TwofoldError:  # an input of someone's own, without samples
        return []
    return [sample for sample in samples if not isinstance(sample, str) or sample.strip()][:SAMPLES]
