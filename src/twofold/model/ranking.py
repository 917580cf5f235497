"""How a ranker learns: a batch read piece by piece, its scores, their loss, and gradients within bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike
from torch import Tensor

from twofold.data.batches import by_length, make_batch, make_joined_batch
from twofold.data.ranking_batches import RankingBatch
from twofold.data.tokenizer import Frame, Ids
from twofold.layers.gather import gather_rows
from twofold.layers.ranking import BLOCK
from twofold.types import Batch, Contexts, Loss, Vocabulary

if TYPE_CHECKING:
    from twofold.model.ranker import Ranker


@dataclass(frozen=True)
class Represented:
    """What the decoder keeps of a batch: of each side, or the scores of texts read as one."""

    contexts: Tensor
    """(contexts, codes, width), or (contexts, candidates of each) of scores."""
    mask: Tensor | None
    candidates: Tensor | None
    """(own candidates, width)"""

    def tensors(self) -> list[Tensor]:
        return [self.contexts] if self.candidates is None else [self.contexts, self.candidates]

    def leaves(self) -> Represented:
        """The same values, from which gradients go no further."""
        candidates = None if self.candidates is None else self.candidates.detach().requires_grad_()
        return Represented(self.contexts.detach().requires_grad_(), self.mask, candidates)


@dataclass(frozen=True)
class _Piece:
    """Some rows of one side that are read together."""

    side: int
    numbers: list[int]


class Pieces:
    """A batch cut into pieces of like length, each of which is read by itself."""

    def __init__(self, model: Ranker, batch: RankingBatch) -> None:
        self.model, self.batch = model, batch
        self.frame, self.vocabulary = model.tokenizer.frame, model._vocabulary()
        own = [batch.candidates[number] for number in batch.own]
        if model.joined:
            assert batch.drawn is not None
            columns = np.concatenate([batch.right[:, None], batch.drawn], 1)  # (contexts, 1 + drawn)
            self.width = columns.shape[1]
            self.pairs = [
                (context, batch.candidates[one])
                for context, row in zip(batch.contexts, columns, strict=True)
                for one in row
            ]
            lengths = [[len(first) + len(second) for first, second in self.pairs]]
        else:
            self.sides: list[list[Ids]] = [batch.contexts, own]
            lengths = [[len(ids) for ids in side] for side in self.sides]
        self.sizes = [len(side) for side in lengths]
        self.pieces = [
            _Piece(side, numbers)
            for side, of_side in enumerate(lengths)
            for numbers in by_length(of_side, model.chunk_tokens)
        ]
        longest = [max(lengths[piece.side][number] for number in piece.numbers) for piece in self.pieces]
        self.tokens = sum(len(piece.numbers) * most for piece, most in zip(self.pieces, longest, strict=True))

    @staticmethod
    def alone(texts: Sequence[Ids], frame: Frame, vocabulary: Vocabulary) -> Batch:
        """Texts as an encoder wants them."""
        return make_batch([frame.around(ids) for ids in texts], vocabulary)

    @staticmethod
    def joint(
        pairs: Sequence[tuple[Ids, Ids]], frame: Frame, vocabulary: Vocabulary, between: float | None = None
    ) -> Batch:
        """Two texts as one, or side by side, each with its own frame."""
        if between is None:
            return make_joined_batch([frame.joining(first, second) for first, second in pairs], vocabulary)
        both = [(frame.around(first), frame.around(second)) for first, second in pairs]
        rows: list[tuple[ArrayLike, int]] = [(np.concatenate([first, second]), len(first)) for first, second in both]
        return replace(make_joined_batch(rows, vocabulary), between=between)

    def read(self, piece: _Piece) -> tuple[Tensor, Tensor | None]:
        """What the decoder keeps of a piece."""
        model, numbers = self.model, piece.numbers
        if model.joined:
            pairs = [self.pairs[number] for number in numbers]
            batch = self.joint(pairs, self.frame, self.vocabulary, model.head.between())
            return model.joint(batch), None
        batch = self.alone([self.sides[piece.side][number] for number in numbers], self.frame, self.vocabulary)
        if piece.side == 0:
            kept = model.head.context(model.encoder(batch.to(model.device)))
            return kept.vectors, kept.mask
        return model.head.candidate(model.candidate_encoder(batch.to(model.device))), None

    def run(self, seeds: Sequence[int] | None = None) -> Represented:
        """Read all pieces; with `seeds`, each draws its dropout from a seed of its own, to be replayed."""
        read = []
        for number, piece in enumerate(self.pieces):
            if seeds is not None:
                torch.manual_seed(seeds[number])
            read.append(self.read(piece))
        masks = [mask for _, mask in read if mask is not None]
        sides = [self._in_order(side, [values for values, _ in read]) for side in range(len(self.sizes))]
        if self.model.joined:
            return Represented(sides[0].view(-1, self.width), None, None)
        return Represented(sides[0], self._in_order(0, masks) if masks else None, sides[1])

    def gradient(self, piece: _Piece, leaves: Represented) -> Tensor:
        """The gradient that a piece must pass on."""
        whole = leaves.tensors()[piece.side].grad
        assert whole is not None
        return (whole.flatten() if self.model.joined else whole)[piece.numbers]

    def _in_order(self, side: int, values: list[Tensor]) -> Tensor:
        """The rows of all pieces of a side, as they stand in the batch."""
        chosen = [(piece, value) for piece, value in zip(self.pieces, values, strict=False) if piece.side == side]
        order = torch.tensor([number for piece, _ in chosen for number in piece.numbers])
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order))
        return torch.cat([value for _, value in chosen])[back.to(chosen[0][1].device)]


def losses_of(model: Ranker, batch: RankingBatch, read: Represented) -> Loss:
    """The loss of a whole batch at once."""
    candidates = None if read.candidates is None else gather_rows(read.candidates, batch.sizes)
    sums = [_rows_loss(model, batch, read, candidates, start, stop) for start, stop in _blocks(batch, read, candidates)]
    return Loss(torch.stack(sums).sum(), len(batch))


def add_gradients(model: Ranker, batch: RankingBatch, scale: float) -> Loss:
    """Add the gradients of `scale` × the loss to every parameter.

    The scores need only what is kept of each text, so the loss and its gradients at that point come first, block of
    contexts by block. They are then passed on into what was read: at once if everything is still in memory, or by
    reading each piece a second time, with the same dropout.
    """
    pieces = Pieces(model, batch)
    seeds = torch.randint(1 << 62, (len(pieces.pieces),)).tolist()
    twice = pieces.tokens > model.memory_tokens and len(pieces.pieces) > 1
    with model.autocast(), torch.set_grad_enabled(not twice):
        read = pieces.run(seeds)
    leaves = read.leaves()
    with model.autocast():
        gathered = None if leaves.candidates is None else gather_rows(leaves.candidates, batch.sizes)
    # Every block of contexts adds to the gradient of all candidates; only their sum goes back to the other processes.
    shared = None if gathered is None else gathered.detach().requires_grad_()
    total = torch.zeros((), device=model.device)
    for start, stop in _blocks(batch, leaves, shared):
        with model.autocast():
            loss = _rows_loss(model, batch, leaves, shared, start, stop)
        (loss * scale).backward()  # type: ignore[no-untyped-call]
        total += loss.detach()
    if gathered is not None and shared is not None:
        gathered.backward(shared.grad)  # type: ignore[no-untyped-call]
    if twice:
        for number, piece in enumerate(pieces.pieces):
            torch.manual_seed(seeds[number])
            with model.autocast():
                again, _ = pieces.read(piece)
            if again.requires_grad:
                again.backward(pieces.gradient(piece, leaves).to(again.dtype))  # type: ignore[no-untyped-call]
    else:
        both = zip(read.tensors(), leaves.tensors(), strict=True)
        learning = [(one, leaf.grad) for one, leaf in both if one.requires_grad]  # not a side whose tower is frozen
        if learning:
            torch.autograd.backward([one for one, _ in learning], [gradient for _, gradient in learning])
    return Loss(total, len(batch))


def _blocks(batch: RankingBatch, read: Represented, candidates: Tensor | None) -> Iterator[tuple[int, int]]:
    """Contexts whose dot products with all candidates are held at a time."""
    rows = len(batch)
    size = rows if candidates is None else max(1, BLOCK // (read.contexts.shape[1] * len(candidates)))
    for start in range(0, rows, size):
        yield start, min(rows, start + size)


def _rows_loss(
    model: Ranker, batch: RankingBatch, read: Represented, candidates: Tensor | None, start: int, stop: int
) -> Tensor:
    """The sum of the losses of some contexts."""
    config, device = model.config.loss, model.device
    scale = model.config.decoder.output_scale  # type: ignore[attr-defined]
    if candidates is None:
        scores = read.contexts[start:stop].float() * scale
        first = torch.zeros(len(scores), dtype=torch.long, device=device)
        return F.cross_entropy(scores, first, reduction="sum") * config.label_weight
    contexts = Contexts(read.contexts, read.mask).rows(start, stop)
    scores = model.head.score(contexts, candidates).float() * scale
    right = torch.from_numpy(batch.right[start:stop]).to(device)
    allowed = torch.from_numpy(batch.allowed[start:stop]).to(device)
    loss = F.cross_entropy(scores.masked_fill(~allowed, -torch.inf), right, reduction="sum") * config.label_weight
    if config.teacher != "none":
        loss = loss + config.teacher_weight * _teacher_loss(model, batch, scores, start)
    return loss


def _teacher_loss(model: Ranker, batch: RankingBatch, scores: Tensor, start: int) -> Tensor:
    """How far the scores of the right and the given wrong candidates are from a teacher's, summed over contexts."""
    config = model.config.loss
    total = scores.new_zeros(())
    for row, own in enumerate(scores):
        teacher = torch.as_tensor(np.array(batch.scores[start + row]), dtype=own.dtype, device=own.device)
        if len(teacher) < 2:
            continue
        columns = [int(batch.right[start + row]), *batch.negatives[start + row].tolist()]
        student = own[torch.tensor(columns, device=own.device)]
        if config.teacher == "margin_mse":
            total = total + F.mse_loss(student[0] - student[1:], teacher[0] - teacher[1:])
        else:
            heat = config.temperature
            total = total + F.kl_div((student / heat).log_softmax(0), (teacher / heat).softmax(0), reduction="sum")
    return total
