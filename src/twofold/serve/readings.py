"""Readings of rankers: contexts, candidates and joined pairs become jobs that share batches with other requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from twofold.decoders import Vectors
from twofold.model import Ranker
from twofold.model.representation import CANDIDATES, CONTEXTS, PAIRS, padded
from twofold.model.vectors import finite, keep_items
from twofold.serve.jobs import Job, Reading


def reading(ranker: Ranker, what: str, items: Sequence[Any]) -> Reading:
    """Reads items of one side of a ranker, or pairs of both."""
    length = _pair_length(ranker) if what == PAIRS else ranker.side(what).input.length

    def read(values: list[Any]) -> Vectors:
        return keep_items(ranker, what, values)

    return Reading((id(ranker), what), items, [length(item) for item in items], read, joined)


def _pair_length(ranker: Ranker) -> Callable[[Any], int]:
    def length(item: Any) -> int:
        return ranker.contexts.length(item[0]) + ranker.candidates.length(item[1])

    return length


def joined(parts: list[Vectors]) -> Vectors:
    """Joins vectors of parts of one reading."""
    masks = [part.mask for part in parts if part.mask is not None]
    if masks:
        longest = max(mask.shape[1] for mask in masks)
        parts = [padded(part, longest) for part in parts]
        masks = [part.mask for part in parts if part.mask is not None]
    return Vectors(torch.cat([part.vectors for part in parts]), torch.cat(masks) if masks else None)


def scoring(ranker: Ranker, contexts: Sequence[Any], candidates: Sequence[Any]) -> Job:
    """Scores each context with each candidate, (contexts, candidates); both are items of their inputs."""
    readings = []
    if ranker.reads_alone:
        readings += [reading(ranker, CONTEXTS, contexts), reading(ranker, CANDIDATES, candidates)]
    if ranker.joined:
        readings.append(reading(ranker, PAIRS, [(context, other) for context in contexts for other in candidates]))

    @torch.no_grad()
    def finish(results: list[Any]) -> Any:
        scores: Tensor | None = None
        if ranker.reads_alone:
            scores = ranker.head.score(results[0], results[1])
        if ranker.joined:
            joint = results[-1].vectors.view(len(contexts), len(candidates))
            scores = joint if scores is None else joint + scores
        assert scores is not None
        return finite("scores", scores).float().cpu().numpy()

    return Job(finish, tuple(readings))
