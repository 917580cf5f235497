"""Gradient caching (GradCache, Gao et al., 2021): large batches of a ranker within bounded memory.

The loss needs only the representation of each text. Its gradients are computed first; they are then passed on into the
encoder chunk by chunk, and each chunk is read a second time with the same dropout.
"""

from __future__ import annotations

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
    """Number of tokens above which a batch is read twice, so that memory does not grow with it."""
    hard_negatives: bool = False
    """True if a cross-encoder with `compare` learns from the negatives that its comparison scores best."""

    def backward(self, model: Ranker, batch: Batch, scale: float) -> Loss:
        """Adds the gradients of `scale` × the loss to every parameter."""
        if self.hard_negatives:
            batch = choose_hard_negatives(model, batch)
        target, chunks = model.target_of(batch), Chunks(model, batch, self.chunk_tokens)
        seeds = torch.randint(1 << 62, (len(chunks.chunks),)).tolist()
        twice = chunks.tokens > self.memory_tokens and len(chunks.chunks) > 1
        # 1. Represent: without a graph where everything is read a second time.
        with model.autocast(), torch.set_grad_enabled(not twice):
            represented = chunks.represent_all(seeds)
        # 2. Cache the gradients of the loss at the representations.
        cached = represented.detached()
        loss = _cache_gradients(model, cached, target, scale)
        # 3. Pass them on into the encoder.
        if twice:
            _read_again(model, chunks, cached, seeds)
        else:
            both = [(kept.vectors, cached.kept[what].vectors.grad) for what, kept in represented.kept.items()]
            learning = [(value, gradient) for value, gradient in both if value.requires_grad]  # not a frozen encoder's
            if learning:
                torch.autograd.backward([value for value, _ in learning], [gradient for _, gradient in learning])
        return loss


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


def _read_again(model: Ranker, chunks: Chunks, cached: Represented, seeds: list[int]) -> None:
    """Reads each chunk a second time with the same dropout, and passes its gradients on."""
    with model.autocast():  # around all chunks, which share the weights that it casts
        for number, chunk in enumerate(chunks.chunks):
            torch.manual_seed(seeds[number])
            again = chunks.represent(chunk).vectors
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
