"""Text output: a text generated from left to right, such as a translation or a reply."""

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
    """Settings of outputs that generate text."""

    takes: ClassVar[type] = Hypotheses
    special_tokens: ClassVar[bool] = False
    writes_text: ClassVar[bool] = True
    joins: ClassVar[bool] = False

    max_tokens: int = 128
    """Maximum number of tokens of a text, in training and generation."""
    too_long: TooLong = "cut"
    """Action for longer texts: `cut` truncates them and counts them in the log, `refuse` raises an error that names the
    line."""
    tokenizer: TokenizerConfig | None = None
    """Settings of the output's own tokenizer; null shares the input's, or uses the defaults if the input is not
    text."""

    def __post_init__(self) -> None:
        check_limit("max_tokens", self.max_tokens)

    def text_column(self, tokenizer: TextTokenizer | None) -> TextColumn:
        """Tokenized column of the texts."""
        assert tokenizer is not None
        return TextColumn(self.columns()[0], tokenizer, self.max_tokens, self.too_long, place="output")

    def row_texts(self, row: Row) -> list[str]:
        return texts_in(row, self.columns())

    def tokenizer_settings(self) -> TokenizerConfig | None:
        return self.tokenizer


@dataclass(frozen=True)
class Config(WrittenConfig):
    """Settings of text generation."""

    column: str = "target"
    """Column of the text to write."""
    noise: Noise | None = None
    """Denoising (BART): noise on the input text, such as {mask: 0.3, delete: 0.1}, when the target is the same text."""

    def build(self, name: str, input: Input[Any], tokenizer: TextTokenizer | None, spec: HiddenSpec) -> TextOutput:
        text, mask = self.text_column(tokenizer), input.tokenizer.mask if input.tokenizer else 0
        return TextOutput(name, self, vocabulary_of(text.tokenizer, text.limit), text, self.noise, mask)

    def check(self, input: InputConfig) -> None:
        super().check(input)
        if self.noise and input.gives is not Tokens:
            raise TwofoldError("output.noise is for texts that are read from one column")


@dataclass(frozen=True)
class TextOutput(Output[Ids]):
    """Text output: token ids of a text."""

    spec: Vocabulary
    text: TextColumn
    noise: Noise | None = None
    mask_token: int = 0
    """Token id that the input shows for masked tokens."""
    counted: ClassVar[bool] = True
    metrics: ClassVar[tuple[str, ...]] = ("likelihood", "text")

    def columns(self) -> dict[str, Field]:
        return {self.name: self.text}

    def gold(self, row: Row) -> str:
        """Gold text of a row; turns of a dialogue are joined by blanks."""
        text = row.text(self.text.column)
        return text if isinstance(text, str) else " ".join(text)

    def values(self, rows: Sequence[Row]) -> Sequence[Ids]:
        return self.text.encode(rows).ids

    def change(
        self, items: Sequence[Ids], values: Sequence[Ids], draws: Sequence[Draw], other: Callable[[Draw], Any]
    ) -> tuple[Sequence[Ids], Sequence[Ids]]:
        """Adds noise to the input, where the target is the same text."""
        if self.noise is not None:
            items = [self.noise.of(item, self.mask_token, draw) for item, draw in zip(items, draws, strict=True)]
        return items, values

    def target(self, values: Sequence[Any]) -> Target:
        return self.text_target(values)

    def text_target(self, texts: Sequence[ArrayLike]) -> Target:
        """Targets (texts, positions), each between start and end symbol."""
        vocabulary = self.spec
        return Target(*pad_ids(texts, vocabulary.pad, vocabulary.start, vocabulary.end))

    def answer(self, given: Any, item: Any, raw: Hypotheses, begun: Ids = ()) -> Prediction:
        """Best text, including its prefix, and the other hypotheses."""
        best, *others = [
            (self.text.decode([*begun, *hypothesis.tokens]), hypothesis.score) for hypothesis in raw.hypotheses
        ]
        normalized = tuple(hypothesis.normalized_score for hypothesis in raw.hypotheses)
        return Prediction(given, *best, tuple(others), normalized, raw.hypotheses[0].tokens)
