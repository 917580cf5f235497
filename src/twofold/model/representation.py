"""What a ranker keeps of a batch, read in chunks of like length, and the loss over it, which needs no encoder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor

from twofold.data.batches import by_length
from twofold.decoders import Contexts
from twofold.errors import NOT_NUMBERS, TwofoldError
from twofold.inputs import INPUT, Input, Unread
from twofold.layers.pooling import BLOCK, gather_rows
from twofold.losses import ScoredRows
from twofold.outputs.ranking import CANDIDATE, RankingTarget
from twofold.progress import Report
from twofold.types import Batch, Encoder, Hidden, Loss

if TYPE_CHECKING:
    from twofold.model.ranker import Ranker

CONTEXTS, CANDIDATES, PAIRS = "contexts", "candidates", "pairs"
"""What of a batch is read: each side alone, or contexts and candidates as one text."""
CHUNK_TOKENS = 1024
"""Rows × longest that are read at a time, unless a training says."""


@dataclass(frozen=True)
class Side:
    """What is read by itself: contexts, candidates, or pairs of both as one text."""

    input: Input[Any]
    """How it is read."""
    encoder: Encoder
    keep: Callable[[Hidden], Contexts]
    """What the decoder keeps of it: vectors, and which of them are there."""

    def represent(self, items: Sequence[Any], device: torch.device) -> Contexts:
        """What the decoder keeps of some items, read together."""
        read = self.input.batch(items).to(device)
        return self.keep(read.encode(self.encoder, Batch({INPUT: read})))


@dataclass(frozen=True)
class Represented:
    """What the decoder keeps of a batch."""

    vectors: dict[str, Tensor]
    """Of contexts (contexts, codes, width), of own candidates (candidates, width), of pairs their scores (pairs,)."""
    mask: Tensor | None
    """(contexts, codes)"""

    def contexts(self) -> Contexts:
        return Contexts(self.vectors[CONTEXTS], self.mask)

    def detached(self) -> Represented:
        """The same values, from which gradients go no further."""
        return Represented({what: value.detach().requires_grad_() for what, value in self.vectors.items()}, self.mask)

    def gathered(self, target: RankingTarget) -> Tensor | None:
        """The candidates of all processes; none where each context is read with its own."""
        return None if PAIRS in self.vectors else gather_rows(self.vectors[CANDIDATES], target.sizes)

    def loss(self, model: Ranker, target: RankingTarget) -> Loss:
        """The loss of a whole batch at once."""
        candidates = self.gathered(target)
        blocks = context_blocks(self, candidates, target)
        sums = [block_loss(model, self, candidates, target, start, stop) for start, stop in blocks]
        return Loss(torch.stack(sums).sum(), len(target.tokens))


@dataclass(frozen=True)
class Chunk:
    """Some of what is read, together."""

    what: str
    numbers: list[int]


class Chunks:
    """A batch in chunks of like length, each of which is read by itself."""

    def __init__(self, model: Ranker, batch: Batch, tokens: int = CHUNK_TOKENS) -> None:
        self.model, target = model, model.target_of(batch)
        contexts, candidates = (cast(Unread[Any], batch.inputs[name]).items for name in (INPUT, CANDIDATE))
        self.items: dict[str, Sequence[Any]] = {}
        if model.reads_alone:
            read = np.unique(target.asked) if model.joined else target.own
            self.items = {CONTEXTS: contexts, CANDIDATES: [candidates[number] for number in read]}
        if model.joined:
            rows = zip(contexts, target.asked, strict=True)
            self.items[PAIRS] = [(context, candidates[number]) for context, asked in rows for number in asked]
        self.chunks: list[Chunk] = []
        self.tokens = 0
        """Tokens that are read, padding included."""
        for what, items in self.items.items():
            lengths = list(map(model.side(what).input.length, items))
            for numbers in by_length(lengths, tokens):
                self.chunks.append(Chunk(what, numbers))
                self.tokens += len(numbers) * max(lengths[number] for number in numbers)

    def represent(self, chunk: Chunk) -> tuple[Tensor, Tensor | None]:
        """What the decoder keeps of a chunk, and of contexts the mask of their codes."""
        items = [self.items[chunk.what][number] for number in chunk.numbers]
        kept = self.model.side(chunk.what).represent(items, self.model.device)
        return kept.vectors, kept.mask

    def represent_all(self, seeds: Sequence[int] | None = None) -> Represented:
        """All chunks; with `seeds`, each draws its dropout from a seed of its own, to be replayed."""
        values: dict[str, list[Tensor]] = {what: [] for what in self.items}
        masks: list[Tensor] = []
        for number, chunk in enumerate(self.chunks):
            if seeds is not None:
                torch.manual_seed(seeds[number])
            value, mask = self.represent(chunk)
            values[chunk.what].append(value)
            if mask is not None:
                masks.append(mask)
        vectors = {what: self._in_order(what, parts) for what, parts in values.items()}
        return Represented(vectors, self._in_order(CONTEXTS, masks) if masks else None)

    def _in_order(self, what: str, parts: list[Tensor]) -> Tensor:
        """The rows of all chunks of one side, as they stand in the batch."""
        numbers = [number for chunk in self.chunks if chunk.what == what for number in chunk.numbers]
        return torch.cat(parts)[torch.from_numpy(np.argsort(numbers)).to(parts[0].device)]


@torch.no_grad()
def keep_items(model: Ranker, what: str, items: Sequence[Any], report: Report | None = None) -> Contexts:
    """What the decoder keeps of each item of one side, read in batches of like length."""
    side, done = model.side(what), 0
    vectors: Tensor | None = None
    mask: Tensor | None = None
    with model.evaluating(), model.autocast():
        for numbers in by_length(list(map(side.input.length, items)), CHUNK_TOKENS):
            kept = side.represent([items[number] for number in numbers], model.device)
            if vectors is None:
                vectors = kept.vectors.float().new_empty(len(items), *kept.vectors.shape[1:])
            vectors[numbers] = kept.vectors.float()
            if kept.mask is not None:
                mask = kept.mask.new_empty(len(items), kept.mask.shape[1]) if mask is None else mask
                mask[numbers] = kept.mask
            done += len(numbers)
            if report:
                report(done)
    if vectors is None:
        raise TwofoldError("there is nothing to read; give at least one text")
    # Scores of pairs are checked with what is added to them.
    return Contexts(vectors if what == PAIRS else finite("vectors", vectors), mask)


def finite(what: str, values: Tensor) -> Tensor:
    """The same values, none of which is nan or an infinity."""
    if not values.isfinite().all():
        raise TwofoldError(f"the {what} are {NOT_NUMBERS}")
    return values


def context_blocks(
    represented: Represented, candidates: Tensor | None, target: RankingTarget
) -> Iterator[tuple[int, int]]:
    """Contexts whose dot products with all candidates are held at a time."""
    rows = size = len(target.tokens)
    if candidates is not None:
        size = max(1, BLOCK // (represented.vectors[CONTEXTS].shape[1] * len(candidates)))
    for start in range(0, rows, size):
        yield start, min(rows, start + size)


def block_loss(
    model: Ranker, represented: Represented, candidates: Tensor | None, target: RankingTarget, start: int, stop: int
) -> Tensor:
    """The sum of the losses of some contexts."""
    if candidates is None:
        scored = _pairs_scored(model, represented, target)
    else:
        scores = model.head.score(represented.contexts().rows(start, stop), candidates).float()
        scored = _scored(model, scores, target, start, stop)
    return torch.stack([loss.sum(scored) * loss.weight for loss in model.config.losses]).sum()


def _scored(model: Ranker, scores: Tensor, target: RankingTarget, start: int, stop: int) -> ScoredRows:
    device, right, allowed = scores.device, target.tokens[start:stop], target.mask[start:stop]
    numbers = zip(right.tolist(), target.negatives[start:stop], strict=True)
    given = [torch.tensor([first, *negatives.tolist()], device=device) for first, negatives in numbers]
    teacher = [torch.from_numpy(np.array(each)) for each in target.scores[start:stop]]
    return ScoredRows(scores * model.output_scale, right.to(device), allowed.to(device), given, teacher)


def _pairs_scored(model: Ranker, represented: Represented, target: RankingTarget) -> ScoredRows:
    """Contexts that were read with each of their candidates as one text, the right one first."""
    asked = target.asked
    scores = represented.vectors[PAIRS].view(len(asked), -1)
    if model.head.compares:
        place = np.searchsorted(np.unique(asked), asked)
        compared = model.head.score(represented.contexts(), represented.vectors[CANDIDATES])
        scores = scores + compared.gather(1, torch.from_numpy(place).to(scores.device))
    first = torch.zeros(len(scores), dtype=torch.long, device=scores.device)
    allowed = torch.ones_like(scores, dtype=torch.bool)
    return ScoredRows(scores.float() * model.output_scale, first, allowed, [], [])
