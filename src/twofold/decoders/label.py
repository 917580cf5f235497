"""Classification and regression: one label, several labels or a number, from a pooled vector."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from twofold.decoders import DecoderConfig
from twofold.layers.heads import Head
from twofold.layers.pooling import Pooling, PoolingKind, means_of_both, pooling_needs
from twofold.results import DecoderOutput, Scores
from twofold.types import Classes, Decoder, Hidden, HiddenSpec, Loss, Numbers, OutputSpec, Target


@dataclass(frozen=True)
class Config(DecoderConfig):
    """Settings of the label decoder."""

    output = "label"
    writes = Scores

    pooling: PoolingKind = "mean"
    """Pooling of token states to one vector: `first` (for causal encoders the last), `last`, `mean`, `mean_sqrt`,
    `weighted_mean`, `max`, `attention` (one trainable query), or `summary`, the encoder's own."""
    compare: Literal["none", "cosine", "features"] = "none"
    """Comparison of the mean states of two texts: `cosine` predicts from their cosine alone; `features` adds their
    product and their difference to the pooled vector."""
    hidden: int | None = None
    """Width of a hidden layer before the output layer; null has none."""
    dropout: float = 0.1
    """Dropout probability on the pooled vector."""
    label_smoothing: float = 0.0
    """Label smoothing: fraction of the target probability that is spread over all labels (output `label` only)."""

    def __post_init__(self) -> None:
        if self.compare == "cosine" and (self.pooling != "mean" or self.hidden):
            raise ValueError("compare: cosine reads nothing but the cosine of two means; leave out pooling, hidden")

    def needs(self) -> frozenset[str]:
        return pooling_needs(self.pooling) | ({"states"} if self.compares() else frozenset())

    def compares(self) -> bool:
        return self.compare != "none"

    def keeps_position(self) -> str | None:
        return self.pooling if self.pooling in ("first", "last") else None

    def build(self, spec: HiddenSpec, output: OutputSpec) -> LabelDecoder:
        assert isinstance(output, Classes | Numbers)
        return LabelDecoder(self, spec, output)


class LabelDecoder(Decoder):
    """Label decoder: pooling and a prediction head."""

    def __init__(self, config: Config, spec: HiddenSpec, output: Classes | Numbers) -> None:
        super().__init__()
        self.config, self.numbers = config, output if isinstance(output, Numbers) else None
        self.several = isinstance(output, Classes) and output.several
        self.pool = Pooling(config.pooling, spec)
        outputs = 1 if isinstance(output, Numbers) else len(output)
        if config.compare == "cosine":
            self.head = Head(1, outputs, None, 0.0)
            if self.numbers:  # of mean 0 and deviation 1 here: they start as cosines spread evenly from 0 to 1 would
                nn.init.constant_(self.head.output.weight, math.sqrt(12))
                nn.init.constant_(self.head.output.bias, -math.sqrt(3))
        else:
            compared = 3 * spec.width("states") + 1 if config.compare == "features" else 0
            self.head = Head(self.pool.width + compared, outputs, config.hidden, config.dropout)

    def forward(self, hidden: Hidden, target: Target | None = None, progress: float = 0.0) -> DecoderOutput:
        return DecoderOutput(self._scores(hidden))

    def count(self, target: Target) -> int:
        return int(target.mask.any(1).sum())

    def loss(self, hidden: Hidden, target: Target, progress: float = 0.0) -> Loss:
        scores, right = self._scores(hidden), target.tokens
        if self.numbers:
            total = F.mse_loss(scores, (right - self.numbers.mean) / self.numbers.deviation, reduction="sum")
        elif self.several:
            total = F.binary_cross_entropy_with_logits(scores, right, reduction="sum")
        else:
            smoothing = self.config.label_smoothing if self.training else 0.0
            known = target.mask[:, 0]
            total = F.cross_entropy(scores[known], right[known, 0], reduction="sum", label_smoothing=smoothing)
        return Loss(total, self.count(target))

    def predict(self, hidden: Hidden, options: object) -> list[Scores]:
        scores = self._scores(hidden)
        if self.numbers:
            values = scores * self.numbers.deviation + self.numbers.mean
        else:
            values = scores.sigmoid() if self.several else scores.softmax(-1)
        return [Scores(row) for row in values.cpu().numpy()]

    def _scores(self, hidden: Hidden) -> Tensor:
        """Computes the logits, (rows, labels)."""
        return self.head(self._vector(hidden)).float()  # type: ignore[no-any-return]

    def _vector(self, hidden: Hidden) -> Tensor:
        """Pools and compares; returns the input of the prediction head, (rows, width)."""
        if self.config.compare == "none":
            return self.pool(hidden)  # type: ignore[no-any-return]
        first, second = (F.normalize(mean, dim=-1) for mean in means_of_both(hidden))
        common, apart = first * second, first - second
        cosine = common.sum(-1, keepdim=True)
        if self.config.compare == "cosine":
            return cosine
        return torch.cat([self.pool(hidden), common, apart, apart.abs(), cosine], -1)
