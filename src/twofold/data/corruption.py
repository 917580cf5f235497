"""What is done to texts so that something can be learned from them alone: masks, noise, and replies of others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from twofold.data.fields import SourceField
from twofold.data.tokenizer import Ids, TextTokenizer
from twofold.types import Batch, Target

KEPT, DRAWN = 0.1, 0.1
"""Of the tokens to be guessed, the shares that are read as they are, and as any other (Devlin et al., 2018)."""
Draw = np.random.Generator


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
        noisy: list[int] = [int(one) for one in ids]
        if self.delete:
            kept = draw.random(len(noisy)) >= self.delete
            noisy = [one for one, keep in zip(noisy, kept, strict=True) if keep] or noisy[:1]
        if self.swap:
            order = np.argsort(np.arange(len(noisy)) + draw.random(len(noisy)) * (self.swap + 1), kind="stable")
            noisy = [noisy[one] for one in order]
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


@dataclass(frozen=True)
class Corruption:
    """All that is done to the texts of a model, and what its decoders must make of it."""

    tokenizer: TextTokenizer
    guessing: Mapping[str, float] = field(default_factory=dict)
    """Decoders that guess masked tokens, each with the share of them; 0 guesses the next token at every place."""
    telling: Sequence[str] = ()
    """Decoders that tell whether the second text of a pair is another's."""
    strangers: float = 0.5
    """How often it is, where some decoder tells."""
    noise: Noise | None = None

    def batch(
        self,
        source: SourceField,
        items: Sequence[Any],
        draws: Sequence[Draw],
        other: Callable[[Draw], Any],
        progress: float = 0.0,
    ) -> Batch:
        """Items as a batch with the targets that come from them; `other` draws the item of any row."""
        strange = np.zeros(len(items), bool)
        if self.telling:
            shown = [
                (item[0], other(draw)[1]) if draw.random() < self.strangers else item
                for item, draw in zip(items, draws, strict=True)
            ]
            # Where the same text was drawn, it is no stranger.
            strange = np.array([not np.array_equal(one[1], item[1]) for one, item in zip(shown, items, strict=True)])
            items = shown
        if self.noise:
            items = [self.noise.of(item, self.tokenizer.mask, draw) for item, draw in zip(items, draws, strict=True)]
        batch = source.batch(items, progress)
        targets, right = {}, batch.tokens
        for name, share in self.guessing.items():
            if share:
                batch, chosen = self._masked(batch, share, draws)
                targets[name] = Target(right, chosen)
            else:
                targets[name] = next_tokens(batch)
        for name in self.telling:
            told = torch.from_numpy(strange).long()[:, None]
            targets[name] = Target(told, torch.ones_like(told, dtype=torch.bool))
        return replace(batch, targets=targets)

    def _masked(self, batch: Batch, share: float, draws: Sequence[Draw]) -> tuple[Batch, torch.Tensor]:
        """What is read, and where to guess; at least one token of every row, never one of the frame."""
        tokens, real = batch.tokens.numpy(), batch.mask.numpy()
        ordinary = real & ~np.isin(tokens, self.tokenizer.structure)
        chosen = np.zeros_like(real)
        read = tokens.copy()
        for row, draw in enumerate(draws):
            places = np.flatnonzero(ordinary[row])
            if not len(places):
                continue
            taken = places[draw.random(len(places)) < share]
            taken = taken if len(taken) else places[[draw.integers(len(places))]]
            chosen[row, taken] = True
            read[row, taken] = self._shown(tokens[row, taken], draw)
        return replace(batch, tokens=torch.from_numpy(read)), torch.from_numpy(chosen)

    def _shown(self, tokens: NDArray[np.int64], draw: Draw) -> NDArray[np.int64]:
        """Most as the mask, some as they are, some as any other token."""
        lot = draw.random(len(tokens))
        drawn = draw.integers(len(self.tokenizer), size=len(tokens))
        return np.where(lot < KEPT, tokens, np.where(lot < KEPT + DRAWN, drawn, self.tokenizer.mask))


def next_tokens(batch: Batch) -> Target:
    """At every place but the last the token that follows."""
    following = torch.roll(batch.tokens, -1, 1)
    counts = torch.roll(batch.mask, -1, 1) & batch.mask
    counts[:, -1] = False
    return Target(following, counts)
