"""Greedy, beam and sampled writing over every text decoder, against slow and exhaustive references."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.conftest import decoder, encoder, small_model
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.generate.decoder import TextDecoder
from twofold.generate.search import GenerateOptions, beam, write
from twofold.results import Hypotheses, Hypothesis
from twofold.types import Hidden, HiddenSpec, Target, Vocabulary

PAD, UNKNOWN, START, END = range(4)
VOCABULARY = Vocabulary(size=11, limit=7, pad=PAD, unknown=UNKNOWN, start=START, end=END)
TINY = Vocabulary(size=7, limit=3, pad=PAD, unknown=UNKNOWN, start=START, end=END)
WRITERS: dict[str, dict[str, Any]] = {
    "rnn": {"cell": "lstm", "layers": 2},
    "attention_rnn": {},
    "transformer": {"positions": "rotary"},
    "transformer-window": {"attention": "window", "window": 2},
    "transformer-linear": {"attention": "linear", "positions": "rotary"},
}
"""Settings of each decoder; a name may follow its kind."""
SEEDS = {"rnn": 6, "attention_rnn": 6, "transformer": 8, "transformer-window": 8, "transformer-linear": 8}
"""With these, rows end at different lengths."""
GREEDY = GenerateOptions()
WIDE = 64
"""More than all hypotheses over the tiny vocabulary."""
each = pytest.mark.parametrize("kind", WRITERS)


def make_writer(kind: str, vocabulary: Vocabulary = VOCABULARY) -> TextDecoder:
    """A decoder of random weights, larger than usual so that it is sure of some tokens and minds what it reads."""
    torch.manual_seed(SEEDS[kind])
    part = decoder(kind.partition("-")[0], tied=False, **WRITERS[kind])
    built = part.build(HiddenSpec(states=10, summary=10), vocabulary).eval()
    assert isinstance(built, TextDecoder)
    with torch.no_grad():
        for value in built.parameters():
            value.mul_(3 if value.dim() > 1 else 1)
        built.output.weight.mul_(2 / 3)
        built.output.bias[END] += 1
    return built


def some_hidden(rows: int = 8) -> Hidden:
    torch.manual_seed(1)
    mask = torch.arange(5) < torch.tensor([1 + row % 5 for row in range(rows)])[:, None]
    return Hidden(mask=mask, states=3 * torch.randn(rows, 5, 10), summary=3 * torch.randn(rows, 10))


def one_row(hidden: Hidden, row: int = 0, times: int = 1) -> Hidden:
    return hidden.select(torch.full((times,), row))


@torch.no_grad()
def run(writer: TextDecoder, hidden: Hidden, **options: Any) -> list[Hypotheses]:
    return write(writer, hidden, GenerateOptions(**options))


def best(results: list[Hypotheses]) -> list[tuple[int, ...]]:
    return [written.hypotheses[0].tokens for written in results]


def own_score(writer: TextDecoder, hidden: Hidden, tokens: tuple[int, ...], longest: int | None = None) -> float:
    """The model's log-probability of what was written; at the limit no end symbol follows."""
    line = torch.tensor([[START, *tokens, END]])
    mask = torch.ones_like(line, dtype=torch.bool)
    mask[0, -1] = len(tokens) < (longest or writer.vocabulary.limit)
    return writer.log_probability(hidden, Target(line, mask)).item()


def assert_same(first: list[Hypotheses], other: list[Hypotheses]) -> None:
    assert [[h.tokens for h in w.hypotheses] for w in first] == [[h.tokens for h in w.hypotheses] for w in other]
    scores = [[h.score for w in results for h in w.hypotheses] for results in (first, other)]
    assert scores[0] == pytest.approx(scores[1], abs=1e-4)


@each
def test_rows_are_told_apart_and_end_at_different_lengths(kind: str) -> None:
    tokens = best(run(make_writer(kind), some_hidden()))
    assert len(set(tokens)) > 3
    assert len({len(row) for row in tokens}) > 2
    assert min(map(len, tokens)) < max(map(len, tokens)) == VOCABULARY.limit


@each
@pytest.mark.parametrize("no_repeat", [0, 1])
def test_a_beam_of_one_equals_greedy(kind: str, no_repeat: int) -> None:
    writer, hidden = make_writer(kind), some_hidden()
    with torch.no_grad():
        assert_same(
            beam(writer, hidden, GenerateOptions(no_repeat=no_repeat)), run(writer, hidden, no_repeat=no_repeat)
        )


@each
@torch.no_grad()
def test_greedy_with_a_cache_equals_reading_all_again_at_each_step(kind: str) -> None:
    writer, hidden = make_writer(kind), some_hidden()
    for row, written in enumerate(run(writer, hidden)):
        tokens, score = [START], 0.0
        while len(tokens) <= VOCABULARY.limit:
            line = torch.tensor([tokens])
            features = writer.teach(one_row(hidden, row), line, torch.ones_like(line, dtype=torch.bool), 0.0)
            scores = writer.output(features[0, -1]).log_softmax(-1)
            allowed = [END, *range(4, VOCABULARY.size)]
            token = max(allowed, key=lambda one: scores[one].item())
            score += scores[token].item()
            if token == END:
                break
            tokens.append(token)
        assert written.hypotheses[0].tokens == tuple(tokens[1:])
        assert written.hypotheses[0].score == pytest.approx(score, abs=1e-4)


@each
@pytest.mark.parametrize(
    "settings", [{}, {"beam": 5, "n_best": 5}, {"sample": True}, {"beam": 4, "no_repeat": 2}], ids=str
)
def test_every_score_is_the_models_own_log_probability(kind: str, settings: dict[str, Any]) -> None:
    writer, hidden = make_writer(kind), some_hidden()
    for row, written in enumerate(run(writer, hidden, **settings)):
        assert len(written.hypotheses) == settings.get("n_best", 1)
        for hypothesis in written.hypotheses:
            expected = own_score(writer, one_row(hidden, row), hypothesis.tokens)
            assert hypothesis.score == pytest.approx(expected, abs=1e-4)


@each
@pytest.mark.parametrize("settings", [{}, {"beam": 4, "n_best": 3}], ids=str)
def test_rows_written_together_equal_rows_written_alone(kind: str, settings: dict[str, Any]) -> None:
    writer, hidden = make_writer(kind), some_hidden()
    alone = [run(writer, one_row(hidden, row), **settings)[0] for row in range(len(hidden.mask))]
    assert_same(run(writer, hidden, **settings), alone)


@each
def test_hypotheses_of_a_beam_are_sorted_and_distinct(kind: str) -> None:
    for written in run(make_writer(kind), some_hidden(), beam=6, n_best=6, length_penalty=0.0):
        scores = [hypothesis.score for hypothesis in written.hypotheses]
        assert scores == sorted(scores, reverse=True)
        assert len({hypothesis.tokens for hypothesis in written.hypotheses}) == 6


@each
@pytest.mark.parametrize("penalty", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("settings", [{}, {"beam": 6, "n_best": 6}, {"sample": True}], ids=str)
def test_hypotheses_are_ordered_by_the_normalized_score(kind: str, penalty: float, settings: dict[str, Any]) -> None:
    for written in run(make_writer(kind), some_hidden(), length_penalty=penalty, **settings):
        normalized = [hypothesis.normalized_score for hypothesis in written.hypotheses]
        assert normalized == sorted(normalized, reverse=True)
        for hypothesis in written.hypotheses:
            scored = min(len(hypothesis.tokens) + 1, VOCABULARY.limit)  # at the limit no end symbol follows
            assert hypothesis.normalized_score == pytest.approx(hypothesis.score / scored**penalty)


def everything(writer: TextDecoder, hidden: Hidden) -> list[Hypothesis]:
    """All that can be written over the tiny vocabulary, with the model's own scores."""
    lines = [line for length in range(TINY.limit + 1) for line in product(range(4, TINY.size), repeat=length)]
    tokens = torch.tensor([(START, *line, END, *[PAD] * (TINY.limit - len(line))) for line in lines])
    mask = (tokens != PAD) & (torch.arange(TINY.limit + 2) <= TINY.limit)  # at the limit no end symbol follows
    scores = writer.log_probability(hidden.select(torch.zeros(len(lines), dtype=torch.long)), Target(tokens, mask))
    return [Hypothesis(line, score, score) for line, score in zip(lines, scores.tolist(), strict=True)]


def ranked(hypotheses: list[Hypothesis], penalty: float) -> list[tuple[int, ...]]:
    """Best first by log-probability / length^penalty, the length being how many tokens were scored."""

    def rank(hypothesis: Hypothesis) -> float:
        scored = len(hypothesis.tokens) + (len(hypothesis.tokens) < TINY.limit)
        return float(hypothesis.score / scored**penalty)

    return [one.tokens for one in sorted(hypotheses, key=rank, reverse=True)]


@each
def test_a_beam_as_wide_as_everything_finds_everything_in_order(kind: str) -> None:
    writer, hidden = make_writer(kind, TINY), some_hidden(3)
    for row, written in enumerate(run(writer, hidden, beam=WIDE, n_best=WIDE, length_penalty=0.0)):
        expected = everything(writer, one_row(hidden, row))
        assert len(expected) == 40
        assert [one.tokens for one in written.hypotheses] == ranked(expected, 0.0)


@each
@pytest.mark.parametrize("penalty", [0.5, 1.0, 2.0])
def test_the_length_penalty_ranks_ended_hypotheses_by_its_formula(kind: str, penalty: float) -> None:
    writer, hidden, changed = make_writer(kind, TINY), some_hidden(5), False
    for row, written in enumerate(run(writer, hidden, beam=WIDE, n_best=WIDE, length_penalty=penalty)):
        token_lists = [one.tokens for one in written.hypotheses if len(one.tokens) < TINY.limit]
        ended = [one for one in everything(writer, one_row(hidden, row)) if len(one.tokens) < TINY.limit]
        assert token_lists == ranked(ended, penalty)
        changed |= token_lists != ranked(ended, 0.0)
    assert changed


@each
@pytest.mark.parametrize("penalty", [1.0, 2.0])
def test_a_hypothesis_cut_by_the_limit_is_ranked_by_the_tokens_it_has(kind: str, penalty: float) -> None:
    writer, hidden = make_writer(kind, TINY), some_hidden(5)
    for row, written in enumerate(run(writer, hidden, beam=WIDE, n_best=WIDE, length_penalty=penalty)):
        expected = ranked(everything(writer, one_row(hidden, row)), penalty)
        assert [one.tokens for one in written.hypotheses] == expected


def repeats(tokens: tuple[int, ...], size: int) -> bool:
    pieces = [tokens[start : start + size] for start in range(len(tokens) - size + 1)]
    return len(set(pieces)) < len(pieces)


@pytest.mark.parametrize("settings", [{}, {"beam": 4, "n_best": 4}, {"sample": True}], ids=str)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_sequence_is_written_twice_where_that_is_forbidden(size: int, settings: dict[str, Any]) -> None:
    vocabulary = Vocabulary(size=6, limit=20, pad=PAD, unknown=UNKNOWN, start=START, end=END)
    writer, hidden = make_writer("attention_rnn", vocabulary), some_hidden()
    with torch.no_grad():
        writer.output.bias[END] -= 4
    free, bound = (run(writer, hidden, no_repeat=number, **settings) for number in (0, size))
    assert any(repeats(one.tokens, size) for written in free for one in written.hypotheses)
    assert not any(repeats(one.tokens, size) for written in bound for one in written.hypotheses)


@each
@pytest.mark.parametrize("settings", [{}, {"beam": 3, "n_best": 3}, {"sample": True}], ids=str)
@pytest.mark.parametrize(("asked", "got"), [(1, 1), (3, 3), (99, 7), (None, 7)])
def test_no_more_is_written_than_allowed(kind: str, settings: dict[str, Any], asked: int | None, got: int) -> None:
    writer, hidden = make_writer(kind), some_hidden(3)
    with torch.no_grad():
        writer.output.bias[END] = -100
    for row, written in enumerate(run(writer, hidden, max_length=asked, **settings)):
        for hypothesis in written.hypotheses:
            assert len(hypothesis.tokens) == got
            assert hypothesis.score == pytest.approx(
                own_score(writer, one_row(hidden, row), hypothesis.tokens, got), abs=1e-4
            )


@each
@pytest.mark.parametrize("settings", [{}, {"beam": 3, "n_best": 3}, {"sample": True}], ids=str)
def test_no_text_ends_before_the_minimum_length(kind: str, settings: dict[str, Any]) -> None:
    writer, hidden = make_writer(kind), some_hidden(3)
    with torch.no_grad():
        writer.output.bias[END] = 9
    for row, written in enumerate(run(writer, hidden, min_length=4, **settings)):
        for hypothesis in written.hypotheses:
            assert len(hypothesis.tokens) >= 4
            expected = own_score(writer, one_row(hidden, row), hypothesis.tokens)
            assert hypothesis.score == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("settings", [{}, {"beam": 2}], ids=str)
def test_a_text_ends_before_the_minimum_length_if_every_other_token_would_repeat(settings: dict[str, Any]) -> None:
    vocabulary = Vocabulary(size=6, limit=7, pad=PAD, unknown=UNKNOWN, start=START, end=END)
    writer = make_writer("rnn", vocabulary)
    for written in run(writer, some_hidden(3), min_length=5, no_repeat=1, **settings):
        assert len(written.hypotheses[0].tokens) == 2


@each
@pytest.mark.parametrize("settings", [{}, {"beam": 3, "n_best": 3}, {"sample": True}], ids=str)
def test_padding_start_and_unknown_are_never_written(kind: str, settings: dict[str, Any]) -> None:
    writer, hidden = make_writer(kind), some_hidden()
    with torch.no_grad():
        writer.output.bias[[PAD, UNKNOWN, START]] += 20
    for written in run(writer, hidden, **settings):
        for hypothesis in written.hypotheses:
            assert not {PAD, UNKNOWN, START, END} & set(hypothesis.tokens)


@each
def test_the_same_seed_draws_the_same_and_another_does_not(kind: str) -> None:
    writer, hidden = make_writer(kind), some_hidden()
    first, again, other = (best(run(writer, hidden, sample=True, temperature=2.0, seed=seed)) for seed in (5, 5, 6))
    assert first == again != other


@each
@pytest.mark.parametrize(
    "settings", [{"top_k": 1, "temperature": 3.0}, {"top_p": 1e-300}, {"temperature": 1e-4}], ids=str
)
def test_a_draw_from_one_token_equals_greedy(kind: str, settings: dict[str, Any]) -> None:
    writer, hidden = make_writer(kind), some_hidden()
    assert_same(run(writer, hidden, sample=True, **settings), run(writer, hidden))


@torch.no_grad()
def first_logits(writer: TextDecoder, hidden: Hidden) -> Tensor:
    """Log-probabilities after the start symbol, without the tokens that must not follow."""
    logits: Tensor = writer.output(writer.step(writer.start(hidden), torch.tensor([START])).features)[0]
    return logits.index_fill(0, torch.tensor([PAD, UNKNOWN, START]), -math.inf)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("settings", [{}, {"top_k": 3}, {"top_p": 0.7}], ids=str)
def test_tokens_are_drawn_as_often_as_they_are_likely(settings: dict[str, Any], temperature: float) -> None:
    writer, hidden, draws = make_writer("rnn"), one_row(some_hidden(), 6), 5_000
    share = (first_logits(writer, hidden) / temperature).softmax(-1)
    order = share.argsort(descending=True).tolist()
    if "top_k" in settings:
        order = order[: settings["top_k"]]
    if "top_p" in settings:
        reached = [sum(share[order[: count + 1]].tolist()) for count in range(len(order))]
        order = order[: 1 + next(count for count, total in enumerate(reached) if total >= settings["top_p"])]
    kept = torch.zeros_like(share)
    kept[order] = share[order] / share[order].sum()
    results = run(writer, one_row(hidden, 0, draws), sample=True, max_length=1, temperature=temperature, **settings)
    counts = torch.zeros_like(share)
    for tokens in best(results):
        counts[tokens[0] if tokens else END] += 1
    assert not counts[kept == 0].any()
    likely = kept * draws > 5
    expected = kept[likely] * draws
    assert likely.sum() > 1
    # The bound is passed by chance once in some 100,000 times at most.
    assert ((counts[likely] - expected) ** 2 / expected).sum().item() < 40


@each
def test_a_stream_yields_the_greedy_tokens_one_by_one(kind: str) -> None:
    writer, hidden = make_writer(kind), some_hidden()
    for row, tokens in enumerate(best(run(writer, hidden))):
        stream = writer.stream(one_row(hidden, row), GREEDY)
        assert [next(stream) for _ in tokens] == list(tokens)
        assert next(stream, None) is None


@each
def test_the_pieces_of_a_models_stream_join_to_its_prediction(tokenizer: TextTokenizer, kind: str) -> None:
    model = small_model(tokenizer, encoder("rnn"), decoder(kind.partition("-")[0], **WRITERS[kind]))
    pieces = list(model.stream("one two three"))
    assert len(pieces) > 1
    assert "".join(pieces) == model.predict("one two three")[0].output
    with pytest.raises(TwofoldError, match="beam of 2"):
        next(model.stream("one", GenerateOptions(beam=2)))


def test_a_model_that_was_saved_with_a_beam_streams_greedily(tokenizer: TextTokenizer) -> None:
    options = GenerateOptions(beam=3, n_best=2)
    model = small_model(tokenizer, encoder("rnn"), decoder("rnn"), generate=options)
    assert "".join(model.stream("one two three")) == model.predict("one two three", GREEDY)[0].output


WRONG = {
    "beam": 0,
    "n_best": 2,
    "temperature": 0.0,
    "top_p": 0.0,
    "top_k": -1,
    "no_repeat": -1,
    "max_length": 0,
    "min_length": -1,
}


@pytest.mark.parametrize(("name", "value"), WRONG.items())
def test_options_out_of_their_range_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=name):
        GenerateOptions(**{name: value})


def test_options_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="set beam to 1, not 2"):
        GenerateOptions(sample=True, beam=2)
    with pytest.raises(ValueError, match="min_length must be from 0 to max_length"):
        GenerateOptions(min_length=9, max_length=8)
    with pytest.raises(ValueError, match="n_best 3"):
        GenerateOptions(beam=2, n_best=3)
