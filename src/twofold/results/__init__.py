"""Results of models: texts, labels, tags, trees, masks and rankings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, overload

import numpy as np
from numpy.typing import NDArray

from twofold.results.shown import changes, cut, screen, short

if TYPE_CHECKING:  # results are read without torch as well
    from torch import Tensor


@dataclass(frozen=True)
class Hypothesis:
    """One output sequence of a text decoder."""

    tokens: tuple[int, ...]
    """Token ids without the start and end symbols."""
    score: float
    """Log-probability of the tokens, including the end symbol if it was generated."""
    normalized_score: float
    """Log-probability divided by length^penalty, which orders hypotheses; the length includes a generated end symbol.
    """


@dataclass(frozen=True)
class Hypotheses:
    """Output of a text decoder for one row: hypotheses, best first."""

    hypotheses: tuple[Hypothesis, ...]


@dataclass(frozen=True)
class PixelClasses:
    """Output of a mask decoder for one image: a class for each pixel."""

    pixels: NDArray[np.uint8]
    """Class ids (height, width), in the size in which the image was read."""
    score: float
    """Mean log-probability of the chosen classes."""
    confidence: NDArray[np.float32] | None = field(default=None, compare=False, repr=False)
    """Probability of the chosen class of each pixel, (height, width)."""


@dataclass(frozen=True)
class Scores:
    """Output of a label decoder for one row: a probability for each label, or a single number."""

    values: NDArray[np.float32]


@dataclass(frozen=True)
class TagNumbers:
    """Output of a tagger for one sentence: the tag id of each word."""

    tags: tuple[int, ...]
    score: float
    """Log-probability of the tags."""
    probabilities: NDArray[np.float32] = field(compare=False, repr=False)
    """Probability of each tag for each word, (words, tags)."""


@dataclass(frozen=True)
class Arcs:
    """Output of a parser for one sentence: the head (from 1; 0 is the root) and the relation id of each word."""

    heads: tuple[int, ...]
    relations: tuple[int, ...]
    score: float
    """Log-probability of the arcs."""
    probabilities: NDArray[np.float32] = field(compare=False, repr=False)
    """Probability of each head for each word, (words, 1 + words); the first head is the root."""
    relation_probabilities: NDArray[np.float32] = field(compare=False, repr=False)
    """Probability of each relation between each word and its head, (words, relations)."""


@dataclass(frozen=True)
class Tagged:
    """Words of a sentence with their tags."""

    words: tuple[str, ...]
    tags: tuple[str, ...]


@dataclass(frozen=True)
class Tree:
    """Dependency tree: the words of a sentence, each with its head and relation."""

    words: tuple[str, ...]
    heads: tuple[int, ...]
    """Position of each word's head, from 1; 0 is the root."""
    relations: tuple[str, ...]


def counts_of(numbers: NDArray[Any]) -> NDArray[np.int64]:
    """Counts how often each number from 0 to 255 occurs; shape (256,)."""
    counts = np.zeros(256, np.int64)
    for row in numbers:  # bincount allocates eight bytes for each value
        counts += np.bincount(row, minlength=256)
    return counts


@dataclass(frozen=True)
class Mask:
    """Segmentation mask: a class for each pixel of an image."""

    pixels: NDArray[np.uint8]
    """Class ids (height, width)."""
    names: tuple[str, ...]
    """Names of the classes."""
    first: int = 0
    """Id of the first class in mask files."""

    def __repr__(self) -> str:
        shares = ", ".join(f"{name} {share:.0%}" for name, share in self.shares().items())
        return f"Mask({' × '.join(map(str, self.pixels.shape))} pixels: {cut(shares)})"

    def shares(self) -> dict[str, float]:
        """Returns the share of pixels of each class that occurs, largest first."""
        counts = counts_of(self.pixels)
        order = sorted(np.flatnonzero(counts), key=lambda number: -counts[number])
        return {self.names[number]: float(counts[number] / self.pixels.size) for number in order}


@dataclass(frozen=True)
class Prediction:
    """One input and the model's output for it."""

    input: Any
    output: Any
    """Text, label, list of labels, number, `Tagged` words, `Tree` or `Mask`."""
    score: float
    alternatives: tuple[tuple[str, float], ...] = ()
    """Further outputs with their scores, best first, where more than one was requested."""
    normalized_scores: tuple[float, ...] = ()
    """Log-probability / length^penalty of a generated text, then of each alternative; the order follows these."""
    tokens: tuple[int, ...] | None = field(default=None, repr=False)
    """Token ids of a generated text, without its prefix and the end symbol."""

    def __repr__(self) -> str:
        return f"Prediction({changes(self)})"


@dataclass(frozen=True)
class Timeline:
    """Input along a time axis, such as a spectrogram, for figures."""

    values: NDArray[np.float32]
    """Values (bands, frames), from the lowest band to the highest."""
    seconds: float


@dataclass(frozen=True)
class StoredCandidate:
    """Candidate as an index stores it."""

    text: str
    id: Any
    fields: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Passage:
    """Place of a passage in its document."""

    number: int
    """Number of the passage, from 0."""
    start: int
    """Character of the document's text at which the passage begins."""
    stop: int
    """Character of the document's text after the passage."""


@dataclass(frozen=True)
class Hit:
    """One candidate and its score."""

    text: str
    """Text of the candidate; of a document that is cut into passages, its best passage after its title."""
    score: float
    id: Any
    """Id of the candidate. Without one: its position in a Python list, from 0, or its line in a file, from 1."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Further fields that an index stores for the candidate."""
    passage: Passage | None = None
    """Place of the best passage, if documents are cut into passages."""
    probability: float | None = None
    """Probability that the candidate fits, if the scores are logits of one, as those of `default-reranker` are."""

    def __repr__(self) -> str:
        return f"Hit({changes(self)})"


class Hits(Sequence[Hit]):
    """Best candidates of one context, best first."""

    def __init__(self, hits: Sequence[Hit], exact: bool, milliseconds: float) -> None:
        self._hits = tuple(hits)
        self.exact = exact
        """True if these are proven to be the best of all candidates (certificate); False for an approximate search."""
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
        shown = [(f"{hit.score:.4g}", f"{short(hit.id)}  {cut(hit.text)}") for hit in self]
        proven = "exact" if self.exact else "approximate"
        return screen(f"Hits: {len(self):,}, {proven}, {self.milliseconds:.1f} ms", shown)


@dataclass(frozen=True)
class DecoderOutput:
    """Output of a decoder for a batch, in tensors: g(f(x))."""

    logits: Tensor
    """Unnormalized scores in float32: labels (rows, labels); a number (rows, 1), standardized; tokens (rows, positions,
    tokens); tags (rows, words, tags); heads (rows, words, 1 + words), where 0 is the root; classes of pixels (rows,
    classes, height, width); candidates (contexts, candidates)."""
    relations: Tensor | None = None
    """Trees: logits of the relation between each word and its right head, (rows, words, relations); without a target
    between each word and every head, (rows, words, 1 + words, relations)."""

    def __repr__(self) -> str:
        return f"DecoderOutput({changes(self)})"


class TokenScores:
    """Output type of token decoders (masked language model): a score for each token of the vocabulary."""


class CandidateScores:
    """Output type of ranking decoders: a score for each candidate of a context."""
