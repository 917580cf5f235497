"""Word input: sentences as words, with the tokens of each word and the positions where words begin."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from reprlib import repr as shown
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from twofold.data.batches import Draw, Span, Windows, make_windows, pad_ids, window_spans
from twofold.data.cache import Cache, DerivedField, Encoded, Field
from twofold.data.columns import TooLongError, words_in
from twofold.data.files import Row
from twofold.data.tokenizer import Frame, Ids, TextTokenizer
from twofold.explaining import LeftOut
from twofold.inputs import INPUT, Input
from twofold.inputs.text import Tokens, TokensConfig, special_tokens_of
from twofold.reading import TEXTS
from twofold.types import Batch, Encoder, Hidden, InputBatch

STARTS = "starts"
"""Cache column of the positions where words begin."""
READ_TOKENS = 4096
"""Number of tokens of windows, padding included, that an encoder reads at once."""


@dataclass(frozen=True)
class Words(Tokens):
    """Sentences as token ids, with the positions where words begin."""

    starts: Tensor = dataclasses.field(kw_only=True)
    """Position of each word's first token, (rows, words); -1 for padding."""
    windows: Windows | None = None
    """Overlapping windows of all rows, if some row is longer than the encoder can read at once."""

    def encode(self, encoder: Encoder, batch: Batch) -> Hidden:
        hidden = encoder(batch) if self.windows is None else self._in_windows(encoder, batch, self.windows)
        return dataclasses.replace(hidden, words=self.starts)

    def _in_windows(self, encoder: Encoder, batch: Batch, windows: Windows) -> Hidden:
        """Encodes all rows in windows; each token takes its state from its window, and summaries are averaged."""
        step = max(1, READ_TOKENS // windows.places.shape[1])
        name, parts = next(iter(batch.inputs)), []
        for start in range(0, len(windows.rows), step):
            some = slice(start, start + step)
            read = self.tokens[windows.rows[some, None], windows.places[some]]
            parts.append(encoder(batch.with_input(name, Tokens(read, windows.mask[some]))))
        states = summary = None
        if parts[0].states is not None:
            whole = torch.cat([part.need("states") for part in parts])  # (windows, positions, width)
            states = whole[windows.window, windows.position]
        if parts[0].summary is not None:
            summary = windows.mean(torch.cat([part.need("summary") for part in parts]), self.mask)
        return Hidden(self.mask, states, summary, parts[0].finish)


class Sentence(NamedTuple):
    """Sentence to read."""

    ids: Ids
    starts: Ids
    """Position of each word's first token, which represents the word."""
    windows: tuple[Span, ...] = ()
    """Overlapping windows of a sentence that is too long to read at once."""
    cut_words: int = 0
    """Number of words that were truncated."""


@dataclass(frozen=True)
class Config(TokensConfig):
    """Settings of word inputs."""

    gives: ClassVar[type[InputBatch]] = Words

    column: str = "words"
    """Column to read: a list of words, or a text that is split at blanks."""
    max_tokens: int = 128
    """Maximum number of tokens of a sentence, special tokens included. Longer sentences are predicted in overlapping
    windows; in training they are cut after the last word that fits."""

    def build(self, tokenizer: TextTokenizer | None) -> WordsInput:
        assert tokenizer is not None
        return WordsInput(self, tokenizer, special_tokens_of(tokenizer, True, self.max_tokens))


@dataclass(frozen=True)
class WordsInput(Input[Sentence]):
    """Word input; items are sentences with their special tokens."""

    config: Config
    word_tokenizer: TextTokenizer
    frame: Frame
    example: ClassVar[str] = '["Ada", "lives", "in", "London"]'

    @property
    def tokenizer(self) -> TextTokenizer:
        return self.word_tokenizer

    @property
    def dtype(self) -> str:
        return "uint16" if len(self.tokenizer) <= 1 << 16 else "uint32"

    def settings(self) -> list[Any]:
        config, frame = self.config, [self.frame.before, self.frame.after]
        return ["words", config.column, config.max_tokens, config.too_long, self.tokenizer.fingerprint(), *frame]

    def value(self, row: Row) -> list[str]:
        """Words of a row; none may be empty."""
        return words_in(row, self.config.column)

    @property
    def room(self) -> int:
        """Maximum number of tokens of a sentence, without special tokens."""
        return self.config.max_tokens - len(self.frame)

    @property
    def word_room(self) -> int:
        """Maximum number of tokens of a single word; smaller than a sentence, so that its neighbors are seen too."""
        return max(1, self.room // 2)

    def learned(self, rows: Sequence[Row]) -> Encoded:
        """Encodes sentences for training; a long one ends with the last word that fits."""
        sentences, cut = [], 0
        for pieces, fitting in self._pieces(rows):
            sizes = np.cumsum([len(word) for word in fitting])
            kept = int(np.searchsorted(sizes, self.room, side="right"))
            sentence = self._sentence(fitting[:kept], pieces[:kept])
            cut += kept < len(pieces) or sentence.cut_words > 0
            sentences.append(sentence)
        return Encoded(sentences, cut)

    def encode(self, rows: Sequence[Row]) -> Encoded:
        encoded = self.learned(rows)
        return Encoded([sentence.ids for sentence in encoded.ids], encoded.cut)

    def items(self, rows: Sequence[Row]) -> list[Sentence]:
        """Encodes every word of every sentence for prediction; long sentences are read in windows."""
        sentences = []
        for pieces, fitting in self._pieces(rows):
            sentence = self._sentence(fitting, pieces)
            if len(sentence.ids) > self.config.max_tokens:
                spans = window_spans([len(word) for word in fitting], self.room)
                sentence = sentence._replace(windows=tuple(spans))
            sentences.append(sentence)
        self._say_long(sentences)
        return sentences

    def _pieces(self, rows: Sequence[Row]) -> Iterator[tuple[list[list[int]], list[list[int]]]]:
        """Yields for each row the tokens of each word, and the same with overlong words truncated."""
        sentences = [self.value(row) for row in rows]
        # Every word but the first gets a leading blank, because some tokenizers split words inside a sentence
        # differently.
        spaced = [f" {word}" if number else word for words in sentences for number, word in enumerate(words)]
        flat = iter(self.tokenizer.encode(spaced))
        for row, words in zip(rows, sentences, strict=True):
            pieces = [next(flat) or [self.tokenizer.unknown] for _ in words]
            if self.config.too_long == "refuse" and sum(map(len, pieces)) > self.room:
                raise self._too_long(pieces, row)
            yield pieces, [word if len(word) <= self.room else word[: self.word_room] for word in pieces]

    def _too_long(self, pieces: Sequence[Ids], row: Row) -> TooLongError:
        sizes = [len(word) for word in pieces]
        word, otherwise = int(np.argmax(sizes)), "or train with a higher input.max_tokens or with input.too_long=cut"
        if sizes[word] > self.room:
            return TooLongError(
                f"{row.place}: the word {shown(self.value(row)[word])} has {sizes[word]} tokens, and {self.room} are "
                f"the most of a whole sentence; shorten it, {otherwise}"
            )
        return TooLongError(
            f"{row.place}: {sum(sizes)} tokens, the limit is {self.room}; cut the sentence in two, {otherwise}"
        )

    def _sentence(self, fitting: Sequence[Ids], pieces: Sequence[Ids]) -> Sentence:
        before, after = self.frame.before, self.frame.after
        starts = len(before) + np.cumsum([0, *map(len, fitting)])[:-1]
        cut = sum(len(short) < len(word) for short, word in zip(fitting, pieces, strict=True))
        return Sentence([*before, *chain(*fitting), *after], starts.tolist(), cut_words=cut)

    def _say_long(self, sentences: Sequence[Sentence]) -> None:
        windowed = sum(bool(sentence.windows) for sentence in sentences)
        cut, said = sum(sentence.cut_words for sentence in sentences), []
        if windowed:
            are = "is" if windowed == 1 else "are"
            said.append(
                f"{windowed:,} of {len(sentences):,} sentences {are} longer than {self.config.max_tokens} tokens and "
                f"{are} read in overlapping windows"
            )
        if cut:
            which = "1 word is" if cut == 1 else f"{cut:,} words are"
            said.append(f"{which} longer than a whole sentence may be and cut to {self.word_room} tokens")
        if said:
            # The place is always the same, so that the warning appears once even if several metrics read the rows.
            warnings.warn("; ".join(said), stacklevel=2)

    def columns(self) -> dict[str, Field]:
        starts = DerivedField("int32", lambda: [STARTS, *self.settings()], self._encode_starts)
        return {INPUT: self, STARTS: starts}

    def _encode_starts(self, rows: Sequence[Row]) -> Encoded:
        return Encoded([sentence.starts for sentence in self.learned(rows).ids])

    def cached(self, cache: Cache, row: int) -> Sentence:
        return Sentence(cache.columns[INPUT].row(row), cache.columns[STARTS].row(row))

    def length(self, item: Sentence) -> int:
        return len(item.ids)

    def lengths(self, cache: Cache) -> NDArray[np.int64]:
        return cache.columns[INPUT].lengths

    def batch(self, items: Sequence[Sentence], draws: Sequence[Draw] | None = None) -> Words:
        tokens, mask = pad_ids([sentence.ids for sentence in items], self.tokenizer.pad)
        windows = self._windows(items) if any(sentence.windows for sentence in items) else None
        return Words(tokens, mask, starts=pad_ids([sentence.starts for sentence in items], -1)[0], windows=windows)

    def _windows(self, items: Sequence[Sentence]) -> Windows:
        """Windows of long sentences, and one window for each other sentence."""
        before, after = len(self.frame.before), len(self.frame.after)
        rows = [(len(item.ids), item.windows or [(0, len(item.ids) - before - after)]) for item in items]
        return make_windows(rows, before, after)

    def left_out(self, value: Any) -> LeftOut:
        words = self.value(self.row(value, "input"))
        return [(word, [*words[:place], *words[place + 1 :]] or None) for place, word in enumerate(words)]

    def pieces(self, item: Sentence) -> list[str]:
        return self.tokenizer.pieces([int(token) for token in item.ids])

    def reading(self) -> dict[str, Any]:
        around = {"before": list(self.frame.before), "after": list(self.frame.after)}
        symbols = {"pad": self.tokenizer.pad, "unknown": self.tokenizer.unknown}
        return {"reader": "words", "room": self.room, "word_room": self.word_room, **around, **symbols}

    def samples(self) -> list[Any]:
        """Sentences that are read at once, without windows."""
        sentences = [text.split()[: max(1, self.room // 12)] for text in TEXTS if text.split()]
        rows = [self.row(words, "sample") for words in sentences]
        return [words for words, row in zip(sentences, rows, strict=True) if not self.items([row])[0].windows]
