"""Representations of a ranking batch, computed in chunks of similar length, and the loss over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor

from twofold.data.batches import CHUNK_TOKENS, least_padded
from twofold.decoders import Vectors
from twofold.inputs import INPUT, Input
from twofold.layers.mixed_precision import float32, widened
from twofold.layers.pooling import BLOCK
from twofold.losses import ScoredRows
from twofold.outputs.ranking import CANDIDATE, RankingTarget, Unread
from twofold.types import Batch, Encoder, Hidden, InputBatch, Loss

if TYPE_CHECKING:
    from twofold.model.ranker import Ranker

CONTEXTS, CANDIDATES, PAIRS = "contexts", "candidates", "pairs"
"""Names of the things that are read: each side alone, or pairs of both joined."""
ANY = 10**12
"""More tokens than a batch has."""
Seeds = Sequence[Sequence[int]] | None


@dataclass(frozen=True)
class Side:
    """Input, encoder and representation of contexts, candidates or joined pairs."""

    input: Input[Any]
    """Input that turns items into batches."""
    encoder: Encoder
    keep: Callable[[Hidden], Vectors]
    """Decoder method that turns the encoder's output into vectors."""

    def represent(self, items: Sequence[Any], seeds: Seeds, device: torch.device) -> Vectors:
        """Representations of items that are read together; `seeds` are their random seeds."""
        draws = None if seeds is None else [np.random.default_rng(seed) for seed in seeds]
        read = self.input.batch(items, draws).to(device)
        return self.represent_read(read)

    def represent_read(self, read: InputBatch) -> Vectors:
        """Representations of items as tensors; pooling and normalization are float32."""
        hidden = read.encode(self.encoder, Batch({INPUT: read}))
        states, summary = (None if field is None else widened(field) for field in (hidden.states, hidden.summary))
        with float32(hidden.mask.device.type):
            return self.keep(replace(hidden, states=states, summary=summary))


@dataclass(frozen=True)
class Gathered:
    """Representations gathered from all processes."""

    candidates: Vectors
    contexts: Vectors | None
    """Contexts, for losses that compare candidates with all contexts."""

    @property
    def sides(self) -> list[Vectors]:
        """Gathered representations, candidates first."""
        return [self.candidates] if self.contexts is None else [self.candidates, self.contexts]

    def detached(self) -> Gathered:
        """Copy that is detached from the graph."""
        return Gathered(detached(self.candidates), None if self.contexts is None else detached(self.contexts))


@dataclass(frozen=True)
class Represented:
    """Representations of a batch."""

    kept: dict[str, Vectors]
    """Vectors of contexts and of this process's candidates, or scores of pairs (pairs,)."""

    def detached(self) -> Represented:
        """Copy that is detached from the graph."""
        return Represented({what: detached(kept) for what, kept in self.kept.items()})

    def gathered(self, target: RankingTarget, symmetric: bool) -> Gathered | None:
        """Gathers candidates, and contexts for symmetric losses; None for cross-encoders."""
        if PAIRS in self.kept:
            return None
        contexts = gather(self.kept[CONTEXTS], target.context_sizes) if symmetric else None
        return Gathered(gather(self.kept[CANDIDATES], target.sizes), contexts)

    def scores(self, model: Ranker, target: RankingTarget) -> Tensor:
        """Scores as losses see them: (contexts, candidates), of a cross-encoder (contexts, 1 + negatives)."""
        gathered = self.gathered(target, symmetric=False)
        if gathered is None:
            return _pairs_scored(model, self, target).scores
        return model.head.score(self.kept[CONTEXTS], gathered.candidates) * model.output_scale

    def loss(self, model: Ranker, target: RankingTarget) -> Loss:
        """Loss of a whole batch at once."""
        gathered = self.gathered(target, model.symmetric)
        blocks = context_blocks(self, gathered, target)
        sums = [block_loss(model, self, gathered, target, start, stop) for start, stop in blocks]
        return Loss(torch.stack(sums).sum(), len(target.tokens))


@dataclass(frozen=True)
class Chunk:
    """Items that are read together."""

    what: str
    numbers: list[int]
    tokens: int
    """Number of tokens, padding included."""


class Chunks:
    """Chunks of a batch, of similar length, each read by itself."""

    def __init__(self, model: Ranker, batch: Batch, tokens: int = CHUNK_TOKENS) -> None:
        self.model, target = model, model.target_of(batch)
        contexts, candidates = (cast(Unread, batch.inputs[name]) for name in (INPUT, CANDIDATE))
        self.items: dict[str, Sequence[Any]] = {}
        self.seeds: dict[str, Seeds] = {PAIRS: None}
        if model.reads_alone:
            read = np.unique(target.asked) if model.joined else target.local_candidates
            self.items = {CONTEXTS: contexts.items, CANDIDATES: [candidates.items[number] for number in read]}
            theirs = candidates.seeds and [candidates.seeds[number] for number in read]
            self.seeds |= {CONTEXTS: contexts.seeds, CANDIDATES: theirs}
        if model.joined:
            rows = zip(contexts.items, target.asked, strict=True)
            self.items[PAIRS] = [(context, candidates.items[number]) for context, asked in rows for number in asked]
        self.chunks: list[Chunk] = []
        for what, items in self.items.items():
            input = model.side(what).input
            lengths = list(map(input.length, items))
            for together in input.groups(items, ANY):  # that may share a chunk at all, such as images of one size
                for chosen in least_padded([lengths[number] for number in together], tokens):
                    numbers = [together[number] for number in chosen]
                    padded = len(numbers) * max(lengths[number] for number in numbers)
                    self.chunks.append(Chunk(what, numbers, padded))

        self.tokens = sum(chunk.tokens for chunk in self.chunks)

    def represent(self, chunk: Chunk) -> Vectors:
        """Representations of a chunk."""
        items, seeds = self.items[chunk.what], self.seeds[chunk.what]
        chosen = seeds and [seeds[number] for number in chunk.numbers]
        side = self.model.side(chunk.what)
        return side.represent([items[number] for number in chunk.numbers], chosen, self.model.device)

    def represent_all(self, seeds: Sequence[int] | None = None) -> Represented:
        """Representations of all chunks; `seeds` fix the dropout of each chunk, to be replayed."""
        return self.joined(self.represent_some(range(len(self.chunks)), seeds))

    def represent_some(self, numbers: Sequence[int], seeds: Sequence[int] | None = None) -> dict[int, Vectors]:
        """Representations of some chunks, by number."""
        parts = {}
        for number in numbers:
            if seeds is not None:
                torch.manual_seed(seeds[number])
            parts[number] = self.represent(self.chunks[number])
        return parts

    def joined(self, parts: Mapping[int, Vectors]) -> Represented:
        """Joins the representations of all chunks."""
        sides: dict[str, list[Vectors]] = {what: [] for what in self.items}
        for number, chunk in enumerate(self.chunks):
            sides[chunk.what].append(parts[number])
        return Represented({what: self._in_order(what, chunks) for what, chunks in sides.items()})

    def _in_order(self, what: str, parts: list[Vectors]) -> Vectors:
        """Joins the rows of one side's chunks in the order of the batch."""
        numbers = [number for chunk in self.chunks if chunk.what == what for number in chunk.numbers]
        if parts[0].mask is not None:
            longest = max(part.vectors.shape[1] for part in parts)
            parts = [padded(part, longest) for part in parts]
        masks = [part.mask for part in parts if part.mask is not None]
        whole = Vectors(torch.cat([part.vectors for part in parts]), torch.cat(masks) if masks else None)
        return whole[torch.from_numpy(np.argsort(numbers)).to(whole.vectors.device)]


def detached(kept: Vectors) -> Vectors:
    """Copy that is detached from the graph."""
    return Vectors(kept.vectors.detach().requires_grad_(), kept.mask)


def padded(kept: Vectors, length: int) -> Vectors:
    """Pads each row to the given number of vectors."""
    assert kept.mask is not None
    short = length - kept.vectors.shape[1]
    return Vectors(F.pad(kept.vectors, (0, 0, 0, short)), F.pad(kept.mask, (0, short))) if short else kept


def gather(kept: Vectors, sizes: list[int]) -> Vectors:
    """Gathers the rows of all processes in order, gradients included; `sizes` are their numbers of rows."""
    if len(sizes) == 1:
        return kept
    mask = None
    if kept.mask is not None:
        longest = torch.tensor(kept.vectors.shape[1])
        dist.all_reduce(longest, dist.ReduceOp.MAX)
        kept = padded(kept, int(longest))
        assert kept.mask is not None
        mask = gather_rows(kept.mask.byte(), sizes).bool()
    return Vectors(gather_rows(kept.vectors, sizes), mask)


def context_blocks(
    represented: Represented, gathered: Gathered | None, target: RankingTarget
) -> Iterator[tuple[int, int]]:
    """Ranges of contexts whose dot products with all candidates fit in memory."""
    rows = size = len(target.tokens)
    if gathered is not None:
        numbers = gathered.candidates.vectors[..., 0].numel()
        size = max(1, BLOCK // (represented.kept[CONTEXTS].vectors.shape[1] * numbers))
    for start in range(0, rows, size):
        yield start, min(rows, start + size)


def block_loss(
    model: Ranker, represented: Represented, gathered: Gathered | None, target: RankingTarget, start: int, stop: int
) -> Tensor:
    """Sum of the losses of a range of contexts."""
    back = None
    if gathered is None:
        scored = _pairs_scored(model, represented, target)
    else:
        scores = model.head.score(represented.kept[CONTEXTS][start:stop], gathered.candidates)
        scored = _scored(model, scores, target, start, stop)
        back = _scored_back(model, gathered, target, start, stop)
    return torch.stack([loss.both_ways(scored, back) * loss.weight for loss in model.config.losses]).sum()


def _scored_back(model: Ranker, gathered: Gathered, target: RankingTarget, start: int, stop: int) -> ScoredRows | None:
    """Scores of the right candidates among the contexts of all processes, for symmetric losses."""
    if gathered.contexts is None or target.allowed_contexts is None:
        return None
    right = gathered.candidates[target.tokens[start:stop]]
    scores = model.head.score(gathered.contexts, right).T * model.output_scale  # (candidates, contexts)
    first = sum(target.context_sizes[: target.rank])
    right_contexts = torch.arange(first + start, first + stop, device=scores.device)
    return ScoredRows(scores, right_contexts, target.allowed_contexts[start:stop].to(scores.device), [], [])


def _scored(model: Ranker, scores: Tensor, target: RankingTarget, start: int, stop: int) -> ScoredRows:
    device, right, allowed = scores.device, target.tokens[start:stop], target.mask[start:stop]
    numbers = zip(right.tolist(), target.negatives[start:stop], strict=True)
    given = [torch.tensor([first, *negatives.tolist()], device=device) for first, negatives in numbers]
    teacher = [torch.from_numpy(np.array(each)) for each in target.scores[start:stop]]
    return ScoredRows(scores * model.output_scale, right.to(device), allowed.to(device), given, teacher)


def _pairs_scored(model: Ranker, represented: Represented, target: RankingTarget) -> ScoredRows:
    """Scores of contexts read jointly with their candidates, the right one first."""
    asked = target.asked
    scores = represented.kept[PAIRS].vectors.view(len(asked), -1)
    if model.head.compares:
        place = np.searchsorted(np.unique(asked), asked)
        compared = model.head.score(represented.kept[CONTEXTS], represented.kept[CANDIDATES])
        scores = scores + compared.gather(1, torch.from_numpy(place).to(scores.device))
    first = torch.zeros(len(scores), dtype=torch.long, device=scores.device)
    allowed = torch.ones_like(scores, dtype=torch.bool)
    return ScoredRows(scores * model.output_scale, first, allowed, [], [])


def gather_rows(rows: Tensor, sizes: list[int]) -> Tensor:
    """Gathers the rows of all processes in order, gradients included; `sizes` are their numbers of rows."""
    return rows if len(sizes) == 1 else _Gather.apply(rows, sizes)  # type: ignore[no-untyped-call]


class _Gather(torch.autograd.Function):
    """All-gather of padded rows; the backward pass sums each process's gradients."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, sizes: list[int]) -> Tensor:
        ctx.sizes, ctx.rank = sizes, dist.get_rank()
        padded = rows.new_zeros(max(sizes), *rows.shape[1:])
        padded[: len(rows)] = rows
        gathered = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(gathered, padded)
        return torch.cat([process[:size] for process, size in zip(gathered, sizes, strict=True)])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        whole = gradients[0].contiguous().clone()
        dist.all_reduce(whole)
        start = sum(ctx.sizes[: ctx.rank])
        return whole[start : start + ctx.sizes[ctx.rank]], None
