"""Gradient caching (GradCache, Gao et al., 2021): large batches of a ranker within bounded memory.

The loss needs only the representation of each text. Its gradients are computed first; they are then passed on into the
encoder chunk by chunk. A chunk whose graph has no room in memory is read a second time with the same dropout.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import torch
from torch import Tensor

from twofold.inputs import INPUT
from twofold.layers.mixed_precision import float32
from twofold.model.config import MAIN
from twofold.model.ranker import Ranker
from twofold.model.representation import Chunks, Represented, block_loss, context_blocks
from twofold.outputs.ranking import CANDIDATE, RankingTarget, Unread
from twofold.types import Batch, Loss


@dataclass(frozen=True)
class GradientCaching:
    """Computes the gradients of a ranker's batches, chunk by chunk where a batch is large."""

    chunk_tokens: int
    """Number of tokens (rows × longest) that are read at a time."""
    memory_tokens: int
    """Number of tokens whose graphs may be in memory at a time; chunks that have no room are read twice, so that memory
    does not grow with the batch."""
    hard_negatives: bool = False
    """True if a cross-encoder with `compare` learns from the negatives that its comparison scores best."""

    def backward(self, model: Ranker, batch: Batch, scale: float) -> Loss:
        """Adds the gradients of `scale` × the loss to every parameter."""
        if self.hard_negatives:
            batch = choose_hard_negatives(model, batch)
        target, chunks = model.target_of(batch), Chunks(model, batch, self.chunk_tokens)
        seeds = torch.randint(1 << 62, (len(chunks.chunks),)).tolist()
        kept = chunks_with_room(chunks, self.memory_tokens)
        twice = sorted(set(range(len(chunks.chunks))) - set(kept))
        # 1. Represent: without a graph what is read a second time. A weight that autocast casts without a graph stays
        # without one, so the two have an autocast each.
        with model.autocast(), torch.no_grad():
            parts = chunks.represent_some(twice, seeds)
        with model.autocast():
            represented = chunks.joined(parts | chunks.represent_some(kept, seeds))
        # 2. Cache the gradients of the loss at the representations.
        cached = represented.detached()
        loss = _cache_gradients(model, cached, target, scale)
        # 3. Pass them on into the encoder, and free the graphs before others are made.
        both = [(side.vectors, cached.kept[what].vectors.grad) for what, side in represented.kept.items()]
        learning = [(value, gradient) for value, gradient in both if value.requires_grad]  # not a frozen encoder's
        if learning:
            torch.autograd.backward([value for value, _ in learning], [gradient for _, gradient in learning])
        _read_again(model, chunks, cached, seeds, twice)
        return loss


def chunks_with_room(chunks: Chunks, tokens: int) -> list[int]:
    """Numbers of the chunks whose graphs may be kept: with them, and one more while it is read again, at most `tokens`
    tokens have a graph."""
    numbers = range(len(chunks.chunks))
    if chunks.tokens <= tokens or len(numbers) == 1:
        return list(numbers)
    room, kept = tokens - max(chunk.tokens for chunk in chunks.chunks), []
    for number in numbers:
        if chunks.chunks[number].tokens <= room:
            kept.append(number)
            room -= chunks.chunks[number].tokens
    return kept


def _cache_gradients(model: Ranker, cached: Represented, target: RankingTarget, scale: float) -> Loss:
    """Adds the gradients of `scale` × the loss to the representations, one block of contexts at a time."""
    gathered = cached.gathered(target, model.symmetric)
    # Every block of contexts adds to the gradient of all candidates; only their sum goes back to the other processes.
    shared = None if gathered is None else gathered.detached()
    total = torch.zeros((), device=model.device)
    for start, stop in context_blocks(cached, shared, target):
        loss = block_loss(model, cached, shared, target, start, stop)
        (loss * scale).backward()  # type: ignore[no-untyped-call]
        total += loss.detach()
    if gathered is not None and shared is not None:
        for kept, leaf in zip(gathered.sides, shared.sides, strict=True):
            kept.vectors.backward(leaf.vectors.grad)  # type: ignore[no-untyped-call]
    return Loss(total, len(target.tokens))


def _read_again(model: Ranker, chunks: Chunks, cached: Represented, seeds: list[int], numbers: Sequence[int]) -> None:
    """Reads chunks a second time with the same dropout, and passes their gradients on."""
    with model.autocast():  # around all chunks, which share the weights that it casts
        for number in numbers:
            chunk = chunks.chunks[number]
            again = chunks.represent_some([number], seeds)[number].vectors
            if again.requires_grad:
                gradient: Tensor | None = cached.kept[chunk.what].vectors.grad
                assert gradient is not None
                gradient = gradient[chunk.numbers]
                if gradient.shape != again.shape:  # of a longer text in another chunk there are more vectors
                    gradient = gradient[:, : again.shape[1]]
                with float32(model.device.type):
                    again.backward(gradient)  # type: ignore[no-untyped-call]


@torch.no_grad()
def choose_hard_negatives(model: Ranker, batch: Batch) -> Batch:
    """Replaces the drawn negatives of each context by as many that the comparison scores best."""
    target = model.target_of(batch)
    contexts, candidates = (cast(Unread, batch.inputs[name]) for name in (INPUT, CANDIDATE))
    assert target.drawn is not None
    with model.evaluating():
        asked = model.keep_contexts(contexts.items)
        scores = model.head.score(asked, model.keep_candidates(candidates.items)).cpu()
    right = target.tokens.cpu()
    scores = scores.masked_fill(~target.mask.cpu(), -torch.inf)
    scores[torch.arange(len(right)), right] = -torch.inf
    hardest = scores.topk(target.drawn.shape[1]).indices.numpy()
    return batch.with_target(MAIN, replace(target, drawn=hardest))
