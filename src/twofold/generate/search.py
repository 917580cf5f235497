"""Greedy, sampled and beam search over start, step and select."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from twofold.errors import NOT_NUMBERS, TwofoldError
from twofold.generate.options import GenerateOptions
from twofold.results import Hypotheses, Hypothesis
from twofold.types import Hidden, Vocabulary


class State(Protocol):
    """All a decoder remembers of what it has read and written."""

    def select(self, rows: Tensor) -> Self:
        """The given rows, in the given order; a row may come several times."""
        ...


@dataclass(frozen=True)
class Step:
    """What follows one more token."""

    features: Tensor
    """(rows, width), for the layer over the vocabulary."""
    state: State


class Writer(Protocol):
    """What a text decoder offers to the searches."""

    vocabulary: Vocabulary

    def start(self, hidden: Hidden) -> State: ...

    def step(self, state: Any, tokens: Tensor) -> Step: ...

    def output(self, features: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Next:
    """One token chosen for one row."""

    row: int
    token: int
    score: float


def write(writer: Writer, hidden: Hidden, options: GenerateOptions) -> list[Hypotheses]:
    """What the writer makes of each row."""
    if options.beam > 1:
        return beam(writer, hidden, options)
    tokens: list[list[int]] = [[] for _ in range(len(hidden.mask))]
    scores, lengths = [0.0] * len(tokens), [0] * len(tokens)
    for chosen in walk(writer, hidden, options):
        for item in chosen:
            scores[item.row] += item.score
            lengths[item.row] += 1
            if item.token != writer.vocabulary.end:
                tokens[item.row].append(item.token)
    return [
        Hypotheses((Hypothesis(tuple(row), score, _normalized(score, length, options)),))
        for row, score, length in zip(tokens, scores, lengths, strict=True)
    ]


def walk(writer: Writer, hidden: Hidden, options: GenerateOptions) -> Iterator[list[Next]]:
    """Token by token, greedily or at random, as they come; rows that have ended leave the batch."""
    vocabulary, device = writer.vocabulary, hidden.mask.device
    draw = torch.Generator(device).manual_seed(options.seed)
    rows = list(range(len(hidden.mask)))
    written: list[list[int]] = [[] for _ in rows]
    state = writer.start(hidden)
    tokens = torch.full((len(rows),), vocabulary.start, device=device)
    for _ in range(_longest(options, vocabulary)):
        step = writer.step(state, tokens)
        scores = _scores(writer.output(step.features), written, options, vocabulary)
        tokens = _draw(scores, options, draw) if options.sample else scores.argmax(-1)
        chosen = tokens.tolist()
        values = scores.gather(1, tokens[:, None])[:, 0].tolist()
        yield [Next(row, token, value) for row, token, value in zip(rows, chosen, values, strict=True)]
        left = [place for place, token in enumerate(chosen) if token != vocabulary.end]
        if not left:
            return
        state = step.state
        if len(left) < len(rows):
            keep = torch.tensor(left, device=device)
            state, tokens = state.select(keep), tokens[keep]
        rows = [rows[place] for place in left]
        written = [[*written[place], chosen[place]] for place in left]


@dataclass(frozen=True)
class _Branch:
    """A hypothesis that goes on with one more token."""

    parent: int
    token: int
    score: float


@dataclass
class _Sentence:
    """The beam of one row: hypotheses that have ended."""

    row: int
    ended: list[Hypothesis]

    def best(self, options: GenerateOptions) -> list[Hypothesis]:
        return sorted(self.ended, key=lambda hypothesis: -hypothesis.normalized_score)[: options.beam]

    def branch(
        self,
        choices: Sequence[_Branch],
        written: Sequence[Sequence[int]],
        length: int,
        end: int,
        options: GenerateOptions,
    ) -> list[_Branch]:
        """Keep what ends among the best choices; gives those that go on."""
        for choice in choices[: options.beam]:
            if choice.token == end and choice.score > -math.inf:
                # The end symbol counts as well, unless the limit came before it.
                normalized = _normalized(choice.score, length, options)
                self.ended.append(Hypothesis(tuple(written[choice.parent]), choice.score, normalized))
        return [choice for choice in choices if choice.token != end][: options.beam]

    def is_done(self, branches: Sequence[_Branch], length: int, options: GenerateOptions) -> bool:
        """Whether enough hypotheses have ended, and none that goes on ranks above them as it stands."""
        best = self.best(options)
        if len(best) < options.beam:
            return not branches
        return not branches or _normalized(branches[0].score, length, options) <= best[-1].normalized_score

    def cut(self, branches: Sequence[_Branch], written: Sequence[Sequence[int]], options: GenerateOptions) -> None:
        """End all hypotheses: the limit, not the model, ends these, so they count without an end symbol."""
        for branch in (branch for branch in branches if branch.score > -math.inf):
            tokens = (*written[branch.parent], branch.token)
            self.ended.append(Hypothesis(tokens, branch.score, _normalized(branch.score, len(tokens), options)))


def beam(writer: Writer, hidden: Hidden, options: GenerateOptions) -> list[Hypotheses]:
    """The best of `options.beam` hypotheses that are carried along; finished rows leave the batch."""
    vocabulary, device, size = writer.vocabulary, hidden.mask.device, options.beam
    longest = _longest(options, vocabulary)
    alive = [_Sentence(row, []) for row in range(len(hidden.mask))]
    results: list[Hypotheses] = [Hypotheses(())] * len(alive)
    # All rows start with one hypothesis; its copies count as impossible until it has branched.
    copies = torch.arange(len(alive), device=device).repeat_interleave(size)
    state = writer.start(hidden).select(copies)
    totals = torch.full((len(alive), size), -math.inf, device=device)
    totals[:, 0] = 0.0
    tokens = torch.full((len(copies),), vocabulary.start, device=device)
    written: list[list[int]] = [[] for _ in copies]
    for length in range(1, longest + 1):
        step = writer.step(state, tokens)
        scores = _scores(writer.output(step.features), written, options, vocabulary)
        going: list[_Sentence] = []
        following: list[_Branch] = []
        for sentence, choices in zip(alive, _choices(totals.view(-1, 1) + scores, len(alive), size), strict=True):
            branches = sentence.branch(choices, written, length, vocabulary.end, options)
            done = sentence.is_done(branches, length, options)
            if not done and length < longest:
                going.append(sentence)
                following += branches
                continue
            if not done:
                sentence.cut(branches, written, options)
            results[sentence.row] = Hypotheses(tuple(sentence.best(options)[: options.n_best]))
        if not going:
            break
        alive = going
        state = step.state.select(torch.tensor([branch.parent for branch in following], device=device))
        tokens = torch.tensor([branch.token for branch in following], device=device)
        totals = torch.tensor([branch.score for branch in following], device=device).view(len(alive), size)
        written = [[*written[branch.parent], branch.token] for branch in following]
    return results


def _choices(totals: Tensor, rows: int, size: int) -> list[list[_Branch]]:
    """For each row the best 2 × `size` ways to go on, best first; `totals` is (rows × size, tokens)."""
    joined, tokens = totals.view(rows, -1), totals.shape[1]
    best = joined.topk(min(2 * size, joined.shape[1]))
    return [
        [
            _Branch(row * size + choice // tokens, choice % tokens, value)
            for value, choice in zip(values, choices, strict=True)
        ]
        for row, (values, choices) in enumerate(zip(best.values.tolist(), best.indices.tolist(), strict=True))
    ]


def _normalized(score: float, length: int, options: GenerateOptions) -> float:
    return score / math.pow(length, options.length_penalty)


def _longest(options: GenerateOptions, vocabulary: Vocabulary) -> int:
    return min(options.max_length or vocabulary.limit, vocabulary.limit)


def _scores(
    logits: Tensor, written: Sequence[Sequence[int]], options: GenerateOptions, vocabulary: Vocabulary
) -> Tensor:
    """Log-probabilities, those of tokens that must not follow struck out."""
    scores = logits.float().log_softmax(-1)
    if scores.isnan().any():
        raise TwofoldError(f"the scores of the tokens are {NOT_NUMBERS}")
    scores[:, [vocabulary.pad, vocabulary.start, vocabulary.unknown]] = -math.inf
    if options.no_repeat:
        for row, tokens in enumerate(written):
            if banned := _repeats(tokens, options.no_repeat):
                scores[row, banned] = -math.inf
    return scores


def _repeats(tokens: Sequence[int], size: int) -> list[int]:
    """The tokens that would write a sequence of `size` tokens a second time."""
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
        scores = scores.masked_fill(beyond.gather(1, order.argsort(-1)), -math.inf)
    return torch.multinomial(scores.softmax(-1), 1, generator=draw)[:, 0]
