"""Text input: texts, or the turns of dialogues, as token ids."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from twofold.data.batches import Draw, pad_ids
from twofold.data.cache import Cache, Encoded, Field
from twofold.data.candidates import Candidate, Text, Texts, as_context, given_texts, is_file, read_candidates
from twofold.data.columns import Keep, TextColumn, TooLong, check_limit, texts_in
from twofold.data.files import Row
from twofold.data.passages import Split, Splitter
from twofold.data.tokenizer import Frame, Ids, TextTokenizer, TokenizerConfig
from twofold.errors import TwofoldError
from twofold.explaining import LeftOut, without_each_word
from twofold.inputs import INPUT, Input, InputConfig
from twofold.reading import TEXTS
from twofold.types import Batch, Hidden, InputBatch, Vocabulary

if TYPE_CHECKING:  # texts are read without torch as well
    from torch import Tensor

    from twofold.types import Encoder


@dataclass(frozen=True)
class Tokens(InputBatch):
    """Texts as token ids; every row has at least one real position."""

    tokens: Tensor
    """Token ids (rows, positions)."""
    mask: Tensor
    """Padding mask (rows, positions); true where real."""
    segments: Tensor | None = None
    """Segment ids (rows, positions) of two joined texts: 0 for the first, 1 for the second."""
    unmasked: Tensor | None = None
    """Token ids (rows, positions) before masking, if some were masked."""

    def __len__(self) -> int:
        return self.tokens.shape[0]

    def count(self) -> int:
        return int(self.mask.sum())

    def encode(self, encoder: Encoder, batch: Batch) -> Hidden:
        return replace(encoder(batch), segments=self.segments, tokens=self.tokens)


def make_tokens(rows: Sequence[ArrayLike], vocabulary: Vocabulary) -> Tokens:
    """Pads rows of ids to the longest."""
    return Tokens(*pad_ids(rows, vocabulary.pad))


def make_joined_tokens(rows: Sequence[tuple[ArrayLike, int]], vocabulary: Vocabulary) -> Tokens:
    """Pads rows of two joined texts, each with the start of the second."""
    import torch

    tokens, mask = pad_ids([ids for ids, _ in rows], vocabulary.pad)
    starts = torch.tensor([start for _, start in rows])
    segments = (torch.arange(tokens.shape[1]) >= starts[:, None]) & mask
    return Tokens(tokens, mask, segments.long())


def special_tokens_of(tokenizer: TextTokenizer, wanted: bool, limit: int, texts: int = 1) -> Frame:
    """Special tokens around a text, if wanted; they must leave room within the limit."""
    frame = tokenizer.frame if wanted else Frame()
    around = len(frame) + (len(frame.between) if texts > 1 else 0)
    if limit < around + texts:
        raise TwofoldError(
            f"input.max_tokens={limit} leaves no room beside the {around} symbols around a text; "
            f"at least {around + texts}"
        )
    return frame


@dataclass(frozen=True)
class TokensConfig(InputConfig):
    """Settings of input types that read text."""

    max_tokens: int = 128
    """Maximum number of tokens of a text, special tokens included."""
    too_long: TooLong = "cut"
    """Action for longer texts: `cut` truncates them and counts them in the log, `refuse` raises an error that names the
    line."""
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    """Settings of the tokenizer to train; unused if the encoder brings its own tokenizer."""

    def __post_init__(self) -> None:
        check_limit("max_tokens", self.max_tokens)

    def row_texts(self, row: Row) -> list[str]:
        return texts_in(row, self.columns())

    def tokenizer_settings(self) -> TokenizerConfig:
        return self.tokenizer

    def limited(self, longest: int) -> Self:
        return replace(self, max_tokens=min(self.max_tokens, longest))

    def limits(self) -> dict[str, int]:
        return {"max_tokens": self.max_tokens}


@dataclass(frozen=True)
class Config(TokensConfig):
    """Settings of text inputs."""

    gives: ClassVar[type[InputBatch]] = Tokens
    without_torch: ClassVar[bool] = True

    column: str = "source"
    """Column to read: a text, or a list of texts, the turns of a dialogue, oldest first."""
    keep: Keep = "head"
    """End of an overlong text that is kept: `head`, `tail` (the newest turns of a dialogue), or `turns`, the tail of
    several turns and the head of a single text."""
    prompt: str = ""
    """Prompt put before every text, as some backbones expect; include its trailing blank."""
    separator: str | None = None
    """Separator between turns; null uses the tokenizer's own."""
    preface: str | None = None
    """Column with texts put before the turns, such as a persona."""
    special_tokens: bool | None = None
    """Adds special tokens around texts; null leaves it to the output."""

    def build(self, tokenizer: TextTokenizer | None) -> TextInput:
        assert tokenizer is not None
        frame = special_tokens_of(tokenizer, bool(self.special_tokens), self.max_tokens)
        limit = self.max_tokens - len(frame)
        how = (self.too_long, self.keep, self.prompt, self.separator, self.preface)
        return TextInput(self, TextColumn(self.column, tokenizer, limit, *how), frame)

    def prompts(self) -> tuple[str, ...]:
        return (self.prompt,)

    def before(self) -> str | None:
        return self.preface

    def row_texts(self, row: Row) -> list[str]:
        before = texts_in(row, [self.preface]) if self.preface and row.values.get(self.preface) else []
        return before + super().row_texts(row)

    def with_special_tokens(self, wanted: bool) -> Self:
        return self if self.special_tokens is not None else replace(self, special_tokens=wanted)


@dataclass(frozen=True)
class TextInput(Input[Ids]):
    """Text input; items are the token ids of a text, without special tokens."""

    config: Config
    text: TextColumn
    frame: Frame

    @property
    def tokenizer(self) -> TextTokenizer:
        return self.text.tokenizer

    def columns(self) -> dict[str, Field]:
        return {INPUT: self.text}

    def items(self, rows: Sequence[Row]) -> list[Ids]:
        encoded = self.text.encode(rows)
        say_cut(encoded.cut, len(rows), self.limit)
        return encoded.ids

    def cached(self, cache: Cache, row: int) -> Ids:
        return cache.columns[INPUT].row(row)

    def length(self, item: Ids) -> int:
        return len(item)

    def lengths(self, cache: Cache) -> NDArray[np.int64]:
        return cache.columns[INPUT].lengths + len(self.frame)

    def batch(self, items: Sequence[Ids], draws: Sequence[Draw] | None = None) -> Tokens:
        return make_tokens(self.framed(items), self.vocabulary)

    def framed(self, items: Sequence[Ids]) -> list[Ids]:
        """Adds the special tokens around each text."""
        # Without special tokens, an empty text would have no token.
        alone = [self.tokenizer.start]
        return [self.frame.around(ids) if len(self.frame) else (ids if len(ids) else alone) for ids in items]

    def beginning(self, text: str) -> Ids:
        """Tokenizes the prefix of a text to continue; warns about unknown characters and truncation."""
        encoded = self.text.encode([self.row(text, "the beginning")])
        ids: Ids = encoded.ids[0]
        if self.tokenizer.unknown in ids:
            warnings.warn("the beginning holds letters that the model does not know", stacklevel=4)
        if encoded.cut:
            warnings.warn(f"the beginning is longer than {self.text.limit} tokens and was cut", stacklevel=4)
        return ids

    def value(self, row: Row) -> str | list[str]:
        return self.text.text(row)

    def placed(self, place: str) -> Self:
        return replace(self, text=replace(self.text, place=place))

    def accepted(self, value: Any, name: str, filled: bool = False) -> Text:
        text = as_context(value, name)
        return Row(name, {"context": text}).text("context") if filled else text

    def candidates(self, where: Texts, blank: bool = False) -> Iterator[Candidate]:
        return iter(given_texts(where)) if blank and not is_file(where) else read_candidates(where, blank)

    def splitter(self, split: Split) -> Splitter:
        return self.text.splitter(split)

    def items_of(self, values: Sequence[Any]) -> list[Ids]:
        return self.text.encode_texts(values).ids

    def encode_values(self, column: str, values: Sequence[Any]) -> Encoded:
        return self.text.encode_texts(values)

    def left_out(self, value: Any) -> LeftOut:
        return without_each_word(value)

    def reading(self) -> dict[str, Any]:
        around = {"before": list(self.frame.before), "after": list(self.frame.after)}
        symbols = {"alone": self.tokenizer.start, "pad": self.tokenizer.pad}
        return {"reader": "texts", **column_reading(self.text), **around, **symbols}

    def samples(self) -> list[Any]:
        return list(TEXTS)

    def pieces(self, item: Ids) -> list[str]:
        return self.tokenizer.pieces(self.frame.around(item).tolist())


def column_reading(text: TextColumn) -> dict[str, Any]:
    """Settings by which a text, or the turns of a dialogue, become token ids within the limit."""
    tokenizer = text.tokenizer
    separator = [tokenizer.separator] if text.separator is None else tokenizer.encode([text.separator])[0]
    return {"prompt": text.prompt, "separator": list(separator), "room": text.limit, "keep": text.keep}


def say_cut(cut: int, count: int, limit: int) -> None:
    """Warns about truncated inputs."""
    if cut:
        warnings.warn(f"{cut} of {count} inputs are longer than {limit} tokens and were cut", stacklevel=5)
