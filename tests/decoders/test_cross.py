"""A cross-encoder that compares begins as the ranker whose weights it has, and adds what both say as one text."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from tests.conftest import decoder, encoder
from tests.rankers import PAIRS, batch_of, gradients, small_ranker
from twofold.config import structure
from twofold.data.tokenizer import TextTokenizer
from twofold.decoders import DecoderConfig
from twofold.errors import TwofoldError
from twofold.inputs import INPUT
from twofold.model import Ranker
from twofold.training.config import TrainConfig
from twofold.training.gradient_caching import GradientCaching, choose_hard_negatives
from twofold.training.optimizer import make_optimizer
from twofold.types import Batch

TEXTS = [(one["context"], other["response"]) for one in PAIRS for other in PAIRS]
LARGE = 1 << 20
each = pytest.mark.parametrize("kind", ["pretrained", "transformer", "rnn", "text_convnet"])


def comparing(
    tokenizer: TextTokenizer, kind: str, two_towers: bool = False, to: str = "bi", pooling: str = "both"
) -> Ranker:
    adds = decoder("cross", pooling=pooling, compare={"kind": to})
    return small_ranker(tokenizer, encoder(kind), adds, 2, two_towers=two_towers).eval()


def plain(pooling: str) -> DecoderConfig:
    return decoder("cross", pooling=pooling)


def trained(ranker: Ranker) -> Ranker:
    """As if it had learned something from reading both as one."""
    with torch.no_grad():
        ranker.get_parameter("decoders.main.output.weight").normal_(generator=torch.Generator().manual_seed(3))
    return ranker


@each
@pytest.mark.parametrize("two_towers", [False, True])
@pytest.mark.parametrize("to", ["bi", "poly"])
def test_at_first_it_ranks_as_the_ranker_whose_weights_it_takes(
    tokenizer: TextTokenizer, tmp_path: Path, kind: str, two_towers: bool, to: str
) -> None:
    other = small_ranker(tokenizer, encoder(kind), structure({"kind": to, "scale": 7.0}, DecoderConfig), 1).eval()
    other.save_pretrained(tmp_path / "other")
    cross = comparing(tokenizer, kind, two_towers, to)
    cross.take_weights(tmp_path / "other")
    torch.testing.assert_close(cross.score_pairs(TEXTS), other.score_pairs(TEXTS), atol=1e-5, rtol=1e-5)


@each
@pytest.mark.parametrize("pooling", ["mean", "both"])
def test_its_score_is_that_of_a_bi_encoder_and_that_of_a_plain_cross_encoder(
    tokenizer: TextTokenizer, tmp_path: Path, kind: str, pooling: str
) -> None:
    both = trained(comparing(tokenizer, kind, pooling=pooling))
    both.save_pretrained(tmp_path / "both")
    with torch.no_grad():
        both.get_parameter("decoders.main.log_trust").fill_(math.log(0.5))
    bi, cross = (small_ranker(tokenizer, encoder(kind), one).eval() for one in (decoder("bi"), plain(pooling)))
    for part in (bi, cross):
        part.take_weights(tmp_path / "both")
    parts = 0.5 * bi.score_pairs(TEXTS) + cross.score_pairs(TEXTS)
    torch.testing.assert_close(both.score_pairs(TEXTS), parts, atol=1e-5, rtol=1e-5)
    both.save_pretrained(tmp_path / "both")
    again = Ranker.from_pretrained(tmp_path / "both")
    torch.testing.assert_close(again.score_pairs(TEXTS), both.score_pairs(TEXTS))


def test_what_is_read_alone_may_stay_while_what_reads_both_learns(tokenizer: TextTokenizer) -> None:
    ranker = trained(comparing(tokenizer, "transformer", two_towers=True))
    make_optimizer(
        ranker, TrainConfig(learning_rate_multipliers={"candidate_tower": 0.0, "decoders.main.compare": 0.0})
    )
    ranker.train()
    assert ranker.encoder.training
    assert not ranker.candidate_encoder.training  # it compares as it did, without dropout
    ranker.loss(batch_of(ranker, PAIRS, drawn=3)).backward()  # type: ignore[no-untyped-call]
    learned = gradients(ranker).keys()
    assert "decoders.main.output.weight" in learned
    assert {name.split(".")[0] for name in learned} == {"encoder", "decoders"}
    assert not any("compare" in name for name in learned)


@each
def test_the_hardest_wrong_candidates_are_those_that_the_comparison_takes_for_best(
    tokenizer: TextTokenizer, kind: str
) -> None:
    ranker = trained(comparing(tokenizer, kind, two_towers=True))
    batch = batch_of(ranker, PAIRS, drawn=2)
    bi = small_ranker(tokenizer, encoder(kind), decoder("bi")).eval()
    bi.encoder.load_state_dict(ranker.candidate_encoder.state_dict())
    compared = bi.score([one["context"] for one in PAIRS], bi.prepare([one["response"] for one in PAIRS]))
    compared.fill_diagonal_(-torch.inf)
    shown = [
        (PAIRS[row]["context"], PAIRS[number]["response"])
        for row, wrong in enumerate(compared.topk(2).indices.tolist())
        for number in (row, *wrong)
    ]
    scores = ranker.score_pairs(shown).view(len(PAIRS), 3)
    expected = F.cross_entropy(scores, torch.zeros(len(PAIRS), dtype=torch.long), reduction="sum")
    loss = GradientCaching(LARGE, LARGE, hard_negatives=True).backward(ranker, batch, 1.0)
    torch.testing.assert_close(loss.sum, expected, atol=1e-4, rtol=1e-5)


def test_a_response_that_may_be_right_is_never_the_hardest(tokenizer: TextTokenizer) -> None:
    ranker = comparing(tokenizer, "transformer")
    twice = [*PAIRS, {"context": PAIRS[0]["context"], "response": "another right one"}]
    drawn = ranker.target_of(choose_hard_negatives(ranker, batch_of(ranker, twice, drawn=4))).drawn
    assert drawn is not None
    assert sorted(drawn[0]) == sorted(drawn[5]) == [1, 2, 3, 4]


@pytest.mark.parametrize("to", ["bi", "poly"])
def test_candidates_prepared_once_are_ranked_by_the_same_scores(tokenizer: TextTokenizer, to: str) -> None:
    ranker = trained(comparing(tokenizer, "transformer", two_towers=True, to=to))
    responses = [one["response"] for one in PAIRS]
    ready = ranker.prepare(responses)
    assert ready.vectors is not None
    for pair in PAIRS:
        scores = ranker.score_pairs([(pair["context"], text) for text in responses]).tolist()
        hits = ranker.rank(pair["context"], ready, k=5)
        assert [hit.score for hit in hits] == pytest.approx(sorted(scores, reverse=True), abs=1e-5)


def test_towers_of_two_sides_do_not_become_one(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    small_ranker(tokenizer, encoder("rnn"), decoder("bi"), two_towers=True).save_pretrained(tmp_path / "bi")
    with pytest.raises(TwofoldError, match="has a tower for each side, but a cross-encoder reads both with one"):
        comparing(tokenizer, "rnn", two_towers=True).take_weights(tmp_path / "bi")
    cross = trained(comparing(tokenizer, "rnn", two_towers=True))
    cross.save_pretrained(tmp_path / "cross")
    again = small_ranker(
        tokenizer, encoder("rnn"), decoder("cross", pooling="both", compare={"kind": "bi"}), 5, two_towers=True
    ).eval()
    again.take_weights(tmp_path / "cross")
    torch.testing.assert_close(again.score_pairs(TEXTS), cross.score_pairs(TEXTS))


@each
def test_padding_and_neighbours_change_no_score(tokenizer: TextTokenizer, kind: str) -> None:
    ranker = trained(comparing(tokenizer, kind))
    one_by_one = torch.cat([ranker.score_pairs([pair]) for pair in TEXTS])
    torch.testing.assert_close(ranker.score_pairs(TEXTS), one_by_one, atol=1e-5, rtol=1e-5)


@each
@pytest.mark.parametrize("memory", [0, 1 << 20])
def test_it_learns_from_the_scores_that_it_shows(tokenizer: TextTokenizer, kind: str, memory: int) -> None:
    ranker = trained(comparing(tokenizer, kind))
    batch = batch_of(ranker, PAIRS, drawn=3)
    shown = [pair["context"] for pair in PAIRS]
    pairs = [
        (context, PAIRS[number]["response"])
        for context, row in zip(shown, ranker.target_of(batch).asked, strict=True)
        for number in row
    ]
    scores = ranker.score_pairs(pairs).view(len(PAIRS), 4)
    expected = F.cross_entropy(scores, torch.zeros(len(PAIRS), dtype=torch.long), reduction="sum")
    loss = GradientCaching(40, memory).backward(ranker, batch, 1 / len(PAIRS))
    assert loss.count == len(PAIRS)
    torch.testing.assert_close(loss.sum, expected, atol=1e-4, rtol=1e-5)
    computed = gradients(ranker)
    (ranker.losses(batch)["main"].sum / len(PAIRS)).backward()  # type: ignore[no-untyped-call]
    right = gradients(ranker)
    assert computed.keys() == right.keys() > {"decoders.main.output.weight", "decoders.main.compare.vector.log_scale"}
    for name, value in right.items():
        torch.testing.assert_close(computed[name], value, atol=1e-5, rtol=1e-4)


def test_the_vector_of_both_texts_follows_its_definition(tokenizer: TextTokenizer) -> None:
    ranker = trained(small_ranker(tokenizer, encoder("transformer"), plain("both")).eval())
    context, response = PAIRS[0]["context"], PAIRS[0]["response"]
    first, second = (
        side.items_of([text])[0] for side, text in ((ranker.contexts, context), (ranker.candidates, response))
    )
    _, start = tokenizer.frame.joining(first, second)
    states = ranker.encoder(Batch({INPUT: ranker.pair.batch([(first, second)])})).need("states")[0].double()
    means = [states[:start].mean(0), states[start:].mean(0)]
    units = [one / one.norm() * len(one) ** 0.5 for one in means]
    weights = ranker.get_parameter("decoders.main.output.weight")[0].double()
    expected = weights @ torch.cat([*units, units[0] * units[1]])
    torch.testing.assert_close(ranker.score_pairs([(context, response)])[0].double(), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["cross", "label"])
def test_only_what_ranks_texts_read_apart_can_be_added_to(kind: str) -> None:
    with pytest.raises(TwofoldError, match=f"compare: '{kind}' does not rank texts read apart; use bi or poly"):
        decoder("cross", compare={"kind": kind})
