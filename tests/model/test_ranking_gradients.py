"""Training of rankers: gradients within bounded memory are those of the plain batch, losses those of a loop."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.conftest import decoder, encoder
from tests.rankers import GIVEN, PAIRS, batch_of, gradients, small_ranker
from twofold.data.batches import by_length
from twofold.data.tokenizer import TextTokenizer
from twofold.decoders import DecoderConfig
from twofold.losses import LossConfig, in_batch, kl, margin_mse
from twofold.model import Ranker
from twofold.model.representation import Chunks
from twofold.training.gradient_caching import GradientCaching, chunks_with_room
from twofold.types import Batch

RANKERS = {
    "bi": decoder("bi", pooling="attention", normalize="candidates"),
    "poly": decoder("poly"),
    "poly-first": decoder("poly", code_kind="first", codes=4, output_scale=2.0),
    "poly-multihead": decoder("poly", attention="multihead", heads=2, normalize="none"),
    "late": decoder("late", skip_punctuation=True, output_scale=2.0),
    "cross": decoder("cross", output_scale=2.0),
}
Losses = tuple[LossConfig, ...]
LOSSES: dict[str, Losses] = {
    "labels": (in_batch.Config(),),
    "margins": (in_batch.Config(), margin_mse.Config(weight=0.5)),
    "shares": (in_batch.Config(weight=0.25), kl.Config(weight=2.0, temperature=1.5)),
    "teacher alone": (kl.Config(),),
    "both ways": (in_batch.Config(symmetric=True), kl.Config(weight=0.5)),
}
each_ranker = pytest.mark.parametrize("ranks", RANKERS.values(), ids=RANKERS)
LARGE = 1 << 20
Gradients = dict[str, Tensor]


def learning(tokenizer: TextTokenizer, ranks: DecoderConfig, dropout: float = 0.0, **settings: Any) -> Ranker:
    return small_ranker(tokenizer, encoder("transformer", dropout=dropout, layers=1), ranks, **settings).train()


def learned(ranker: Ranker, batch: Batch, chunk: int, memory: int, seed: int = 0) -> tuple[float, Gradients]:
    """The loss and the gradients that a training step would see."""
    torch.manual_seed(seed)
    loss = GradientCaching(chunk, memory).backward(ranker, batch, 1 / len(batch))
    assert loss.count == len(batch)
    return float(loss.sum), gradients(ranker)


def assert_near(computed: Tensor, expected: Tensor, within: float) -> None:
    """No value is off by more than its share of the largest."""
    assert (computed - expected).abs().max() <= within * max(1.0, float(expected.abs().max()))


def check_same(computed: tuple[float, Gradients], expected: tuple[float, Gradients], within: float = 1e-5) -> None:
    assert computed[0] == pytest.approx(expected[0], abs=within, rel=within)
    assert computed[1].keys() == expected[1].keys()
    for name, value in computed[1].items():
        assert_near(value, expected[1][name], within)


@each_ranker
def test_reading_twice_gives_the_gradients_of_reading_once_with_dropout(
    tokenizer: TextTokenizer, ranks: DecoderConfig
) -> None:
    ranker = learning(tokenizer, ranks, dropout=0.3)
    batch = batch_of(ranker, GIVEN)
    once = learned(ranker, batch, 30, LARGE)
    for memory in (0, 60, 90):  # nothing, a part
        check_same(learned(ranker, batch, 30, memory), once)
    assert learned(ranker, batch, 30, 0, seed=1)[0] != pytest.approx(once[0], abs=1e-3)


@each_ranker
@pytest.mark.parametrize("two_towers", [False, True])
def test_the_size_of_the_chunks_does_not_change_the_gradients(
    tokenizer: TextTokenizer, ranks: DecoderConfig, two_towers: bool
) -> None:
    if two_towers and ranks is RANKERS["cross"]:
        pytest.skip("both sides are read as one")
    ranker = learning(tokenizer, ranks, two_towers=two_towers)
    batch = batch_of(ranker, GIVEN)
    loss = ranker.loss(batch)
    loss.backward()  # type: ignore[no-untyped-call]
    plain = (loss.item() * len(batch), gradients(ranker))
    for chunk, memory in ((LARGE, LARGE), (30, 0), (1, 0)):
        check_same(learned(ranker, batch, chunk, memory), plain)


@pytest.mark.parametrize("losses", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("kind", ["bi", "poly-first", "late"])
def test_given_negatives_and_a_teacher_are_learned_from_within_bounded_memory_too(
    tokenizer: TextTokenizer, kind: str, losses: Losses, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranker = learning(tokenizer, RANKERS[kind], losses=losses)
    batch = batch_of(ranker, GIVEN)
    plain = ranker.loss(batch)
    plain.backward()  # type: ignore[no-untyped-call]
    expected = (plain.item() * len(batch), gradients(ranker))
    check_same(learned(ranker, batch, 20, 0), expected)
    for block in (1, 100):  # contexts one by one, or some at a time
        monkeypatch.setattr("twofold.model.representation.BLOCK", block)
        check_same(learned(ranker, batch, 20, 0), expected)
        check_same(learned(ranker, batch, LARGE, LARGE), expected)


@each_ranker
def test_gradients_of_two_batches_add_up(tokenizer: TextTokenizer, ranks: DecoderConfig) -> None:
    ranker = learning(tokenizer, ranks, dropout=0.3)
    parts = []
    for memory in (LARGE, 0):
        caching = GradientCaching(20, memory)
        torch.manual_seed(3)
        losses = [caching.backward(ranker, batch_of(ranker, rows), 1 / 5) for rows in (PAIRS[:2], PAIRS[2:])]
        parts.append((sum(float(loss.sum) for loss in losses), gradients(ranker)))
    check_same(parts[1], parts[0])


@pytest.mark.parametrize("kind", ["bi", "poly", "cross"])
def test_only_a_batch_too_large_for_memory_is_read_twice(
    tokenizer: TextTokenizer, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranker = learning(tokenizer, RANKERS[kind])
    batch = batch_of(ranker, PAIRS)
    read: list[bool] = []
    ranker.encoder.register_forward_hook(lambda *_: read.append(torch.is_grad_enabled()))
    learned(ranker, batch, 20, LARGE)
    chunks, once = len(read), all(read)
    assert chunks > 2
    assert once
    read.clear()
    learned(ranker, batch, 20, 0)
    assert read == [False] * chunks + [True] * chunks
    read.clear()
    monkeypatch.setattr("twofold.model.representation.least_padded", by_length)  # nothing is cut to save padding
    learned(ranker, batch, LARGE, 0)
    assert read == ([True] if kind == "cross" else [False, False, True, True])


@pytest.mark.parametrize("kind", ["bi", "poly", "cross"])
def test_what_has_room_in_memory_is_read_once(tokenizer: TextTokenizer, kind: str) -> None:
    ranker = learning(tokenizer, RANKERS[kind])
    batch = batch_of(ranker, GIVEN)
    chunks = Chunks(ranker, batch, 20)
    largest = max(chunk.tokens for chunk in chunks.chunks)
    read: list[bool] = []
    ranker.encoder.register_forward_hook(lambda *_: read.append(torch.is_grad_enabled()))
    kept_somewhere = set()
    for memory in range(0, chunks.tokens + 10, 10):
        kept = chunks_with_room(chunks, memory)
        twice = len(chunks.chunks) - len(kept)
        read.clear()
        learned(ranker, batch, 20, memory)
        assert read == [False] * twice + [True] * len(kept) + [True] * twice
        if twice and kept:
            assert sum(chunks.chunks[number].tokens for number in kept) + largest <= memory
        kept_somewhere.add(len(kept))
    assert {0, len(chunks.chunks)} < kept_somewhere


@pytest.mark.parametrize("kind", ["bi", "poly-first", "poly-multihead", "late", "cross"])
def test_bounded_memory_goes_with_half_precision(tokenizer: TextTokenizer, kind: str) -> None:
    ranker = learning(tokenizer, RANKERS[kind])
    batch = batch_of(ranker, GIVEN)
    exact = learned(ranker, batch, 20, LARGE)
    ranker.precision = torch.bfloat16
    once, twice, partly = (learned(ranker, batch, 20, memory) for memory in (LARGE, 0, 60))
    check_same(twice, once, within=3e-2)
    check_same(partly, once, within=3e-2)
    assert once[0] == pytest.approx(exact[0], rel=0.05)


@pytest.mark.parametrize("kind", ["bi", "poly", "late", "cross"])
def test_scores_and_losses_are_computed_in_float32(tokenizer: TextTokenizer, kind: str) -> None:
    ranker = learning(tokenizer, RANKERS[kind])
    batch = batch_of(ranker, PAIRS)
    ranker.precision = torch.bfloat16
    represented, target = ranker.represent(batch), ranker.target_of(batch)
    rounded = ranker.loss_of(represented, target).sum
    ranker.precision = None
    assert {kept.vectors.dtype for kept in represented.kept.values()} == {torch.float32}
    assert torch.equal(rounded, ranker.loss_of(represented, target).sum)


# --- losses against a loop ---


def key(text: str | list[str]) -> str:
    return " ".join((text if isinstance(text, str) else " ".join(text)).lower().split())


def cross_entropy(right: float, wrong: Sequence[float]) -> float:
    most = max([right, *wrong])
    return most - right + math.log(math.fsum(math.exp(one - most) for one in (right, *wrong)))


def teacher_loss(loss: LossConfig, scores: Sequence[float], teacher: Sequence[float]) -> float:
    if isinstance(loss, margin_mse.Config):
        gaps = [
            (scores[0] - mine - (teacher[0] - theirs)) ** 2
            for mine, theirs in zip(scores[1:], teacher[1:], strict=True)
        ]
        return math.fsum(gaps) / len(gaps)
    assert isinstance(loss, kl.Config)
    heat = loss.temperature
    logs = [-cross_entropy(one / heat, [other / heat for other in scores if other is not one]) for one in scores]
    wanted = [-cross_entropy(one / heat, [other / heat for other in teacher if other is not one]) for one in teacher]
    return math.fsum(math.exp(one) * (one - mine) for one, mine in zip(wanted, logs, strict=True))


def expected_loss(ranker: Ranker, rows: Sequence[Mapping[str, Any]], scale: float) -> float:
    """The sum over all rows, from the scores of their texts."""
    total = 0.0
    responses = [(row["response"], row["context"]) for row in rows]
    everything = responses + [(text, None) for row in rows for text in row.get("negatives", [])]
    texts = [text for text, _ in everything]
    table = (scale * ranker.score([row["context"] for row in rows], ranker.prepare(texts))).tolist()
    for number, (row, scores) in enumerate(zip(rows, table, strict=True)):
        context, response = row["context"], row["response"]
        wrong = [
            scores[place]
            for place, (text, owner) in enumerate(everything)
            if place != number and key(text) != key(response) and (owner is None or key(owner) != key(context))
        ]
        others = [
            table[place][number]
            for place, other in enumerate(rows)
            if key(other["response"]) != key(response) and key(other["context"]) != key(context)
        ]
        for loss in ranker.config.losses:
            if isinstance(loss, in_batch.Config) and loss.symmetric:
                both = cross_entropy(scores[number], wrong) + cross_entropy(scores[number], others)
                total += loss.weight * both / 2
            elif not loss.needs_teacher:
                total += loss.weight * cross_entropy(scores[number], wrong)
            elif "scores" in row:
                given = [scores[texts.index(text)] for text in (response, *row["negatives"])]
                total += loss.weight * teacher_loss(loss, given, row["scores"])
    return total


REPEATED: list[dict[str, Any]] = [
    *GIVEN,
    {"context": ["one hundred", "and two  seven"], "response": "another answer to the first"},
    {"context": "twelve", "response": " 2045 ", "negatives": ["2045", "102 AND 7", "12"]},
]
"""The first context again, and the fourth response, which is given as wrong to its own row too."""


@pytest.mark.parametrize("losses", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize(
    ("kind", "scale"), [("bi", 1.0), ("poly", 1.0), ("poly-first", 2.0), ("poly-multihead", 1.0), ("late", 2.0)]
)
def test_a_loss_is_that_of_a_loop(tokenizer: TextTokenizer, kind: str, scale: float, losses: Losses) -> None:
    ranker = learning(tokenizer, RANKERS[kind], losses=losses).eval()
    expected = expected_loss(ranker, REPEATED, scale)
    batch = batch_of(ranker, REPEATED)
    assert ranker.losses(batch)["main"].sum.item() == pytest.approx(expected, rel=1e-5)
    assert ranker.loss(batch).item() == pytest.approx(expected / len(REPEATED), rel=1e-5)


def test_the_loss_of_a_cross_encoder_is_that_of_a_loop(tokenizer: TextTokenizer) -> None:
    ranker = learning(tokenizer, RANKERS["cross"]).eval()
    batch = batch_of(ranker, GIVEN, drawn=2)
    texts = [row["response"] for row in GIVEN] + [text for row in GIVEN for text in row.get("negatives", [])]
    drawn = ranker.target_of(batch).drawn
    assert drawn is not None
    expected = 0.0
    for row, numbers in zip(GIVEN, drawn.tolist(), strict=True):
        pairs = [(row["context"], text) for text in (row["response"], *(texts[number] for number in numbers))]
        right, *wrong = (2 * ranker.score_pairs(pairs)).tolist()
        expected += cross_entropy(right, wrong)
    assert ranker.losses(batch)["main"].sum.item() == pytest.approx(expected, rel=1e-5)


def test_what_may_be_as_right_as_the_response_is_not_wrong(tokenizer: TextTokenizer) -> None:
    ranker = learning(tokenizer, RANKERS["bi"])
    allowed = ranker.target_of(batch_of(ranker, REPEATED)).mask.numpy()
    masked = {(row, column) for row, column in np.argwhere(~allowed).tolist()}
    # Seven responses, then the negatives of rows 0 (two), 1 (one), 3 (three) and 6 (three).
    contexts, responses = {(0, 5), (5, 0)}, {(3, 6), (6, 3)}
    given = {(1, 10), (3, 13), (6, 13), (0, 14)}
    assert allowed.shape == (7, 16)
    assert masked == contexts | responses | given
