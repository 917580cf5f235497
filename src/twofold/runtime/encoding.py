"""Candidates of a ranker encoded batch by batch, as several processes do together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from numpy.typing import NDArray

from twofold import runtime as runtimes
from twofold.decoders import Vectors
from twofold.model.load import load_ranker
from twofold.model.ranker import Ranker
from twofold.model.representation import CANDIDATES

Encode = Callable[[Sequence[Any]], Sequence[NDArray[Any]]]


def encoder_of(ranker: Ranker) -> Encode:
    """Returns a function from items that are read together to their vectors as stored, and the number of each."""
    side, device = ranker.side(CANDIDATES), ranker.device

    @torch.no_grad()
    def encode(items: Sequence[Any]) -> Sequence[NDArray[Any]]:
        with ranker.autocast():
            kept = side.represent(items, None, device)
        stored = ranker.head.stored(Vectors(kept.vectors.float(), kept.mask))
        return stored.present.cpu().numpy(), stored.counts.cpu().numpy()

    return encode


def encoder_named(name: str, runtime: str, precision: str, reverse: bool, allow_code: bool) -> tuple[str, Encode]:
    """Loads a ranker; returns its fingerprint and its encoder."""
    ranker = load_ranker(name, allow_code).eval()
    runtimes.install(ranker, runtime, precision)
    ranker = ranker.reversed() if reverse else ranker
    return ranker.fingerprint(), encoder_of(ranker)
