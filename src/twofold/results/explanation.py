"""Explanations: what a figure or a page draws of how a model came to its answer."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from twofold.results import Timeline
from twofold.results.shown import screen, short

DIGITS = 6
"""Significant digits of numbers in `as_dict`."""


class Explained:
    """Base of explanations and their parts."""

    def as_dict(self) -> dict[str, Any]:
        """Converts to JSON values; fields without content are left out, and NaN becomes None."""
        values = {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}  # type: ignore[arg-type]
        return {name: _plain(value) for name, value in values.items() if not _is_empty(value)}

    def __repr__(self) -> str:
        values = {item.name: getattr(self, item.name) for item in dataclasses.fields(self)}  # type: ignore[arg-type]
        return screen(
            type(self).__name__, [(name, _summary(value)) for name, value in values.items() if not _is_empty(value)]
        )


@dataclass(frozen=True, repr=False)
class Attention(Explained):
    """Attention weights of all layers and heads of one part of the model."""

    name: Literal["encoder", "decoder", "cross"]
    """Self-attention of the encoder, self-attention of the decoder, or cross-attention of the decoder."""
    queries: tuple[str, ...]
    """Tokens that attend; empty for positions of images and audio."""
    keys: tuple[str, ...]
    """Tokens attended to; empty for positions of images and audio."""
    weights: NDArray[np.float32]
    """Weights (layers, heads, queries, keys); the sum over the keys is 1."""


@dataclass(frozen=True, repr=False)
class Influence(Explained):
    """Influence of each input word, by leaving it out (occlusion)."""

    words: tuple[str, ...]
    scores: tuple[str, ...]
    """Names of the scores: labels, output tokens, or words with a tag or a head."""
    values: NDArray[np.float32]
    """Score with the word minus score without it, (words, scores). NaN where there is none: for the tag of the word
    that is left out, and for an input of one word."""


@dataclass(frozen=True, repr=False)
class Probabilities(Explained):
    """Probabilities of a decoder's choices, one row for each decision."""

    name: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: NDArray[np.float32]
    """Probabilities (rows, columns)."""


@dataclass(frozen=True, repr=False)
class TokenChoice(Explained):
    """One step of generation: the token written, and the most likely tokens."""

    token: str
    probability: float
    alternatives: tuple[tuple[str, float], ...]
    """Most likely tokens with their probabilities, before length limits and n-gram blocking."""


@dataclass(frozen=True, repr=False)
class BeamHypothesis(Explained):
    """Hypothesis in one step of beam search."""

    parent: int
    """Index of the hypothesis that it extends, in the previous step; 0 in the first step."""
    token: str
    score: float
    """Log-probability of the hypothesis."""
    finished: bool


@dataclass(frozen=True, repr=False)
class Codes(Explained):
    """Codes of a poly-encoder: where they look in the context, and how they make up the score.

    score = Σ weights × parts + constant, over heads and codes.
    """

    attention: NDArray[np.float32]
    """Attention of each code over the context tokens, (codes, tokens)."""
    parts: NDArray[np.float32]
    """Dot products s_i of the candidate with the codes' vectors, (heads, codes)."""
    weights: NDArray[np.float32]
    """Attention of the candidate over the codes, softmax(β s), (heads, codes)."""
    constant: float = 0.0
    """Part of the score that depends on no code: the bias of multi-head attention."""


@dataclass(frozen=True, repr=False)
class Matches(Explained):
    """Late interaction: the best match of each context token. score = Σ_t similarities[t, best[t]]."""

    similarities: NDArray[np.float32]
    """Dot products (context tokens, candidate vectors)."""
    best: tuple[int, ...]
    """Candidate vector with the largest dot product, for each context token."""
    vectors: tuple[tuple[int, ...], ...]
    """Positions of the candidate tokens that each candidate vector stands for."""


@dataclass(frozen=True, repr=False)
class ScoreParts(Explained):
    """Parts of a ranking score, as far as the decoder has any."""

    codes: Codes | None = None
    matches: Matches | None = None
    compared: float | None = None
    """Cross-encoder with `compare`: the part of the score from the texts read alone, which is a learned factor times
    the score that `codes` add up to; the rest is from the joined text."""


@dataclass(frozen=True, repr=False)
class CandidateExplanation(Explained):
    """Explanation of one candidate's score."""

    text: str
    id: Any
    score: float
    tokens: tuple[str, ...] = ()
    """Tokens of the candidate as the encoder reads them; empty for images."""
    context_influence: Influence | None = None
    """Influence of the words of the context on the score."""
    candidate_influence: Influence | None = None
    """Influence of the words of the candidate on the score."""
    parts: ScoreParts = field(default_factory=ScoreParts)


@dataclass(frozen=True, repr=False)
class RankingExplanation(Explained):
    """Explanation of a ranking: the best candidates, each with what makes its score."""

    context: Any
    tokens: tuple[str, ...]
    """Tokens of the context as the encoder reads them; empty for images."""
    candidates: tuple[CandidateExplanation, ...]
    """Best candidates, best first."""


@dataclass(frozen=True, repr=False)
class BoundCurve(Explained):
    """Upper bounds of candidates' scores from the highest down; of many candidates, some places of the curve."""

    rank: NDArray[np.float64]
    """Places in the order of the bounds, from 1."""
    quantile: NDArray[np.float64]
    """Shares of the candidates before these places."""
    bound: NDArray[np.float32]


@dataclass(frozen=True, repr=False)
class ScoredCandidate(Explained):
    """Candidate whose score was computed exactly."""

    id: Any
    bound: float | None
    score: float


@dataclass(frozen=True, repr=False)
class SearchExplanation(Explained):
    """Certificate of a search: no bound of a candidate that was not scored reaches the floor."""

    candidates: int
    """Number of candidates, or of passages, that the filter lets through."""
    scored: int
    """Number of those that were scored exactly."""
    floor: float
    """Score of the last hit."""
    gap: float | None
    """Floor minus the highest bound of those that were not scored, which is positive; None if all were scored."""
    bounds: BoundCurve | None
    """Bounds of all candidates; None where a scan scores them all."""
    scores: tuple[ScoredCandidate, ...]
    """Best of those that were scored exactly, best first."""


@dataclass(frozen=True, repr=False)
class Explanation(Explained):
    """Explanation of one answer. Fields that a model has nothing to say about stay empty."""

    input: Any
    output: Any
    """Answer, as in `Prediction`."""
    score: float
    tokens: tuple[str, ...] = ()
    """Tokens of the input as the encoder reads them; empty for images and audio."""
    written: tuple[str, ...] = ()
    """Tokens of a generated text; the last one is the end symbol."""
    choices: tuple[TokenChoice, ...] = ()
    """For each written token, the most likely tokens."""
    beam: tuple[tuple[BeamHypothesis, ...], ...] = ()
    """Steps of beam search: open hypotheses first, then those that finish."""
    attention: tuple[Attention, ...] = ()
    probabilities: tuple[Probabilities, ...] = ()
    influence: Influence | None = None
    confidence: NDArray[np.float32] | None = None
    """Masks: probability of the chosen class of each pixel, (height, width)."""
    grid: tuple[int, int] | None = None
    """Images: rows and columns of the positions attended to, which come before all others."""
    timeline: Timeline | None = None
    """Input along a time axis, for audio."""

    def as_dict(self) -> dict[str, Any]:
        given = self.input if isinstance(self.input, str | list | tuple) else str(self.input)  # an image, a path
        return {**super().as_dict(), "input": _plain(given)}

    def attention_of(self, name: Literal["encoder", "decoder", "cross"]) -> Attention | None:
        """Returns the attention of one part, or None."""
        return next((attention for attention in self.attention if attention.name == name), None)


def _summary(value: Any) -> str:
    """Formats a field in one line; parts of an explanation by their names."""
    parts = value if isinstance(value, tuple) and value else (value,)
    if all(isinstance(part, Explained) for part in parts):
        names = dict.fromkeys(type(part).__name__ for part in parts)
        return f"{', '.join(names)} × {len(parts)}" if isinstance(value, tuple) else next(iter(names))
    return short(value)


def _is_empty(value: Any) -> bool:
    if isinstance(value, ScoreParts):
        return not value.as_dict()
    return value is None or (isinstance(value, tuple) and not value)


def _plain(value: Any) -> Any:
    """JSON value of a field."""
    if isinstance(value, Explained):
        return value.as_dict()
    if isinstance(value, np.ndarray):
        return _numbers(value.tolist(), value.dtype.kind == "f")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: _plain(getattr(value, item.name)) for item in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        return [_plain(inner) for inner in value]
    if isinstance(value, float | np.floating):
        return _number(float(value))
    return value if isinstance(value, str | int | None) else str(value)


def _numbers(values: Any, rounded: bool) -> Any:
    if isinstance(values, list):
        return [_numbers(value, rounded) for value in values]
    return _number(values) if rounded else values


def _number(value: float) -> float | None:
    """Rounded number; None where it is none."""
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None
