"""Interface of explanations: an output type explains answers, an input type leaves out words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from twofold.errors import TwofoldError
from twofold.recording import AttentionRecord, BeamRecord, recorded_beam
from twofold.results import Prediction, Scores
from twofold.results.explanation import Attention, Explanation, Probabilities
from twofold.types import Classes, Hidden, OutputSpec

if TYPE_CHECKING:
    from twofold.types import Decoder

Ids = Sequence[int] | NDArray[Any]
LeftOut = list[tuple[str, Any]]
"""Each word of a value, with the value without it; None instead of a value without any word."""


class LeavesOut:
    """Default of an input type without words."""

    def left_out(self, value: Any) -> LeftOut:
        """Each word of a user's value, with the value without it."""
        return []


@dataclass(frozen=True)
class Question:
    """Input whose answer is explained: the encoder has read it, the decoder answers."""

    given: Any
    """Input as the user gave it."""
    item: Any
    tokens: tuple[str, ...]
    """Tokens of the input; empty for images and audio."""
    hidden: Hidden
    """Output of the encoder, of one row."""
    part: Decoder
    options: Any
    """Generation options of text decoders."""
    begun: Ids = ()
    """Prefix of the text to write."""
    written: str | Sequence[int] | None = None
    """Text, or token ids, to explain instead of the model's answer."""
    beam: BeamRecord = field(default_factory=list)
    """Steps of the beam search for the answer."""


class Explains:
    """Defaults of an output type's explanations: the answer and its score alone."""

    def answer(self, given: Any, item: Any, raw: Any, begun: Any = ()) -> Prediction:
        raise NotImplementedError

    def result(self, question: Question) -> Any:
        """Decoder's result for the input that is explained."""
        if question.written is not None:
            raise TwofoldError("explain: this decoder writes no text; leave out `written`")
        with recorded_beam() as beam:
            (raw,) = question.part.predict(question.hidden, question.options)
        question.beam.extend(beam)
        return raw

    def explain(self, question: Question, raw: Any) -> Explanation:
        """Explains a decoder's result."""
        prediction = self.answer(question.given, question.item, raw, question.begun)
        return Explanation(question.given, prediction.output, prediction.score)

    def score_names(self, explanation: Explanation) -> tuple[str, ...]:
        """Names of the scores that the influence of words is measured on; empty if there is none to measure."""
        return ()

    def scores(self, part: Decoder, hidden: Hidden, raw: Any, left_out: Sequence[int]) -> NDArray[np.float32]:
        """Scores (rows, scores) of the answer in `raw`, for other rows; `left_out` is the index of the word that each
        row lacks, or -1."""
        raise NotImplementedError


class ExplainsScores(Explains):
    """Explanations of outputs with a probability for each label, or with one number."""

    spec: OutputSpec

    def explain(self, question: Question, raw: Scores) -> Explanation:
        explanation, names = super().explain(question, raw), self._names()
        if not names:
            return explanation
        return replace(explanation, probabilities=(Probabilities("labels", ("input",), names, raw.values[None]),))

    def score_names(self, explanation: Explanation) -> tuple[str, ...]:
        return self._names() or ("number",)

    def scores(self, part: Decoder, hidden: Hidden, raw: Scores, left_out: Sequence[int]) -> NDArray[np.float32]:
        return np.stack([scores.values for scores in part.predict(hidden, None)])

    def _names(self) -> tuple[str, ...]:
        """Names of the labels; empty for a number."""
        return self.spec.names if isinstance(self.spec, Classes) else ()


class ExplainsWords(Explains):
    """Explanations of outputs with one decision for each word; `chosen` gives the probabilities of the answer."""

    def chosen(self, raw: Any, decided: Any, words: Sequence[int]) -> NDArray[np.float32]:
        """Probability that the result `raw` gives to each decision of `decided`; `words` are the indices, in the whole
        sentence, of the words that `raw` is about."""
        raise NotImplementedError

    def score_names(self, explanation: Explanation) -> tuple[str, ...]:
        return tuple(explanation.output.words)

    def scores(self, part: Decoder, hidden: Hidden, raw: Any, left_out: Sequence[int]) -> NDArray[np.float32]:
        rows = []
        for result, gone in zip(part.predict(hidden, None), left_out, strict=True):
            count = len(result.probabilities) + (gone >= 0)
            words = [word for word in range(count) if word != gone]
            probabilities = np.full(count, np.nan, np.float32)
            probabilities[words] = self.chosen(result, raw, words)
            rows.append(probabilities)
        return np.stack(rows)


def stacked_attention(
    name: Literal["encoder", "decoder", "cross"], record: AttentionRecord, queries: Sequence[str], keys: Sequence[str]
) -> tuple[Attention, ...]:
    """Attention of all layers of one part, as it was recorded for one row.

    Empty if no layer attends, or if layers ran several times, such as over windows of a long sentence. Positions that
    are not tokens have no names.
    """
    layers = [weights for recorded, weights in record if (recorded == "cross") == (name == "cross")]
    if not layers or len({weights.shape for weights in layers}) > 1 or len(layers[0]) > 1:
        return ()
    import torch

    stack = torch.cat(layers).float().cpu().numpy()  # (layers, heads, queries, keys)
    count, width = stack.shape[2:]
    named = tuple(queries) if len(queries) == count else (), tuple(keys) if len(keys) == width else ()
    return (Attention(name, named[0], named[1], stack),)


def without_each_word(text: str | Sequence[str]) -> LeftOut:
    """Each word of a text, or of the turns of a dialogue, with the text without it."""
    turns = [text] if isinstance(text, str) else list(text)
    words = [(number, word) for number, turn in enumerate(turns) for word in re.finditer(r"\S+", turn)]
    left_out: LeftOut = []
    for number, word in words:
        shorter = turns[number][: word.start()] + turns[number][word.end() :].lstrip()
        changed = [*turns[:number], shorter.rstrip(), *turns[number + 1 :]]
        left_out.append((word.group(), changed[0] if isinstance(text, str) else changed))
    return left_out if len(words) > 1 else [(word, None) for word, _ in left_out]
