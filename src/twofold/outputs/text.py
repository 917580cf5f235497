"""A text that is written from left to right: a translation, a reply."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from numpy.typing import ArrayLike

from twofold.data.batches import Draw, pad_ids
from twofold.data.cache import Field
from twofold.data.columns import Noise, TextColumn, TooLong, check_limit, texts_in, vocabulary_of
from twofold.data.files import Row
from twofold.data.tokenizer import Ids, TextTokenizer, TokenizerConfig
from twofold.errors import TwofoldError
from twofold.inputs import Input, InputConfig
from twofold.inputs.text import Tokens
from twofold.outputs import ColumnConfig, Output
from twofold.results import Hypotheses, Prediction
from twofold.types import HiddenSpec, Target, Vocabulary


@dataclass(frozen=True)
class WrittenConfig(ColumnConfig):
    """Settings of an output that writes texts token by token."""

    takes: ClassVar[type] = Hypotheses
    special_tokens: ClassVar[bool] = False
    writes_text: ClassVar[bool] = True
    joins: ClassVar[bool] = False

    max_tokens: int = 128
    """The most tokens of a text, and the most that are written."""
    too_long: TooLong = "cut"
    """What happens to longer ones: cut loses their tail and counts them in the log, refuse ends with the line."""
    tokenizer: TokenizerConfig | None = None
    """How texts are cut into tokens; unless given, by the tokenizer of the input, or as a tokenizer's defaults say
    where the input is no text."""

    def __post_init__(self) -> None:
        check_limit("max_tokens", self.max_tokens)

    def text_column(self, tokenizer: TextTokenizer | None) -> TextColumn:
        """How the texts of the first column become tokens."""
        assert tokenizer is not None
        return TextColumn(self.columns()[0], tokenizer, self.max_tokens, self.too_long, place="output")

    def row_texts(self, row: Row) -> list[str]:
        return texts_in(row, self.columns())

    def tokenizer_settings(self) -> TokenizerConfig | None:
        return self.tokenizer


@dataclass(frozen=True)
class Config(WrittenConfig):
    """Settings of a text."""

    column: str = "target"
    """The column or key of the text to write."""
    noise: Noise | None = None
    """Denoising: what is done to the text that is read, such as {mask: 0.3, delete: 0.1}, when the same is written."""

    def build(self, name: str, input: Input[Any], tokenizer: TextTokenizer | None, spec: HiddenSpec) -> TextOutput:
        text, mask = self.text_column(tokenizer), input.tokenizer.mask if input.tokenizer else 0
        return TextOutput(name, self, vocabulary_of(text.tokenizer, text.limit), text, self.noise, mask)

    def check(self, input: InputConfig) -> None:
        super().check(input)
        if self.noise and input.gives is not Tokens:
            raise TwofoldError("output.noise is for texts that are read from one column")


@dataclass(frozen=True)
class TextOutput(Output[Ids]):
    """The ids of a text."""

    spec: Vocabulary
    text: TextColumn
    noise: Noise | None = None
    mask_token: int = 0
    """What the input reads a masked token as."""
    counted: ClassVar[bool] = True
    metrics: ClassVar[tuple[str, ...]] = ("likelihood", "text")

    def columns(self) -> dict[str, Field]:
        return {self.name: self.text}

    def gold(self, row: Row) -> str:
        """The right text of a row; the turns of a dialogue with blanks between them."""
        text = row.text(self.text.column)
        return text if isinstance(text, str) else " ".join(text)

    def values(self, rows: Sequence[Row]) -> Sequence[Ids]:
        return self.text.encode(rows).ids

    def change(
        self, items: Sequence[Ids], values: Sequence[Ids], draws: Sequence[Draw], other: Callable[[Draw], Any]
    ) -> tuple[Sequence[Ids], Sequence[Ids]]:
        """Noise on what is read, where the same text is to be written as it was."""
        if self.noise is not None:
            items = [self.noise.of(item, self.mask_token, draw) for item, draw in zip(items, draws, strict=True)]
        return items, values

    def target(self, values: Sequence[Any]) -> Target:
        return self.text_target(values)

    def text_target(self, texts: Sequence[ArrayLike]) -> Target:
        """(texts, positions), each text between the start and the end symbol."""
        vocabulary = self.spec
        return Target(*pad_ids(texts, vocabulary.pad, vocabulary.start, vocabulary.end))

    def answer(self, given: Any, item: Any, raw: Hypotheses, begun: Ids = ()) -> Prediction:
        """The best text whole, also where it was begun, and the other hypotheses."""
        best, *others = [
            (self.text.decode([*begun, *hypothesis.tokens]), hypothesis.score) for hypothesis in raw.hypotheses
        ]
        normalized = tuple(hypothesis.normalized_score for hypothesis in raw.hypotheses)
        return Prediction(given, *best, tuple(others), normalized, raw.hypotheses[0].tokens)
