"""Jobs of a batcher: what a request has the model read, and what is made of it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Reading:
    """Items of one request, which may be read together with those of others."""

    kind: Hashable
    """Readings of one kind are read together, by the `read` of any of them."""
    items: Sequence[Any]
    lengths: Sequence[int]
    """Number of tokens of each item."""
    read: Callable[[list[Any]], Any]
    """Results of items, which can be cut by slices."""
    join: Callable[[list[Any]], Any]
    """Joins the results of parts."""


@dataclass(frozen=True, eq=False)
class Piece:
    """Part of a reading that is read at once."""

    job: Job
    reading: Reading
    number: int
    """Number of the reading in its job."""
    start: int
    stop: int
    tokens: int

    @property
    def items(self) -> Sequence[Any]:
        return self.reading.items[self.start : self.stop]


@dataclass(eq=False)
class Job:
    """Work for one request: readings, then a function of their results."""

    finish: Callable[[list[Any]], Any]
    """Makes the answer of the results of the readings."""
    readings: tuple[Reading, ...] = ()
    alike: Hashable = None
    """Jobs of the same value are finished together by `finish_all`; None is finished by itself."""
    finish_all: Callable[[list[list[Any]]], list[Any]] | None = None
    gone: bool = False
    """True once nobody waits for the answer."""
    pieces: deque[Piece] = field(default_factory=deque)
    """Pieces that are not read yet."""
    parts: list[list[Any]] = field(default_factory=list)
    """Results of the pieces of each reading."""
    future: asyncio.Future[Any] = field(init=False)

    @property
    def tokens(self) -> int:
        """Number of tokens that are not read yet."""
        return sum(piece.tokens for piece in self.pieces)

    def cut(self, tokens: int) -> None:
        """Cuts the readings into pieces of at most so many tokens, or of one item."""
        self.parts = [[] for _ in self.readings]
        for number, reading in enumerate(self.readings):
            start = size = 0
            for place, length in enumerate(reading.lengths):
                if size and size + length > tokens:
                    self.pieces.append(Piece(self, reading, number, start, place, size))
                    start, size = place, 0
                size += max(length, 1)
            self.pieces.append(Piece(self, reading, number, start, len(reading.lengths), size))

    def results(self) -> list[Any]:
        """Results of the readings, whole."""
        together = zip(self.readings, self.parts, strict=True)
        return [parts[0] if len(parts) == 1 else reading.join(parts) for reading, parts in together]


@dataclass(eq=False)
class Stream(Job):
    """Job that answers bit by bit; other jobs have their turn between two bits."""

    finish: Callable[[list[Any]], Iterator[Any]]
    give: Callable[[Any], None] = lambda bit: None
    """Takes each bit, in the event loop."""
    bits: Iterator[Any] | None = None
