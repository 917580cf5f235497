"""What a ranker keeps of a batch, read in chunks of like length, and the loss over it, which needs no encoder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from twofold.data.batches import by_length
from twofold.decoders import Contexts
from twofold.errors import NOT_NUMBERS, TwofoldError
from twofold.inputs import INPUT, Input, Unread
from twofold.layers.gather import gather_rows
from twofold.layers.ranking import BLOCK
from twofold.losses import ScoredRows
from twofold.model.evaluating import Evaluating
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


@dataclass(frozen=True)
class Chunk:
    """Some of what is read, together."""

    what: str
    numbers: list[int]


class Chunks:
    """A batch in chunks of like length, each of which is read by itself."""

    def __init__(self, model: Ranker, batch: Batch, tokens: int = CHUNK_TOKENS) -> None:
        self.model, target = model, model.target_of(batch)
        contexts, candidates = (batch.inputs[name] for name in (INPUT, CANDIDATE))
        assert isinstance(contexts, Unread)
        assert isinstance(candidates, Unread)
        self.unread: dict[str, Unread[Any]] = {}
        if model.reads_alone:
            own = np.unique(target.asked) if model.joined else target.own
            read = Unread(candidates.input, [candidates.items[number] for number in own])
            self.unread = {CONTEXTS: contexts, CANDIDATES: read}
        if model.joined:
            rows = zip(contexts.items, target.asked, strict=True)
            pairs = [(context, candidates.items[number]) for context, asked in rows for number in asked]
            self.unread[PAIRS] = Unread(model.pair, pairs)
        lengths = {what: unread.lengths() for what, unread in self.unread.items()}
        self.chunks = [Chunk(what, numbers) for what, own in lengths.items() for numbers in by_length(own, tokens)]
        longest = [max(lengths[chunk.what][number] for number in chunk.numbers) for chunk in self.chunks]
        self.tokens = sum(len(chunk.numbers) * most for chunk, most in zip(self.chunks, longest, strict=True))
        """Tokens that are read, padding included."""

    def represent(self, chunk: Chunk) -> tuple[Tensor, Tensor | None]:
        """What the decoder keeps of a chunk, and of contexts the mask of their codes."""
        model, read = self.model, self.unread[chunk.what].read(chunk.numbers).to(self.model.device)
        batch = Batch({INPUT: read})
        if chunk.what == PAIRS:
            return model.joint(batch), None
        if chunk.what == CONTEXTS:
            contexts = model.head.context(read.encode(model.context_encoder, batch))
            return contexts.vectors, contexts.mask
        return model.head.candidate(read.encode(model.candidate_encoder, batch)), None

    def represent_all(self, seeds: Sequence[int] | None = None) -> Represented:
        """All chunks; with `seeds`, each draws its dropout from a seed of its own, to be replayed."""
        read = []
        for number, chunk in enumerate(self.chunks):
            if seeds is not None:
                torch.manual_seed(seeds[number])
            read.append(self.represent(chunk))
        values = [value for value, _ in read]
        vectors = {what: self._in_order(what, values) for what in self.unread}
        masks = [mask for _, mask in read if mask is not None]
        # Contexts are read first, so their masks stand where their values do.
        return Represented(vectors, self._in_order(CONTEXTS, masks) if masks else None)

    def _in_order(self, what: str, values: list[Tensor]) -> Tensor:
        """The rows of all chunks of one kind, as they stand in the batch."""
        chosen = [(chunk, value) for chunk, value in zip(self.chunks, values, strict=False) if chunk.what == what]
        order = torch.tensor([number for chunk, _ in chosen for number in chunk.numbers])
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order))
        return torch.cat([value for _, value in chosen])[back.to(chosen[0][1].device)]


@torch.no_grad()
def keep_items(
    model: Ranker,
    side: Input[Any],
    items: Sequence[Any],
    encoder: Encoder,
    keep: Callable[[Hidden], Contexts],
    report: Report | None = None,
) -> Contexts:
    """What `keep` makes of each item of one side, read in batches of like length."""
    vectors: Tensor | None = None
    mask: Tensor | None = None
    done = 0
    with Evaluating(model), model.autocast():
        for numbers in by_length([side.length(item) for item in items], CHUNK_TOKENS):
            batch = Batch({INPUT: side.batch([items[number] for number in numbers])}).to(model.device)
            kept = keep(batch.first.encode(encoder, batch))
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
    return Contexts(finite("vectors", vectors), mask)


def finite(what: str, values: Tensor) -> Tensor:
    """The same values, none of which is nan or an infinity."""
    if not values.isfinite().all():
        raise TwofoldError(f"the {what} are {NOT_NUMBERS}")
    return values


def loss_of(model: Ranker, represented: Represented, target: RankingTarget) -> Loss:
    """The loss of a whole batch at once."""
    candidates = represented.gathered(target)
    blocks = context_blocks(represented, candidates, target)
    sums = [block_loss(model, represented, candidates, target, start, stop) for start, stop in blocks]
    return Loss(torch.stack(sums).sum(), len(target.tokens))


def context_blocks(
    represented: Represented, candidates: Tensor | None, target: RankingTarget
) -> Iterator[tuple[int, int]]:
    """Contexts whose dot products with all candidates are held at a time."""
    rows, codes = len(target.tokens), represented.vectors[CONTEXTS].shape[1] if candidates is not None else 0
    size = rows if candidates is None else max(1, BLOCK // (codes * len(candidates)))
    for start in range(0, rows, size):
        yield start, min(rows, start + size)


def block_loss(
    model: Ranker, represented: Represented, candidates: Tensor | None, target: RankingTarget, start: int, stop: int
) -> Tensor:
    """The sum of the losses of some contexts."""
    scored = _pairs_scored(model, represented, target) if candidates is None else None
    if candidates is not None:
        scores = model.head.score(represented.contexts().rows(start, stop), candidates).float()
        scored = _scored(model, scores, target, start, stop)
    assert scored is not None
    losses = [loss.sum(scored) * loss.weight for loss in model.config.losses]
    return torch.stack(losses).sum() if len(losses) > 1 else losses[0]


def _scored(model: Ranker, scores: Tensor, target: RankingTarget, start: int, stop: int) -> ScoredRows:
    device, right = scores.device, target.tokens[start:stop]
    given = [
        torch.tensor([int(target.tokens[row]), *target.negatives[row].tolist()], device=device)
        for row in range(start, stop)
    ]
    teacher = [torch.from_numpy(np.array(target.scores[row])) for row in range(start, stop)]
    return ScoredRows(scores * model.output_scale, right.to(device), target.mask[start:stop].to(device), given, teacher)


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
