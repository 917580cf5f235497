"""Texts continued from given tokens: the next token's probabilities, and what the model writes after them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from twofold.errors import TwofoldError
from twofold.generate.begun import Begun, next_log_probabilities
from twofold.generate.decoder import TextDecoder
from twofold.generate.search import GenerateOptions, Writer, walk, write
from twofold.model.predicting import reading_batch, text_decoder
from twofold.outputs.text import TextOutput
from twofold.types import Hidden

if TYPE_CHECKING:
    from twofold.model.model import Model


@dataclass(frozen=True)
class Token:
    """Token of a text."""

    id: int
    piece: str
    probability: float
    text: str
    """Letters that it adds to the text."""


@dataclass(frozen=True)
class Written:
    """Text with its tokens."""

    text: str
    ids: tuple[int, ...]
    """Token ids, the given ones included, without the end symbol."""
    pieces: tuple[str, ...]
    score: float
    """Log-probability of all tokens and the end symbol."""


class Continuation:
    """Input that a model has read, and the beginning of what it writes."""

    def __init__(self, model: Model, given: Any, begun: Sequence[str | int], decoder: str | None = None) -> None:
        """begun: tokens as pieces or ids"""
        self.model = model
        part, output = text_decoder(model, decoder)
        self._part: TextDecoder = part
        self._output: TextOutput = output
        self.begun = [self._id(token, place) for place, token in enumerate(begun)]
        self._writer: Writer = Begun(part, self.begun) if self.begun else part
        items = model.input.items([model.input.row(given, "input")])
        with model.evaluating(), torch.no_grad():
            self._hidden: Hidden = model.encode_batch(reading_batch(model, items, ()))

    def _id(self, token: str | int, place: int) -> int:
        """Id of a token that may stand in a text."""
        tokenizer = self._output.text.tokenizer
        id = tokenizer.id_of(token) if isinstance(token, str) else token
        if id is None or not 0 <= id < len(tokenizer) or id in tokenizer.structure:
            raise TwofoldError(
                f"prefix[{place}]: {token!r:.60} is no token of a text; give tokens that the model showed"
            )
        return id

    @property
    def pieces(self) -> list[str]:
        """Given tokens as text pieces."""
        return self._output.text.tokenizer.pieces(self.begun)

    @property
    def text(self) -> str:
        """Text of the given tokens."""
        return self._output.text.decode(self.begun)

    @torch.no_grad()
    def choices(self, count: int) -> list[Token]:
        """Most likely tokens to follow, the end symbol among them."""
        chances = next_log_probabilities(self._part, self._hidden, self.begun).exp()
        best = chances.topk(min(count, len(chances)))
        ids = best.indices.tolist()
        named = zip(ids, self._output.text.tokenizer.pieces(ids), best.values.tolist(), strict=True)
        return [Token(id, piece, chance, "") for id, piece, chance in named]

    @torch.no_grad()
    def write(self, options: GenerateOptions) -> Written:
        """Writes the rest of the text."""
        (hypotheses,) = write(self._writer, self._hidden, options)
        return self._written([*self.begun, *hypotheses.hypotheses[0].tokens])

    def stream(self, options: GenerateOptions) -> Iterator[Token | Written]:
        """Yields each token as it is generated, then the whole text."""
        if options.beam > 1:
            options = replace(options, beam=1, n_best=1)
        ids, shown, end = list(self.begun), self.text, self._part.vocabulary.end
        steps = walk(self._writer, self._hidden, options)
        while True:
            with torch.no_grad():  # not beyond the yield: others compute in between
                chosen = next(steps, None)
            if chosen is None:
                break
            step = chosen[0]
            if step.token != end:
                ids.append(step.token)
                now = self._output.text.decode(ids)
                (piece,) = self._output.text.tokenizer.pieces([step.token])
                yield Token(step.token, piece, float(torch.tensor(step.score).exp()), now[len(shown) :])
                shown = now
        yield self._written(ids)

    @torch.no_grad()
    def _written(self, ids: Sequence[int]) -> Written:
        target = self._output.text_target([ids]).to(self._hidden.mask.device)
        score = float(self._part.log_probability(self._hidden, target))
        pieces = tuple(self._output.text.tokenizer.pieces(list(ids)))
        return Written(self._output.text.decode(list(ids)), tuple(ids), pieces, score)
