"""Prediction heads for labels and tags, rules for tag transitions, and Viterbi decoding."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from twofold.layers.blocks import dropout
from twofold.layers.mixed_precision import float32, widened

LOWEST = -1e30
"""Finite stand-in for a score of -inf: below any real score, above a forbidden transition."""


class Head(nn.Module):
    """Prediction head: dropout, an optional hidden layer, then one score for each class."""

    def __init__(self, width: int, outputs: int, hidden: int | None, share: float) -> None:
        super().__init__()
        self.share = share
        self.between = nn.Sequential(nn.Linear(width, hidden), nn.GELU()) if hidden else None
        self.output = nn.Linear(hidden or width, outputs)

    def forward(self, states: Tensor) -> Tensor:
        """Class scores (..., outputs)."""
        with float32(states.device.type):
            states = dropout(widened(states), self.share, self.training)
            if self.between is not None:
                states = dropout(self.between(states), self.share, self.training)
            return self.output(states)  # type: ignore[no-any-return]


def rules(names: Sequence[str]) -> tuple[Tensor, Tensor]:
    """Allowed first tags, (tags,), and allowed transitions, (tags, tags) as [previous, next].

    For BIO tags, I-X follows only B-X or I-X and never comes first; the same holds for bare B, I and O. All other
    transitions are allowed; without B- or I- tags, all are.
    """
    bare = is_bare(names)
    first = [not (name.startswith("I-") or (bare and name == "I")) for name in names]
    if names and not any(first):  # without names, the tags are not known yet
        raise ValueError(f"no tag of {list(names)} may come first: add O, or the B- of an I-")
    after = [
        [free or previous in (name, f"B{name[1:]}") for name, free in zip(names, first, strict=True)]
        for previous in names
    ]
    return torch.tensor(first, dtype=torch.bool), torch.tensor(after, dtype=torch.bool)


def is_bare(names: Iterable[str]) -> bool:
    """Returns True for tags of one unnamed span type: B and I, optionally with O."""
    return {"B", "I"} <= set(names) <= {"B", "I", "O"}


def best_path(scores: Tensor, mask: Tensor, first: Tensor, after: Tensor) -> Tensor:
    """Finds the allowed tag sequence with the largest sum, (rows, words), by Viterbi decoding.

    Padding gets tag 0; ties go to the smaller tag. `scores` are log-probabilities (rows, words, tags); `mask` (rows,
    words) is true where real, from the left; `first` and `after` come from `rules`.
    """
    first, after = first.to(scores.device), after.to(scores.device)
    if first.all() and after.all():
        return scores.argmax(2).masked_fill(~mask, 0)
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32)).clamp(min=LOWEST)
    rows, words, tags = scores.shape
    start = scores.new_zeros(tags).masked_fill(~first, -torch.inf)
    step = scores.new_zeros(tags, tags).masked_fill(~after, -torch.inf)
    total, staying = scores.new_zeros(rows, tags), torch.arange(tags, device=scores.device)
    back = []
    for place in range(words):
        # The best total is reset to 0, so that rounding in long sentences does not hide small differences.
        total = total - total.amax(1, keepdim=True)
        reached, previous = (total[:, :, None] + (step if place else start)).max(1)  # (rows, tags)
        real = mask[:, place, None]
        total = torch.where(real, reached + scores[:, place], total)
        back.append(torch.where(real, previous, staying))
    tag = total.argmax(1, keepdim=True)  # (rows, 1)
    path = torch.zeros(rows, words, dtype=torch.long, device=scores.device)
    for place in reversed(range(words)):
        path[:, place] = tag[:, 0]
        tag = back[place].gather(1, tag)
    return path.masked_fill(~mask, 0)
