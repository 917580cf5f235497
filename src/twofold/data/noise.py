"""Noise on a text that a denoiser must undo: masked spans, lost tokens, tokens out of place."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from twofold.data.batches import Draw
from twofold.data.tokenizer import Ids


@dataclass(frozen=True)
class Noise:
    """What a denoiser must undo (Lewis et al., 2019)."""

    mask: float = 0.0
    """Share of the tokens that are masked."""
    delete: float = 0.0
    """Share of the tokens that are left out."""
    span: float = 3.0
    """How many tokens are masked in a row, in the mean; all of them are read as one mask."""
    swap: int = 0
    """How far a token may be moved."""

    def __post_init__(self) -> None:
        if not (0 <= self.mask < 1 and 0 <= self.delete < 1 and self.span >= 1 and self.swap >= 0):
            raise ValueError("mask and delete must be at least 0 and below 1, span at least 1, swap at least 0")

    def of(self, ids: Ids, mask: int, draw: Draw) -> list[int]:
        """The same text with its noise; something of it is always left."""
        noisy: list[int] = [int(token) for token in ids]
        if self.delete:
            kept = draw.random(len(noisy)) >= self.delete
            noisy = [token for token, keep in zip(noisy, kept, strict=True) if keep] or noisy[:1]
        if self.swap:
            order = np.argsort(np.arange(len(noisy)) + draw.random(len(noisy)) * (self.swap + 1), kind="stable")
            noisy = [noisy[place] for place in order]
        if self.mask:
            # So often that of all tokens, those inside a span too, the asked share is masked.
            starts = draw.random(len(noisy)) < self.mask / (self.mask + (1 - self.mask) * self.span)
            result, place, left = [], 0, 0
            while place < len(noisy):
                if starts[place]:
                    result.append(mask)
                    place += 1 + int(draw.poisson(self.span - 1))
                else:
                    result.append(noisy[place])
                    place, left = place + 1, left + 1
            noisy = result if left else noisy
        return noisy
