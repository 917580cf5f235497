"""Sequence labeling: a tag for each word, with BIO tags decoded by Viterbi so that they form whole entity spans."""

from __future__ import annotations

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor, nn

from twofold.decoders import DecoderConfig
from twofold.layers.heads import Head, best_path, rules
from twofold.results import DecoderOutput, TagNumbers
from twofold.types import Classes, Decoder, Hidden, HiddenSpec, Loss, OutputSpec, Target


@dataclass(frozen=True)
class Config(DecoderConfig):
    """Settings of the tagging decoder."""

    output = "tags"
    writes = TagNumbers

    hidden: int | None = None
    """Width of a hidden layer before the output layer; null has none."""
    dropout: float = 0.1
    """Dropout probability on the states."""

    def build(self, spec: HiddenSpec, output: OutputSpec) -> TagsDecoder:
        assert isinstance(output, Classes)
        return TagsDecoder(self, spec, output)


class TagsDecoder(Decoder):
    """Tagging decoder over the state of each word's first sub-word."""

    def __init__(self, config: Config, spec: HiddenSpec, output: Classes) -> None:
        super().__init__()
        self.head = Head(spec.width("states"), len(output), config.hidden, config.dropout)
        # Where names of a kind never begin with a B-, its I- may come anywhere.
        known = output.numbers
        first, after = rules(
            [f"_{name}" if name.startswith("I-") and f"B-{name[2:]}" not in known else name for name in known]
        )
        self.first, self.after = nn.Buffer(first, persistent=False), nn.Buffer(after, persistent=False)

    def forward(self, hidden: Hidden, target: Target | None = None, progress: float = 0.0) -> DecoderOutput:
        return DecoderOutput(self.head(hidden.of_words()[0]).float())

    def count(self, target: Target) -> int:
        return int(target.mask.sum())

    def loss(self, hidden: Hidden, target: Target, progress: float = 0.0) -> Loss:
        scores: Tensor = self.head(hidden.of_words()[0][target.mask]).float()
        return Loss(F.cross_entropy(scores, target.tokens[target.mask], reduction="sum"), len(scores))

    def predict(self, hidden: Hidden, options: object) -> list[TagNumbers]:
        mask = hidden.of_words()[1]
        likely = self.forward(hidden).logits.log_softmax(-1)
        path = best_path(likely, mask, self.first, self.after)
        scores = likely.gather(-1, path[..., None])[..., 0].masked_fill(~mask, 0.0).sum(1)
        rows = zip(path.tolist(), mask.sum(1).tolist(), scores.tolist(), likely.exp().cpu().numpy(), strict=True)
        return [TagNumbers(tuple(tags[:length]), score, chances[:length]) for tags, length, score, chances in rows]
