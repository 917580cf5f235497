"""Greedy search, beam search and sampling over start, step and select, with their options."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from twofold.errors import NOT_NUMBERS, TwofoldError
from twofold.recording import Branch, record_beam
from twofold.results import Hypotheses, Hypothesis
from twofold.results.shown import changes
from twofold.types import Hidden, Vocabulary

MOST_HYPOTHESES = 1_000
LARGEST_SEED = 2**63 - 1
LARGEST_PENALTY = 20.0
"""Largest exponent of the length penalty: powers of lengths are computed beyond what a text can have."""
COLDEST, HOTTEST = 1e-6, 1e6
"""Limits of the temperature, within which probabilities are numbers."""


@dataclass(frozen=True)
class GenerateOptions:
    """Options of text generation: greedy by default, beam search if `beam` is above 1, random if `sample` is set."""

    beam: int = 1
    """Beam size: number of hypotheses kept at each step; 1 is greedy search."""
    n_best: int = 1
    """Number of finished hypotheses returned for each row, at most `beam`."""
    length_penalty: float = 1.0
    """Length penalty: hypotheses are ranked by log-probability / length^penalty. 0 favors short ones, 1 takes the
    mean."""
    no_repeat: int = 0
    """Size of n-grams that must not repeat; 0 allows repetition."""
    min_length: int = 0
    """Minimum number of generated tokens: the end symbol is not chosen before."""
    max_length: int | None = None
    """Maximum number of generated tokens; null uses the limit of the training data, which is never exceeded."""
    sample: bool = False
    """Samples each token at random instead of searching for the most likely text."""
    temperature: float = 1.0
    """Sampling temperature: below 1 sharpens the distribution, above 1 flattens it."""
    top_k: int = 0
    """Samples only from the k most likely tokens (top-k sampling); 0 uses all."""
    top_p: float = 1.0
    """Samples only from the most likely tokens whose probabilities reach this sum (nucleus sampling); 1 uses all."""
    seed: int = 0
    """Random seed of sampling: the same seed gives the same tokens."""

    def __repr__(self) -> str:
        return f"GenerateOptions({changes(self)})"

    def __post_init__(self) -> None:
        if self.beam < 1 or not 1 <= self.n_best <= self.beam:
            raise ValueError(f"beam {self.beam} and n_best {self.n_best}: both at least 1, n_best at most beam")
        if self.beam > MOST_HYPOTHESES:
            raise ValueError(f"beam must be at most {MOST_HYPOTHESES:,}, not {self.beam}")
        if not 0 <= self.seed <= LARGEST_SEED:
            raise ValueError(f"seed must be from 0 to {LARGEST_SEED}, not {self.seed}")
        if self.sample and self.beam > 1:
            raise ValueError(f"sampling writes one hypothesis; set beam to 1, not {self.beam}")
        if not self.temperature > 0 or not 0 < self.top_p <= 1 or self.top_k < 0 or self.no_repeat < 0:
            raise ValueError("temperature must be above 0, top_p in (0, 1], top_k and no_repeat at least 0")
        if not abs(self.length_penalty) <= LARGEST_PENALTY:
            raise ValueError(f"length_penalty must be from -{LARGEST_PENALTY:g} to {LARGEST_PENALTY:g}")
        if not COLDEST <= self.temperature <= HOTTEST:
            raise ValueError(f"temperature must be from {COLDEST:g} to {HOTTEST:g}, not {self.temperature:g}")
        if self.max_length is not None and self.max_length < 1:
            raise ValueError(f"max_length must be at least 1, not {self.max_length}")
        if not 0 <= self.min_length <= (self.max_length or self.min_length):
            raise ValueError(f"min_length must be from 0 to max_length ({self.max_length}), not {self.min_length}")


class State(Protocol):
    """State of a decoder: what it has read and written so far."""

    def select(self, hypotheses: Tensor) -> Self:
        """Keeps the given hypotheses, counted over all rows: `beam` of each row that stays, rows in order."""
        ...


@dataclass(frozen=True)
class Step:
    """Result of one decoding step."""

    features: Tensor
    """Features (rows, width) for the output layer."""
    state: State


class Writer(Protocol):
    """Interface that text decoders offer to the search algorithms."""

    vocabulary: Vocabulary

    def start(self, hidden: Hidden, beam: int) -> State: ...

    def step(self, state: Any, tokens: Tensor) -> Step: ...

    def output(self, features: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Next:
    """Token chosen to follow a row."""

    row: int
    token: int
    score: float
    """Log-probability of the token; in beam search, of the whole row with it."""


def write(writer: Writer, hidden: Hidden, options: GenerateOptions) -> list[Hypotheses]:
    """Generates hypotheses for each row."""
    if options.beam > 1:
        return beam(writer, hidden, options)
    tokens: list[list[int]] = [[] for _ in range(len(hidden.mask))]
    scores = [0.0] * len(tokens)
    for chosen in walk(writer, hidden, options):
        for item in chosen:
            scores[item.row] += item.score
            tokens[item.row].append(item.token)
    end = writer.vocabulary.end
    return [
        Hypotheses((_hypothesis([token for token in row if token != end], score, len(row), options),))
        for row, score in zip(tokens, scores, strict=True)
    ]


def walk(writer: Writer, hidden: Hidden, options: GenerateOptions) -> Iterator[list[Next]]:
    """Yields the tokens of each step, greedy or sampled; finished rows leave the batch."""
    vocabulary, device = writer.vocabulary, hidden.mask.device
    draw = torch.Generator(device).manual_seed(options.seed)
    rows = list(range(len(hidden.mask)))
    written: list[list[int]] = [[] for _ in rows]
    state = writer.start(hidden, 1)
    tokens = torch.full((len(rows),), vocabulary.start, device=device)
    for _ in range(_longest(options, vocabulary)):
        step = writer.step(state, tokens)
        allowed = _allowed(writer.output(step.features), written, options, vocabulary)
        tokens, scores = _drawn(allowed, options, draw) if options.sample else _best_tokens(allowed)
        chosen = tokens.tolist()
        yield [Next(row, token, score) for row, token, score in zip(rows, chosen, scores.tolist(), strict=True)]
        left = [place for place, token in enumerate(chosen) if token != vocabulary.end]
        if not left:
            return
        state = step.state
        if len(left) < len(rows):
            keep = torch.tensor(left, device=device)
            state, tokens = state.select(keep), tokens[keep]
        rows = [rows[place] for place in left]
        written = [[*written[place], chosen[place]] for place in left]


def beam(writer: Writer, hidden: Hidden, options: GenerateOptions) -> list[Hypotheses]:
    """Beam search; finished rows leave the batch."""
    vocabulary, device, size = writer.vocabulary, hidden.mask.device, options.beam
    longest = _longest(options, vocabulary)
    ended: list[list[Hypothesis]] = [[] for _ in range(len(hidden.mask))]
    alive = list(range(len(ended)))
    state = writer.start(hidden, size)
    # All rows start with one hypothesis; its copies are impossible until it has branched.
    totals = torch.full((len(alive), size), -math.inf, device=device)
    totals[:, 0] = 0.0
    tokens = torch.full((totals.numel(),), vocabulary.start, device=device)
    written: list[list[int]] = [[] for _ in tokens]
    for length in range(1, longest + 1):
        step = writer.step(state, tokens)
        allowed = _allowed(writer.output(step.features), written, options, vocabulary)
        going: dict[int, list[Next]] = {}
        for row, choices in zip(alive, _choices(totals, allowed), strict=True):
            branches = _branch(ended[row], choices, written, length, vocabulary.end, options)
            if length == longest:
                # The length limit ends these, so they have no end symbol.
                cut = [((*written[branch.row], branch.token), branch.score) for branch in branches]
                ended[row] += [_hypothesis(*branch, length, options) for branch in cut if branch[1] > -math.inf]
            elif branches:
                going[row] = branches
        if not going:
            break
        alive, following = list(going), [branch for branches in going.values() for branch in branches]
        state = step.state.select(torch.tensor([branch.row for branch in following], device=device))
        tokens = torch.tensor([branch.token for branch in following], device=device)
        totals = torch.tensor([branch.score for branch in following], device=device).view(len(alive), size)
        written = [[*written[branch.row], branch.token] for branch in following]
    return [Hypotheses(tuple(_best(row, options.n_best))) for row in ended]


def _branch(
    ended: list[Hypothesis],
    choices: list[Next],
    written: list[list[int]],
    length: int,
    end: int,
    options: GenerateOptions,
) -> list[Next]:
    """Stores the finished hypotheses among the best choices of a row; returns those to continue, none if the row is
    done."""
    finished = [choice for choice in choices[: options.beam] if choice.token == end and choice.score > -math.inf]
    # The end symbol counts too, unless the limit came first.
    ended += [_hypothesis(written[choice.row], choice.score, length, options) for choice in finished]
    branches = [choice for choice in choices if choice.token != end][: options.beam]
    record_beam([Branch(choice.row, choice.token, choice.score) for choice in (*branches, *finished)])
    best = _best(ended, options.beam)
    if len(best) < options.beam or not branches:
        return branches
    # Enough hypotheses have ended: the row is done if no open one ranks above them.
    return branches if _normalized(branches[0].score, length, options) > best[-1].normalized_score else []


def _best(hypotheses: Sequence[Hypothesis], count: int) -> list[Hypothesis]:
    return sorted(hypotheses, key=lambda hypothesis: -hypothesis.normalized_score)[:count]


def _choices(totals: Tensor, allowed: Tensor) -> Iterator[list[Next]]:
    """Yields for each row the best 2 × `size` continuations, best first; `totals` is (rows, size)."""
    size = totals.shape[1]
    scores, tokens = allowed.topk(min(2 * size, allowed.shape[1]))
    joined = (totals.view(-1, 1) + scores).view(len(totals), -1)
    best = joined.topk(min(2 * size, joined.shape[1]))
    parents = best.indices // tokens.shape[1] + size * torch.arange(len(totals), device=totals.device)[:, None]
    chosen = tokens.view(len(totals), -1).gather(1, best.indices)
    for places in zip(parents.tolist(), chosen.tolist(), best.values.tolist(), strict=True):
        yield [Next(*choice) for choice in zip(*places, strict=True)]


def _hypothesis(tokens: Sequence[int], score: float, length: int, options: GenerateOptions) -> Hypothesis:
    return Hypothesis(tuple(tokens), score, _normalized(score, length, options))


def _normalized(score: float, length: int, options: GenerateOptions) -> float:
    return score / math.pow(length, options.length_penalty)


def _longest(options: GenerateOptions, vocabulary: Vocabulary) -> int:
    return min(options.max_length or vocabulary.limit, vocabulary.limit)


def _allowed(logits: Tensor, written: list[list[int]], options: GenerateOptions, vocabulary: Vocabulary) -> Tensor:
    """Log-probabilities (rows, tokens) of the next token, -inf for tokens that must not follow `written`, the tokens of
    each row so far. Probabilities are shares of all tokens, also of those."""
    scores = logits.float().log_softmax(1)
    if scores[:, 0].isnan().any():  # one such logit makes a whole row so
        raise TwofoldError(f"the scores of the tokens are {NOT_NUMBERS}")
    scores[:, [vocabulary.pad, vocabulary.start, vocabulary.unknown]] = -math.inf
    if options.no_repeat:
        for row, tokens in enumerate(written):
            if banned := _repeats(tokens, options.no_repeat):
                scores[row, banned] = -math.inf
    if any(len(tokens) < options.min_length for tokens in written):
        ends = scores[:, vocabulary.end].clone()
        scores[:, vocabulary.end] = -math.inf
        # A text ends early where no other token is allowed.
        scores[:, vocabulary.end] = torch.where(scores.amax(1) == -math.inf, ends, -math.inf)
    return scores


def _best_tokens(allowed: Tensor) -> tuple[Tensor, Tensor]:
    """The most likely token of each row and its log-probability, (rows,) each."""
    scores, tokens = allowed.max(1)
    return tokens, scores


def _drawn(allowed: Tensor, options: GenerateOptions, draw: torch.Generator) -> tuple[Tensor, Tensor]:
    """A token of each row drawn at random and its log-probability, (rows,) each."""
    tokens = _draw(allowed, options, draw)
    return tokens, allowed.gather(1, tokens[:, None])[:, 0]


def _repeats(tokens: Sequence[int], size: int) -> list[int]:
    """Tokens that would repeat an n-gram of `size` tokens."""
    last = tuple(tokens[len(tokens) - size + 1 :])
    starts = range(len(tokens) - size + 1)
    return [tokens[start + size - 1] for start in starts if tuple(tokens[start : start + size - 1]) == last]


def _draw(scores: Tensor, options: GenerateOptions, draw: torch.Generator) -> Tensor:
    scores = scores / options.temperature
    if options.top_k:
        least = scores.topk(min(options.top_k, scores.shape[1])).values[:, -1:]
        scores = scores.masked_fill(scores < least, -math.inf)
    if options.top_p < 1:
        ordered, order = scores.softmax(-1).sort(-1, descending=True)
        beyond = ordered.cumsum(-1) - ordered >= options.top_p
        beyond[:, 0] = False  # the most likely one stays, however small top_p is
        scores = scores.masked_fill(beyond.gather(1, order.argsort(-1)), -math.inf)
    return torch.multinomial(scores.softmax(-1), 1, generator=draw)[:, 0]
