"""Texts that begin with given tokens: a writer that has read them before the search starts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from twofold.errors import TwofoldError
from twofold.generate.search import State, Step, Writer
from twofold.types import Hidden


class Begun:
    """Writer that continues given tokens."""

    def __init__(self, writer: Writer, tokens: Sequence[int]) -> None:
        room = writer.vocabulary.limit - len(tokens)
        if room < 1:
            raise TwofoldError(
                f"{len(tokens):,} tokens leave nothing to write; at most {writer.vocabulary.limit - 1:,}"
            )
        self.vocabulary = replace(writer.vocabulary, limit=room)
        self._writer = writer
        self._read = [writer.vocabulary.start, *tokens]
        self._begins = True

    def start(self, hidden: Hidden, beam: int) -> State:
        """State after all given tokens but the last, which the first step reads."""
        state = self._writer.start(hidden, beam)
        for token in self._read[:-1]:
            tokens = torch.full((len(hidden.mask) * beam,), token, device=hidden.mask.device)
            state = self._writer.step(state, tokens).state
        self._begins = True
        return state

    def step(self, state: Any, tokens: Tensor) -> Step:
        if self._begins:  # a search begins with the start symbol
            self._begins, tokens = False, torch.full_like(tokens, self._read[-1])
        return self._writer.step(state, tokens)

    def output(self, features: Tensor) -> Tensor:
        return self._writer.output(features)


def next_log_probabilities(writer: Writer, hidden: Hidden, tokens: Sequence[int]) -> Tensor:
    """Log-probability of every token to follow the given ones, (tokens,); `hidden` has one row."""
    begun = Begun(writer, tokens)
    step = begun.step(begun.start(hidden, 1), torch.tensor([writer.vocabulary.start], device=hidden.mask.device))
    return begun.output(step.features)[0].float().log_softmax(0)
