"""Input of two texts, joined or separate: premise and hypothesis, two sentences, context and reply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from twofold.data.batches import Draw
from twofold.data.cache import Cache, DerivedField, Encoded, Field
from twofold.data.columns import Keep, TextColumn, TooLongError
from twofold.data.files import Row
from twofold.data.tokenizer import Frame, Ids, TextTokenizer
from twofold.errors import TwofoldError
from twofold.explaining import LeftOut, without_each_word
from twofold.inputs import INPUT, Input, InputConfig
from twofold.inputs.text import (
    Tokens,
    TokensConfig,
    column_reading,
    make_joined_tokens,
    make_tokens,
    say_cut,
    special_tokens_of,
)
from twofold.reading import TEXTS
from twofold.types import Batch, Encoder, Hidden, InputBatch

SECOND = "second"
"""Cache column of the second text."""
TwoTexts = tuple[Ids, Ids]


@dataclass(frozen=True)
class TokenPair(InputBatch):
    """Pairs of texts that are encoded separately."""

    first: Tokens
    second: Tokens

    def __len__(self) -> int:
        return len(self.first)

    def count(self) -> int:
        return self.first.count() + self.second.count()

    def encode(self, encoder: Encoder, batch: Batch) -> Hidden:
        """Encodes both texts and concatenates their states; the summary is the mean of both summaries."""
        name = next(iter(batch.inputs))
        first, second = sides = [encoder(batch.with_input(name, side)) for side in (self.first, self.second)]
        states = summary = None
        if first.states is not None and second.states is not None:
            states = torch.cat([first.states, second.states], 1)
        if first.summary is not None and second.summary is not None:
            summary = (first.summary + second.summary) / 2
        segments = [torch.full_like(side.mask, number, dtype=torch.long) for number, side in enumerate(sides)]
        mask = torch.cat([first.mask, second.mask], 1)
        return Hidden(mask, states, summary, first.finish, segments=torch.cat(segments, 1))


@dataclass(frozen=True)
class Config(TokensConfig):
    """Settings of inputs of two texts."""

    gives: ClassVar[type[InputBatch]] = Tokens
    texts: ClassVar[int] = 2

    column: tuple[str, ...] = ("first", "second")
    """Columns of the two texts."""
    read: Literal["joined", "apart"] = "joined"
    """Reading mode: `joined` as one sequence, or `apart`, each text encoded by itself (Sentence-BERT)."""
    max_tokens: int = 128
    """Maximum number of tokens, special tokens included: of the joined pair, whose longer text is truncated first, or
    of each text if read `apart`."""
    keep: Keep = "head"
    """End of an overlong first text that is kept: `head`, or `tail` for the newest turns of a dialogue."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.column) != 2:
            raise ValueError(f"column {list(self.column)}: a pair has two columns")

    @property
    def apart(self) -> bool:
        return self.read == "apart"

    def build(self, tokenizer: TextTokenizer | None) -> PairInput:
        assert tokenizer is not None
        frame = special_tokens_of(tokenizer, True, self.max_tokens, 1 if self.apart else 2)
        # A joined pair is truncated when both texts are known.
        limit = self.max_tokens - (len(frame) if self.apart else 0)
        first = TextColumn(self.column[0], tokenizer, limit, self.too_long, self.keep)
        second = TextColumn(self.column[1], tokenizer, limit, self.too_long)
        return (ApartInput if self.apart else PairInput)(self, first, second, frame)


@dataclass(frozen=True)
class PairInput(Input[TwoTexts]):
    """Input of two joined texts; items are the token ids of both, and the longer text is truncated first."""

    config: InputConfig
    first: TextColumn
    second: TextColumn
    frame: Frame
    example: ClassVar[str] = '("a man eats", "someone is eating")'
    max_tokens: int = 0
    """Maximum number of tokens of a joined pair; 0 uses the setting."""

    @property
    def limit(self) -> int:
        return self.max_tokens or super().limit

    @property
    def names(self) -> str:
        """Names of both columns, for messages."""
        return f"{self.first.column} and {self.second.column}"

    @property
    def tokenizer(self) -> TextTokenizer:
        return self.first.tokenizer

    def columns(self) -> dict[str, Field]:
        # Encoding the second text checks the length of both.
        return {INPUT: self.first, SECOND: DerivedField(self.second.dtype, self._settings, self._encode_second)}

    def _settings(self) -> list[Any]:
        frame = [self.frame.before, self.frame.between, self.frame.after]
        return [SECOND, *self.first.settings(), *self.second.settings(), self.limit, *frame]

    def _encode_second(self, rows: Sequence[Row]) -> Encoded:
        encoded = self.encode(rows)
        return Encoded([second for _, second in encoded.ids], encoded.cut)

    def items(self, rows: Sequence[Row]) -> list[TwoTexts]:
        encoded = self.encode(rows)
        say_cut(encoded.cut, len(rows), self.limit)
        return encoded.ids

    def encode(self, rows: Sequence[Row]) -> Encoded:
        """Tokenizes both texts; truncated when a batch is made, and counted or refused here."""
        pairs = list(zip(self.first.encode(rows).ids, self.second.encode(rows).ids, strict=True))
        cut, room = 0, self._room()
        for row, (first, second) in zip(rows, pairs, strict=True):
            if len(first) + len(second) > room:
                if self.first.too_long == "refuse":
                    raise TooLongError(
                        f"{row.place}: {self.names} have {len(first) + len(second)} tokens, the limit is {room}; "
                        f"shorten them, raise {self.first.place}.max_tokens, or set {self.first.place}.too_long=cut"
                    )
                cut += 1
        return Encoded(pairs, cut)

    def cached(self, cache: Cache, row: int) -> TwoTexts:
        return cache.columns[INPUT].row(row), cache.columns[SECOND].row(row)

    def length(self, item: TwoTexts) -> int:
        return min(len(item[0]) + len(item[1]), self._room())

    def lengths(self, cache: Cache) -> NDArray[np.int64]:
        both: NDArray[np.int64] = cache.columns[INPUT].lengths + cache.columns[SECOND].lengths
        return np.minimum(both, self._room()) + self.limit - self._room()

    def batch(self, items: Sequence[TwoTexts], draws: Sequence[Draw] | None = None) -> InputBatch:
        joined = [self.frame.joining(*self._fitted(*both)) for both in items]
        return make_joined_tokens(joined, self.vocabulary)

    def row(self, value: Any, place: str) -> Row:
        """Accepts a pair, or one text with a tab in between."""
        both = value.split("\t") if isinstance(value, str) else value
        if not isinstance(both, list | tuple) or len(both) != 2:
            raise TwofoldError(f"{place}: give {self.names}, two texts with a tab between them")
        return Row(place, {self.first.column: both[0], self.second.column: both[1]})

    def value(self, row: Row) -> tuple[Any, Any]:
        return row.text(self.first.column), row.text(self.second.column)

    def pieces(self, item: TwoTexts) -> list[str]:
        return self.tokenizer.pieces(self.frame.joining(*self._fitted(*item))[0].tolist())

    def left_out(self, value: Any) -> LeftOut:
        first, second = self.value(self.row(value, "input"))
        shorter_first = [(word, other and (other, second)) for word, other in without_each_word(first)]
        return shorter_first + [(word, other and (first, other)) for word, other in without_each_word(second)]

    def reading(self) -> dict[str, Any]:
        both = {"first": column_reading(self.first), "second": column_reading(self.second)}
        symbols = {name: list(getattr(self.frame, name)) for name in ("before", "between", "after")}
        return {"reader": "joined", **both, **symbols, "room": self._room(), "pad": self.tokenizer.pad}

    def samples(self) -> list[Any]:
        return list(zip(TEXTS, [*TEXTS[3:], *TEXTS[:3]], strict=True))

    def _room(self) -> int:
        return self.limit - len(self.frame) - len(self.frame.between)

    def _fitted(self, first: Ids, second: Ids) -> TwoTexts:
        """Truncates both texts to the limit."""
        room = self._room()
        kept = min(len(first), max(room - len(second), (room + 1) // 2))
        return first[len(first) - kept :] if self.first.keep == "tail" else first[:kept], second[: room - kept]


@dataclass(frozen=True)
class ApartInput(PairInput):
    """Input of two texts that are encoded separately, each with its own limit and special tokens."""

    def columns(self) -> dict[str, Field]:
        return {INPUT: self.first, SECOND: self.second}

    def encode(self, rows: Sequence[Row]) -> Encoded:
        first, second = self.first.encode(rows), self.second.encode(rows)
        return Encoded(list(zip(first.ids, second.ids, strict=True)), first.cut + second.cut)

    def length(self, item: TwoTexts) -> int:
        return len(item[0]) + len(item[1])

    def lengths(self, cache: Cache) -> NDArray[np.int64]:
        both: NDArray[np.int64] = cache.columns[INPUT].lengths + cache.columns[SECOND].lengths
        return both + 2 * len(self.frame)

    def batch(self, items: Sequence[TwoTexts], draws: Sequence[Draw] | None = None) -> InputBatch:
        sides = zip(*items, strict=True)
        return TokenPair(*(make_tokens([self.frame.around(ids) for ids in side], self.vocabulary) for side in sides))

    def reading(self) -> dict[str, Any]:
        return {**super().reading(), "reader": "apart"}

    def pieces(self, item: TwoTexts) -> list[str]:
        return [piece for ids in item for piece in self.tokenizer.pieces(self.frame.around(ids).tolist())]
