"""Tokens output, for pre-training: masked language model, or causal language model over a causal encoder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from twofold.data.batches import Draw
from twofold.data.tokenizer import Ids, TextTokenizer
from twofold.errors import TwofoldError
from twofold.inputs import Input
from twofold.inputs.text import Tokens
from twofold.outputs import Output, OutputConfig
from twofold.results import Prediction, TokenScores
from twofold.types import Batch, HiddenSpec, InputBatch, Target

KEPT, DRAWN = 0.1, 0.1
"""Fractions of the masked positions that keep their token, and that get a random one (BERT, Devlin et al. 2018)."""
MASKED = 0.15
"""Default fraction of masked tokens (BERT, Devlin et al. 2018)."""


@dataclass(frozen=True)
class Config(OutputConfig):
    """Settings of masked or causal language modeling."""

    takes: ClassVar[type] = TokenScores
    input: ClassVar[str | None] = "text"
    reads: ClassVar[type[InputBatch]] = Tokens

    masked: float | None = None
    """Fraction of tokens that are masked and predicted; 0 predicts each next token (causal language model). null
    chooses by the encoder: 0 if it is causal, else 0.15."""

    def __post_init__(self) -> None:
        if not 0 <= (self.masked or 0) < 1:
            raise ValueError("masked must be at least 0 and below 1")

    def build(self, name: str, input: Input[Any], tokenizer: TextTokenizer | None, spec: HiddenSpec) -> TokensOutput:
        assert input.tokenizer is not None
        return TokensOutput(name, self, input.vocabulary, input.tokenizer, self._share(name, spec.causal))

    def _share(self, name: str, causal: bool) -> float:
        """Fraction of masked tokens; 0 for a causal language model."""
        if self.masked is None:
            return 0.0 if causal else MASKED
        if causal and self.masked:
            raise TwofoldError(
                f"the decoder '{name}' predicts masked tokens, but the encoder is causal, without later tokens; "
                "output.masked: 0 predicts each next one"
            )
        if not causal and not self.masked:
            raise TwofoldError(
                f"the decoder '{name}' predicts each next token, but the encoder sees it; take a causal one "
                f"(encoder.causal: true, or GPT-2), or output.masked: {MASKED}"
            )
        return self.masked


@dataclass(frozen=True)
class TokensOutput(Output[None]):
    """Tokens output; targets come from the input text."""

    tokenizer: TextTokenizer
    share: float
    metrics: ClassVar[tuple[str, ...]] = ("likelihood",)

    def add_target(self, batch: Batch, values: Sequence[None], draws: Sequence[Draw], training: bool) -> Batch:
        read = batch.read(Tokens)
        if not self.share:
            return batch.with_target(self.name, next_tokens(read))
        shown, chosen = self._masked(read, draws)
        # Another decoder may have masked tokens before; the target is the original text.
        right = read.tokens if read.unmasked is None else read.unmasked
        batch = batch.with_input(next(iter(batch.inputs)), replace(read, tokens=shown, unmasked=right))
        return batch.with_target(self.name, Target(right, chosen))

    def answer(self, given: Any, item: Any, raw: Any, begun: Ids = ()) -> Prediction:
        raise TwofoldError(
            "a language model for pre-training has no answers; name its folder as the `encoder` of a recipe"
        )

    def _masked(self, read: Tokens, draws: Sequence[Draw]) -> tuple[torch.Tensor, torch.Tensor]:
        """Masks tokens: returns the input and the positions to predict; at least one in every row, never a special
        token."""
        tokens, real = read.tokens.numpy(), read.mask.numpy()
        ordinary = real & ~np.isin(tokens, self.tokenizer.structure)
        chosen = np.zeros_like(real)
        shown = tokens.copy()
        for row, draw in enumerate(draws):
            places = np.flatnonzero(ordinary[row])
            if not len(places):
                continue
            taken = places[draw.random(len(places)) < self.share]
            taken = taken if len(taken) else places[[draw.integers(len(places))]]
            chosen[row, taken] = True
            shown[row, taken] = self._shown(tokens[row, taken], draw)
        return torch.from_numpy(shown), torch.from_numpy(chosen)

    def _shown(self, tokens: NDArray[np.int64], draw: Draw) -> NDArray[np.int64]:
        """Replaces most tokens by the mask, keeps some, and replaces some by random tokens."""
        lot = draw.random(len(tokens))
        drawn = draw.integers(len(self.tokenizer), size=len(tokens))
        return np.where(lot < KEPT, tokens, np.where(lot < KEPT + DRAWN, drawn, self.tokenizer.mask))


def next_tokens(read: Tokens) -> Target:
    """Target at every position but the last: the next token."""
    following = torch.roll(read.tokens, -1, 1)
    counts = torch.roll(read.mask, -1, 1) & read.mask
    counts[:, -1] = False
    return Target(following, counts)
