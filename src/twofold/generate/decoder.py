"""Base class of text decoders: teacher forcing, the loss, and generation through start, step and select."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from twofold.errors import TwofoldError
from twofold.generate.search import GenerateOptions, State, Step, walk, write
from twofold.results import DecoderOutput, Hypotheses
from twofold.types import Batch, Decoder, Hidden, Loss, Target, Vocabulary


class TextEngine(Protocol):
    """Program other than torch that reads inputs and writes texts."""

    name: str

    def __call__(self, batch: Batch, options: GenerateOptions) -> list[Hypotheses] | None:
        """Hypotheses of each row; None if torch must write them."""
        ...


class TextDecoder(Decoder):
    """Autoregressive text decoder; a decoder implements `teach`, `start` and `step`."""

    output: nn.Linear
    """Output layer: from features to one logit for each token of the vocabulary."""

    def __init__(self, vocabulary: Vocabulary, label_smoothing: float) -> None:
        super().__init__()
        self.vocabulary = vocabulary
        self.label_smoothing = label_smoothing

    def teach(self, hidden: Hidden, tokens: Tensor, mask: Tensor, progress: float) -> Tensor:
        """Computes features (rows, positions, width) for the token after each given token (teacher forcing)."""
        raise NotImplementedError

    def start(self, hidden: Hidden, beam: int = 1) -> State:
        """State before the start symbol, with `beam` hypotheses for each row, side by side."""
        raise NotImplementedError

    def step(self, state: Any, tokens: Tensor) -> Step:
        """Features and state after `tokens` (rows,), the newest token of each row."""
        raise NotImplementedError

    def forward(self, hidden: Hidden, target: Target | None = None, progress: float = 0.0) -> DecoderOutput:
        """Logits of the token after each token of the target, (rows, positions - 1, tokens) (teacher forcing)."""
        if target is None:
            raise TwofoldError("a text decoder reads the right text (teacher forcing): make the batch with targets")
        logits: Tensor = self.output(self._taught(hidden, target, progress)[0])
        return DecoderOutput(logits.float())

    def count(self, target: Target) -> int:
        return int(target.mask[:, 1:].sum())

    def loss(self, hidden: Hidden, target: Target, progress: float = 0.0) -> Loss:
        """Cross-entropy of the next token given the right previous ones (teacher forcing), over all real positions."""
        features, mask = self._taught(hidden, target, progress)
        # Only real positions reach the output layer, which is the widest.
        smoothing = self.label_smoothing if self.training else 0.0
        gold = target.tokens[:, 1:][mask]
        total = F.cross_entropy(self.output(features[mask]).float(), gold, reduction="sum", label_smoothing=smoothing)
        return Loss(total, len(gold))

    @torch.no_grad()
    def log_probability(self, hidden: Hidden, target: Target) -> Tensor:
        """Log-probability of each whole target, end symbol included; (rows,)."""
        return self.token_log_probabilities(hidden, target).sum(1)

    @torch.no_grad()
    def token_log_probabilities(self, hidden: Hidden, target: Target) -> Tensor:
        """Log-probability of each token of each target, (rows, positions); 0 on padding."""
        scores = self.log_probabilities(hidden, target).gather(2, target.tokens[:, 1:, None])[..., 0]
        return torch.where(target.mask[:, 1:], scores, 0.0)

    @torch.no_grad()
    def log_probabilities(self, hidden: Hidden, target: Target) -> Tensor:
        """Log-probability of every token at each position of each target, (rows, positions, tokens)."""
        return self.forward(hidden, target).logits.log_softmax(-1)

    @torch.no_grad()
    def predict(self, hidden: Hidden, options: GenerateOptions) -> list[Hypotheses]:
        return write(self, hidden, options)

    @torch.no_grad()
    def stream(self, hidden: Hidden, options: GenerateOptions) -> Iterator[int]:
        """Yields the tokens of a single row as they are generated, without the end symbol."""
        for chosen in walk(self, hidden, options):
            if chosen[0].token != self.vocabulary.end:
                yield chosen[0].token

    def _taught(self, hidden: Hidden, target: Target, progress: float) -> tuple[Tensor, Tensor]:
        """Features and mask of the positions to predict: the input is the target shifted right."""
        mask = target.mask[:, 1:]
        return self.teach(hidden, target.tokens[:, :-1], mask, progress), mask


def sampled_teaching(decoder: TextDecoder, hidden: Hidden, tokens: Tensor, chance: float) -> Tensor:
    """Scheduled sampling: features as from `teach`, but with probability `chance` the input is the decoder's own
    prediction."""
    state: Any = decoder.start(hidden)
    current, features = tokens[:, 0], []
    for position in range(tokens.shape[1]):
        step = decoder.step(state, current)
        state = step.state
        features.append(step.features)
        if position + 1 < tokens.shape[1]:
            predicted = decoder.output(step.features.detach()).argmax(-1)
            chosen = torch.rand(len(predicted), device=predicted.device) < chance
            current = torch.where(chosen, predicted, tokens[:, position + 1])
    return torch.stack(features, 1)


def repeated(hidden: Hidden, times: int) -> Hidden:
    """Repeats each row, for decoders that keep the source of each hypothesis apart."""
    rows = torch.arange(len(hidden.mask), device=hidden.mask.device)
    return hidden if times == 1 else hidden.select(rows.repeat_interleave(times))
