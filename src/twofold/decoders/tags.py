"""Gives each word a tag; tags that mark the beginning and the inside of names always make whole names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor

from twofold.decoders import DecoderConfig
from twofold.layers.heads import Head
from twofold.layers.tagging import best_path, rules
from twofold.results import TagNumbers
from twofold.types import Classes, Decoder, Hidden, HiddenSpec, Loss, OutputSpec, Target


@dataclass(frozen=True)
class Config(DecoderConfig):
    """Settings of the tagging decoder."""

    output: ClassVar[str] = "tags"
    writes: ClassVar[type] = TagNumbers

    hidden: int | None = None
    """Width of a layer between a word's state and its tag, if there is one."""
    dropout: float = 0.1
    """Share of the states' values set to zero."""

    def needs(self) -> frozenset[str]:
        return frozenset({"states"})

    def build(self, spec: HiddenSpec, output: OutputSpec) -> TagsDecoder:
        assert isinstance(output, Classes)
        return TagsDecoder(self, spec, output)


class TagsDecoder(Decoder):
    """The first piece of each word speaks for it."""

    def __init__(self, config: Config, spec: HiddenSpec, output: Classes) -> None:
        super().__init__()
        self.head = Head(spec.width("states"), len(output), config.hidden, config.dropout)
        # Where names of a kind never begin with a B-, its I- may come anywhere.
        known = output.numbers
        alone = [name.startswith("I-") and f"B-{name[2:]}" not in known for name in known]
        first, after = rules([f"_{name}" if one else name for name, one in zip(known, alone, strict=True)])
        self.register_buffer("first", first, persistent=False)
        self.register_buffer("after", after, persistent=False)
        self.first: Tensor
        self.after: Tensor

    def count(self, target: Target) -> int:
        return int(target.mask.sum())

    def loss(self, hidden: Hidden, target: Target, progress: float = 0.0) -> Loss:
        scores: Tensor = self.head(hidden.of_words()[0][target.mask]).float()
        total = F.cross_entropy(scores, target.tokens[target.mask], reduction="sum")
        return Loss(total, len(scores))

    def predict(self, hidden: Hidden, options: object) -> list[TagNumbers]:
        states, mask = hidden.of_words()
        likely = self.head(states).float().log_softmax(-1)
        found = best_path(likely, mask, self.first, self.after)
        scores = likely.gather(-1, found[..., None])[..., 0].masked_fill(~mask, 0.0).sum(1)
        lengths = mask.sum(1).tolist()
        rows = zip(found.tolist(), lengths, scores.tolist(), strict=True)
        return [TagNumbers(tuple(tags[:length]), score) for tags, length, score in rows]
