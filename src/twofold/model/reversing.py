"""Reversed rankers, which find contexts for candidates with the same weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

from twofold.model.config import MAIN

if TYPE_CHECKING:
    from twofold.model.ranker import Ranker


def reversed_ranker(ranker: Ranker) -> Ranker:
    """Returns the ranker that finds contexts for candidates, with the same weights."""
    swapped = ranker.config.reversed()
    twin = type(ranker)(swapped, dict(zip(swapped.tokenizers(), ranker.tokenizers.values(), strict=True)))
    twin.decoders[MAIN] = ranker.head.reversed()
    twin.encoder = ranker.candidate_encoder
    twin.candidate_tower = None if ranker.candidate_tower is None else ranker.encoder
    twin.is_reversed = not ranker.is_reversed
    return twin.to(ranker.device).train(ranker.training)
