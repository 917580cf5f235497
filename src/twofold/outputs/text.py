"""Text output: a text generated from left to right, such as a translation or a reply."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from twofold.data.batches import Draw, pad_ids
from twofold.data.cache import Field
from twofold.data.columns import Noise, TextColumn, TooLong, check_limit, texts_in, vocabulary_of
from twofold.data.files import Row
from twofold.data.tokenizer import Ids, TextTokenizer, TokenizerConfig
from twofold.errors import TwofoldError
from twofold.explaining import Question, stacked_attention
from twofold.generate.decoder import TextDecoder
from twofold.inputs import Input, InputConfig
from twofold.inputs.text import Tokens
from twofold.outputs import ColumnConfig, Output, Tab
from twofold.recording import Branch, recorded_attention
from twofold.results import Hypotheses, Hypothesis, Prediction
from twofold.results.explanation import BeamHypothesis, Explanation, TokenChoice
from twofold.types import Decoder, Hidden, HiddenSpec, Target, Vocabulary

ALTERNATIVES = 10
"""Number of tokens that an explanation shows for each step."""


@dataclass(frozen=True)
class WrittenConfig(ColumnConfig):
    """Settings of outputs that generate text."""

    takes: ClassVar[type] = Hypotheses
    special_tokens: ClassVar[bool] = False
    writes_text: ClassVar[bool] = True
    joins: ClassVar[bool] = False
    tab: ClassVar[Tab] = "write"

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

    def result(self, question: Question) -> Hypotheses:
        if question.written is None:
            return cast(Hypotheses, super().result(question))
        written, part = question.written, cast(TextDecoder, question.part)
        if isinstance(written, str):
            written = self.text.tokenizer.encode([written.removeprefix(self.text.decode(list(question.begun)))])[0]
        tokens = tuple(int(token) for token in written[: self.text.limit])
        score = float(part.log_probability(question.hidden, self._target(question.hidden, tokens)))
        return Hypotheses((Hypothesis(tokens, score, score / (len(tokens) + 1)),))

    def explain(self, question: Question, raw: Hypotheses) -> Explanation:
        """Alternatives of each token, and the decoder's attention as it reads the text that was written."""
        target = self._target(question.hidden, raw.hypotheses[0].tokens)
        with recorded_attention() as record:
            scores = cast(TextDecoder, question.part).log_probabilities(question.hidden, target)[0]
        start, *written = self.text.tokenizer.pieces(target.tokens[0].tolist())
        # The decoder reads the text shifted right: at each position it attends in order to write the next token.
        cross = stacked_attention("cross", record, written, question.tokens)
        decoder = stacked_attention("decoder", record, written, [start, *written[:-1]])
        choices = self._choices(scores, target.tokens[0, 1:], written)
        explanation = replace(super().explain(question, raw), written=tuple(written), choices=choices)
        return replace(explanation, beam=tuple(map(self._hypotheses, question.beam)), attention=cross + decoder)

    def _hypotheses(self, branches: Sequence[Branch]) -> tuple[BeamHypothesis, ...]:
        """Hypotheses of one step of beam search."""
        pieces = self.text.tokenizer.pieces([branch.token for branch in branches])
        return tuple(
            BeamHypothesis(branch.parent, piece, branch.score, branch.token == self.spec.end)
            for branch, piece in zip(branches, pieces, strict=True)
        )

    def score_names(self, explanation: Explanation) -> tuple[str, ...]:
        return explanation.written

    def scores(self, part: Decoder, hidden: Hidden, raw: Hypotheses, left_out: Sequence[int]) -> NDArray[np.float32]:
        target = self._target(hidden, raw.hypotheses[0].tokens, len(left_out))
        scores = cast(TextDecoder, part).token_log_probabilities(hidden, target)
        return scores.cpu().numpy()

    def _target(self, hidden: Hidden, tokens: Sequence[int], rows: int = 1) -> Target:
        return self.text_target([tokens] * rows).to(hidden.mask.device)

    def _choices(self, scores: Tensor, right: Tensor, written: Sequence[str]) -> tuple[TokenChoice, ...]:
        """Most likely tokens (positions, tokens) of each step."""
        best = scores.exp().topk(min(ALTERNATIVES, scores.shape[1]))
        chances = scores.gather(1, right[:, None])[:, 0].exp().tolist()
        names = [self.text.tokenizer.pieces(tokens) for tokens in best.indices.tolist()]
        steps = zip(written, chances, names, best.values.tolist(), strict=True)
        return tuple(TokenChoice(token, chance, tuple(zip(*step, strict=True))) for token, chance, *step in steps)
