"""How a ranker learns: a batch read piece by piece, its scores, their loss, and gradients within bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from twofold.data.batches import by_length, make_batch, make_joined_batch
from twofold.data.ranking_batches import RankingBatch
from twofold.data.tokenizer import Frame, Ids
from twofold.layers.gather import gather_rows
from twofold.layers.ranking import BLOCK
from twofold.types import Batch, Contexts, Loss, Vocabulary

if TYPE_CHECKING:
    from twofold.model.ranker import Ranker


CONTEXTS, CANDIDATES, PAIRS = "contexts", "candidates", "pairs"
"""What of a batch is read: each side alone, or contexts and candidates as one text."""


@dataclass(frozen=True)
class Represented:
    """What the decoder keeps of a batch."""

    kept: dict[str, Tensor]
    """Of contexts (contexts, codes, width), of own candidates (candidates, width), of pairs their scores (pairs,)."""
    mask: Tensor | None
    """(contexts, codes)"""

    def contexts(self) -> Contexts:
        return Contexts(self.kept[CONTEXTS], self.mask)

    def leaves(self) -> Represented:
        """The same values, from which gradients go no further."""
        return Represented({what: one.detach().requires_grad_() for what, one in self.kept.items()}, self.mask)


@dataclass(frozen=True)
class _Piece:
    """Some of what is read, together."""

    what: str
    numbers: list[int]


class Pieces:
    """A batch cut into pieces of like length, each of which is read by itself."""

    def __init__(self, model: Ranker, batch: RankingBatch) -> None:
        self.model, self.batch = model, batch
        self.frame, self.vocabulary = model.tokenizer.frame, model._vocabulary()
        self.texts: dict[str, list[Ids]] = {}
        self.pairs: list[tuple[Ids, Ids]] = []
        if model.reads_alone:
            own = np.unique(batch.asked) if model.joined else batch.own
            self.texts = {CONTEXTS: batch.contexts, CANDIDATES: [batch.candidates[one] for one in own]}
        lengths = {what: [len(ids) for ids in texts] for what, texts in self.texts.items()}
        if model.joined:
            both = zip(batch.contexts, batch.asked, strict=True)
            self.pairs = [(context, batch.candidates[one]) for context, row in both for one in row]
            lengths[PAIRS] = [len(first) + len(second) for first, second in self.pairs]
        self.pieces = [
            _Piece(what, numbers) for what, own in lengths.items() for numbers in by_length(own, model.chunk_tokens)
        ]
        longest = [max(lengths[piece.what][number] for number in piece.numbers) for piece in self.pieces]
        self.tokens = sum(len(piece.numbers) * most for piece, most in zip(self.pieces, longest, strict=True))

    @staticmethod
    def alone(texts: Sequence[Ids], frame: Frame, vocabulary: Vocabulary) -> Batch:
        """Texts as an encoder wants them."""
        return make_batch([frame.around(ids) for ids in texts], vocabulary)

    @staticmethod
    def joint(pairs: Sequence[tuple[Ids, Ids]], frame: Frame, vocabulary: Vocabulary) -> Batch:
        """Two texts as one."""
        return make_joined_batch([frame.joining(first, second) for first, second in pairs], vocabulary)

    def read(self, piece: _Piece) -> tuple[Tensor, Tensor | None]:
        """What the decoder keeps of a piece."""
        model, numbers = self.model, piece.numbers
        if piece.what == PAIRS:
            return model.joint(self.joint([self.pairs[one] for one in numbers], self.frame, self.vocabulary)), None
        batch = self.alone([self.texts[piece.what][one] for one in numbers], self.frame, self.vocabulary)
        if piece.what == CONTEXTS:
            kept = model.head.context(model.context_encoder(batch.to(model.device)))
            return kept.vectors, kept.mask
        return model.head.candidate(model.candidate_encoder(batch.to(model.device))), None

    def run(self, seeds: Sequence[int] | None = None) -> Represented:
        """Read all pieces; with `seeds`, each draws its dropout from a seed of its own, to be replayed."""
        read = []
        for number, piece in enumerate(self.pieces):
            if seeds is not None:
                torch.manual_seed(seeds[number])
            read.append(self.read(piece))
        values = [one for one, _ in read]
        kept = {what: self._in_order(what, values) for what in dict.fromkeys(piece.what for piece in self.pieces)}
        masked = [mask for _, mask in read if mask is not None]
        # Contexts are read first, so their masks stand where their values do.
        return Represented(kept, self._in_order(CONTEXTS, masked) if masked else None)

    def _in_order(self, what: str, values: list[Tensor]) -> Tensor:
        """The rows of all pieces of one kind, as they stand in the batch."""
        chosen = [(piece, value) for piece, value in zip(self.pieces, values, strict=False) if piece.what == what]
        order = torch.tensor([number for piece, _ in chosen for number in piece.numbers])
        back = torch.empty_like(order)
        back[order] = torch.arange(len(order))
        return torch.cat([value for _, value in chosen])[back.to(chosen[0][1].device)]


def losses_of(model: Ranker, batch: RankingBatch, read: Represented) -> Loss:
    """The loss of a whole batch at once."""
    candidates = _gathered(batch, read)
    sums = [_rows_loss(model, batch, read, candidates, start, stop) for start, stop in _blocks(batch, read, candidates)]
    return Loss(torch.stack(sums).sum(), len(batch))


def _gathered(batch: RankingBatch, read: Represented) -> Tensor | None:
    """The candidates of all processes; none where each context is read with its own."""
    return None if PAIRS in read.kept else gather_rows(read.kept[CANDIDATES], batch.sizes)


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
        gathered = _gathered(batch, leaves)
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
                gradient = leaves.kept[piece.what].grad
                assert gradient is not None
                again.backward(gradient[piece.numbers].to(again.dtype))  # type: ignore[no-untyped-call]
    else:
        both = zip(read.kept.values(), leaves.kept.values(), strict=True)
        learning = [(one, leaf.grad) for one, leaf in both if one.requires_grad]  # not a side whose tower is frozen
        if learning:
            torch.autograd.backward([one for one, _ in learning], [gradient for _, gradient in learning])
    return Loss(total, len(batch))


def _blocks(batch: RankingBatch, read: Represented, candidates: Tensor | None) -> Iterator[tuple[int, int]]:
    """Contexts whose dot products with all candidates are held at a time."""
    rows = len(batch)
    size = rows if candidates is None else max(1, BLOCK // (read.kept[CONTEXTS].shape[1] * len(candidates)))
    for start in range(0, rows, size):
        yield start, min(rows, start + size)


def _rows_loss(
    model: Ranker, batch: RankingBatch, read: Represented, candidates: Tensor | None, start: int, stop: int
) -> Tensor:
    """The sum of the losses of some contexts."""
    config, device = model.config.loss, model.device
    scale = model.config.decoder.output_scale  # type: ignore[attr-defined]
    if candidates is None:
        scores = read.kept[PAIRS].view(len(batch), -1)
        if model.head.compares:
            place = np.searchsorted(np.unique(batch.asked), batch.asked)
            compared = model.head.score(read.contexts(), read.kept[CANDIDATES])
            scores = scores + compared.gather(1, torch.from_numpy(place).to(device))
        first = torch.zeros(len(scores), dtype=torch.long, device=device)
        return F.cross_entropy(scores.float() * scale, first, reduction="sum") * config.label_weight
    scores = model.head.score(read.contexts().rows(start, stop), candidates).float() * scale
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
