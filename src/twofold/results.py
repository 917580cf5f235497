"""What models answer: texts, labels, tags, trees, masks, and the best of many candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Hypothesis:
    """One way a decoder would write the output."""

    tokens: tuple[int, ...]
    """Without the start and the end symbol."""
    score: float
    """The model's log-probability of these tokens, the end symbol included where it was written."""
    normalized_score: float
    """The same / length^penalty, by which hypotheses are ordered; the end symbol counts where it was written."""


@dataclass(frozen=True)
class Hypotheses:
    """What a text decoder made of one row, best hypothesis first."""

    hypotheses: tuple[Hypothesis, ...]


@dataclass(frozen=True)
class PixelClasses:
    """What a decoder made of one image: a class for each pixel."""

    pixels: NDArray[np.uint8]
    """(height, width) of class numbers, in the size in which the image was read."""
    score: float
    """The mean log-probability of the chosen classes."""


@dataclass(frozen=True)
class Scores:
    """What a decoder made of one row: the probability of each label, or a single number."""

    values: NDArray[np.float32]


@dataclass(frozen=True)
class TagNumbers:
    """What a decoder made of one sentence: the number of each word's tag."""

    tags: tuple[int, ...]
    score: float
    """Their log-probability."""


@dataclass(frozen=True)
class Arcs:
    """What a decoder made of one sentence: each word's head, counted from 1, and the number of its relation."""

    heads: tuple[int, ...]
    relations: tuple[int, ...]
    score: float
    """Their log-probability."""


@dataclass(frozen=True)
class Tagged:
    """The words of a sentence, each with its tag."""

    words: tuple[str, ...]
    tags: tuple[str, ...]


@dataclass(frozen=True)
class Tree:
    """The words of a sentence, each with the word it hangs from and how."""

    words: tuple[str, ...]
    heads: tuple[int, ...]
    """Counted from 1; 0 is the root."""
    relations: tuple[str, ...]


def counts_of(numbers: NDArray[Any]) -> NDArray[np.int64]:
    """(256,): how often each number from 0 to 255 occurs."""
    counts = np.zeros(256, np.int64)
    for row in numbers:  # bincount takes eight bytes for each of them
        counts += np.bincount(row, minlength=256)
    return counts


@dataclass(frozen=True)
class Mask:
    """A class for each pixel of an image."""

    pixels: NDArray[np.uint8]
    """(height, width) of class numbers."""
    names: tuple[str, ...]
    """What the classes are called."""
    first: int = 0
    """The number of the first class in files of masks."""

    def shares(self) -> dict[str, float]:
        """For each class that occurs the share of the pixels that belong to it, largest first."""
        counts = counts_of(self.pixels)
        order = sorted(np.flatnonzero(counts), key=lambda number: -counts[number])
        return {self.names[number]: float(counts[number] / self.pixels.size) for number in order}


@dataclass(frozen=True)
class Prediction:
    """One input and what the model made of it."""

    input: Any
    output: Any
    """A text, a label, a list of labels, a number, `Tagged` words, a `Tree`, or a `Mask`."""
    score: float
    alternatives: tuple[tuple[str, float], ...] = ()
    """Further outputs with their scores, best first, where more than one was asked for."""
    normalized_scores: tuple[float, ...] = ()
    """Of a text that was generated, and then of each alternative, the score by which they are ordered:
    log-probability / length^penalty."""
    tokens: tuple[int, ...] | None = field(default=None, repr=False)
    """Of a text that was generated, the tokens of it, without the end symbol and without what it was begun with."""


@dataclass(frozen=True)
class Timeline:
    """What was read along a time, such as the spectrogram of a sound, for figures."""

    values: NDArray[np.float32]
    """(bands, frames), from the lowest band to the highest."""
    seconds: float


@dataclass(frozen=True)
class AttentionMap:
    """Where a decoder looked as it wrote."""

    source: list[str]
    """Pieces of text; none where an image or a sound was looked at."""
    written: list[str]
    """Pieces of text; the last one is the end symbol."""
    weights: NDArray[np.float32]
    """(written, source), each row adding up to one; of an image (written, rows, columns)."""
    timeline: Timeline | None = None
    """What was looked at, where that has a time."""


@dataclass(frozen=True)
class StoredCandidate:
    """A candidate as an index keeps it."""

    text: str
    id: Any
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Hit:
    """One candidate and how well it fits."""

    text: str
    score: float
    id: Any
    """Its own id; without one, its place in a Python list from 0, or in a file the number of its line from 1."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """What else an index holds of it."""


class Hits(Sequence[Hit]):
    """The best candidates of one context, best first."""

    def __init__(self, hits: Sequence[Hit], exact: bool, milliseconds: float) -> None:
        self._hits = tuple(hits)
        self.exact = exact
        """Whether these are proven to be the best of all candidates."""
        self.milliseconds = milliseconds

    @overload
    def __getitem__(self, index: int) -> Hit: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Hit]: ...

    def __getitem__(self, index: int | slice) -> Hit | Sequence[Hit]:
        return self._hits[index]

    def __len__(self) -> int:
        return len(self._hits)

    def __repr__(self) -> str:
        return f"Hits({list(self._hits)}, exact={self.exact})"


class TokenScores:
    """What a decoder makes of a text that it is pre-trained on: a score for each token of the vocabulary."""


class CandidateScores:
    """What a ranking decoder makes of a context and its candidates: a score for each of them."""
