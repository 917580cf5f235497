"""Passages of long documents: each is cut where a word ends, into passages that share some tokens."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from twofold.data.candidates import Candidate
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError

_SPLIT = re.compile(r"([0-9]{1,7}):([0-9]{1,7})")
Sizes = str | tuple[int, int]
"""Sizes of passages as a user gives them: `TOKENS:OVERLAP`, or the two numbers."""
INSIDE, LETTERS, PUNCTUATION, UNSPACED, BLANK = range(5)
"""Places between two tokens, from worst to best to cut at: inside a character, between letters of a word, beside
punctuation, between letters of a script without blanks, at a blank or after punctuation of such a script."""
_UNSPACED = (
    *((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF), (0x3040, 0x30FF)),  # Thai, Lao, Burmese, Khmer, kana
    *((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF), (0x20000, 0x3FFFF)),  # Chinese characters
)
_JOINER = "\u200d"
_JOINED = ((0x1160, 0x11FF), (0x1F3FB, 0x1F3FF), (0xE0020, 0xE007F))
"""Characters beside marks that belong to the one before: jamo after the first, colors of skin, tags of flags."""
_REGIONS = ((0x1F1E6, 0x1F1FF),)


@dataclass(frozen=True)
class Split:
    """Sizes of passages."""

    tokens: int
    """Maximum number of tokens of a passage."""
    overlap: int
    """Number of tokens that successive passages share."""

    @classmethod
    def of(cls, given: Sizes) -> Self:
        """Reads `TOKENS:OVERLAP`, or the two numbers."""
        text = given if isinstance(given, str) else ":".join(map(str, given))
        sizes = _SPLIT.fullmatch(text)
        if sizes is None or not int(sizes[1]):
            raise TwofoldError(f"split: {given!r} is not TOKENS:OVERLAP; give two whole numbers, such as 100:20")
        split = cls(int(sizes[1]), int(sizes[2]))
        if split.overlap >= split.tokens:
            raise TwofoldError(f"split: passages of {split.tokens} tokens cannot share {split.overlap}; share fewer")
        return split

    def __str__(self) -> str:
        return f"{self.tokens}:{self.overlap}"


@dataclass(frozen=True)
class Span:
    """Place of a passage in the text of its document."""

    title: int
    """Number of characters at the beginning of the document that are repeated before the passage: its title."""
    start: int
    stop: int

    def passage(self, document: str) -> str:
        """Text of the passage, after the title."""
        return document[: self.title] + document[self.start : self.stop]


@dataclass(frozen=True)
class Splitter:
    """Cuts documents into passages of at most `split.tokens` tokens."""

    split: Split
    tokenizer: TextTokenizer

    def spans(self, documents: Sequence[Candidate]) -> list[list[Span]]:
        """Passages of each document, at least one."""
        places = self.tokenizer.places([document.text for document in documents])
        return [self._cut(document, tokens) for document, tokens in zip(documents, places, strict=True)]

    def _cut(self, document: Candidate, tokens: NDArray[np.int64]) -> list[Span]:
        """Passages of a document whose tokens have these places; smaller ones, if some get longer when read alone."""
        text, size, overlap, title = document.text, self.split.tokens, self.split.overlap, 0
        if len(tokens) <= size:
            return [Span(0, 0, len(text))]
        if document.title:
            of_title = int((tokens[:, 1] <= len(document.title) + 1).sum())
            if 2 * of_title <= size - overlap:  # a longer one leaves too little room for the text
                title, size, tokens = len(document.title) + 1, size - of_title, tokens[of_title:]
        qualities = _qualities(text, tokens)
        while True:
            ranges = _ranges(qualities, size, min(overlap, size - 1))
            spans = [_span(text, title, tokens[start:stop]) for start, stop in ranges]
            spans = [span for span in spans if span.start < span.stop]
            passages = self.tokenizer.encode([span.passage(text) for span in spans])
            excess = max(map(len, passages), default=0) - self.split.tokens
            if excess <= 0 or size == 1:
                return spans or [Span(0, 0, len(text))]
            size = max(size - excess, 1)


class Splits:
    """Default of an input type whose candidates are not cut into passages."""

    def splitter(self, split: Split) -> Splitter:
        """Returns what cuts long candidates into passages."""
        raise TwofoldError(
            "split: only texts are split into passages, and the model's candidates are not texts; leave it out"
        )


def _span(text: str, title: int, tokens: NDArray[np.int64]) -> Span:
    """Place of some tokens, without blanks at its ends."""
    start, stop = max(int(tokens[0, 0]), title), int(tokens[-1, 1])
    passage = text[start:stop]
    start += len(passage) - len(passage.lstrip())
    return Span(title, start, start + len(passage.strip()))


def _ranges(qualities: NDArray[np.int8], size: int, overlap: int) -> Iterator[tuple[int, int]]:
    """First token of each passage, and the one after its last."""
    start = before = 0
    count = len(qualities) - 1
    while count - start > size:
        least = start + size // 2 + 1
        if qualities[least : start + size + 1].max() < UNSPACED:
            least = start + 1  # a short passage is better than a word in two
        ends = qualities[least : start + size + 1]
        stop = least + int(np.flatnonzero(ends == ends.max())[-1])
        if stop > before:  # else it lies within the passage before
            yield start, stop
        least, before = max(stop - overlap, start + 1), max(stop, before)
        starts = qualities[least : stop + 1]
        good = next(quality for quality in (UNSPACED, LETTERS, INSIDE) if (starts >= quality).any())
        start = least + int((starts >= good).argmax())
    yield start, count


def _qualities(text: str, tokens: NDArray[np.int64]) -> NDArray[np.int8]:
    """Quality of a cut before each token and after the last one: (tokens + 1,)."""
    inner = [
        _quality(text[before - 1 : before], text[before:start], text[start : start + 1]) if before <= start else INSIDE
        for before, start in zip(tokens[:-1, 1].tolist(), tokens[1:, 0].tolist(), strict=True)
    ]
    return np.array([BLANK, *inner, BLANK], np.int8)


def _quality(left: str, between: str, right: str) -> int:
    """Quality of a cut between two characters; `between` is the text between their tokens."""
    if left.isspace() or right.isspace() or any(map(str.isspace, between)):
        return BLANK
    if not left or not right:
        return INSIDE
    if left.isascii() and right.isascii():
        return LETTERS if left.isalnum() and right.isalnum() else PUNCTUATION
    if _is_joined(left, right):
        return INSIDE
    if right.isalnum() and unicodedata.category(left)[0] == "P" and unicodedata.east_asian_width(left) in "WF":
        return BLANK
    if right.isalnum() and (_within(left, _UNSPACED) or _within(right, _UNSPACED)):
        return UNSPACED
    return LETTERS if left.isalnum() and right.isalnum() else PUNCTUATION


def _is_joined(left: str, right: str) -> bool:
    """Returns True if two characters are parts of one grapheme."""
    if unicodedata.category(right)[0] == "M" or _JOINER in (left, right) or _within(right, _JOINED):
        return True
    return _within(left, _REGIONS) and _within(right, _REGIONS)


def _within(letter: str, ranges: Sequence[tuple[int, int]]) -> bool:
    return any(first <= ord(letter) <= last for first, last in ranges)
