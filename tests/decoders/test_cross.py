"""A cross-encoder that begins as the bi-encoder whose weights it has, and opens its eyes to the other text."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.conftest import decoder, encoder
from tests.rankers import PAIRS, batch_of, small_ranker
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.model import Ranker

TEXTS = [(one["context"], other["response"]) for one in PAIRS for other in PAIRS]


def opening(tokenizer: TextTokenizer, opens: float = 0.5, seed: int = 2) -> Ranker:
    settings = {"compare": True, "opens": opens, "scale": 7.0}
    return small_ranker(tokenizer, encoder("pretrained"), decoder("cross", **settings), seed)


def test_at_first_it_ranks_as_the_bi_encoder_whose_weights_it_takes(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    bi = small_ranker(tokenizer, encoder("pretrained"), decoder("bi", scale=7.0), 1).eval()
    bi.save_pretrained(tmp_path / "bi")
    cross = opening(tokenizer).eval()
    cross.take_weights(tmp_path / "bi")
    torch.testing.assert_close(cross.score_pairs(TEXTS), bi.score_pairs(TEXTS), atol=1e-5, rtol=1e-5)


def test_the_other_text_counts_more_the_further_the_training_is(tokenizer: TextTokenizer) -> None:
    ranker = opening(tokenizer).eval()
    alone = ranker.score_pairs(TEXTS)
    away = []
    for progress in (0.0, 0.1, 0.25, 0.5, 1.0):
        ranker.head.at(progress)
        away.append(float((ranker.score_pairs(TEXTS) - alone).abs().mean()))
    assert away[0] == 0
    assert away == sorted(away)
    assert away[1] > 0
    assert away[-2] == away[-1]  # in full after half of the training


def test_it_opens_as_far_as_it_is_told(tokenizer: TextTokenizer) -> None:
    settings = {"compare": True, "opens": 0.5, "opens_to": 0.2}
    ranker = small_ranker(tokenizer, encoder("pretrained"), decoder("cross", **settings))
    for progress, between in ((0.0, 0.0), (0.25, 0.1), (0.5, 0.2), (1.0, 0.2)):
        ranker.head.at(progress)
        assert ranker.head.between() == pytest.approx(between)


def test_how_far_it_has_opened_is_kept_with_the_model(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    ranker = opening(tokenizer).train()
    batch = batch_of(ranker, PAIRS, drawn=2)
    object.__setattr__(batch, "progress", 0.2)
    ranker.backward(batch, ranker.counts(batch))
    assert ranker.head.between() == pytest.approx(0.4)
    ranker.eval().save_pretrained(tmp_path / "model")
    again = Ranker.from_pretrained(tmp_path / "model")
    torch.testing.assert_close(again.score_pairs(TEXTS), ranker.score_pairs(TEXTS))


@pytest.mark.parametrize("opens", [0.0, 0.5])
def test_padding_and_neighbours_change_no_score(tokenizer: TextTokenizer, opens: float) -> None:
    ranker = opening(tokenizer, opens).eval()
    ranker.head.at(0.25)
    one_by_one = torch.cat([ranker.score_pairs([pair]) for pair in TEXTS])
    torch.testing.assert_close(ranker.score_pairs(TEXTS), one_by_one, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("kind", ["rnn", "transformer", "text_convnet"])
def test_an_encoder_that_cannot_read_apart_says_so(tokenizer: TextTokenizer, kind: str) -> None:
    with pytest.raises(TwofoldError, match=rf"decoder\.opens: the encoder '{kind}' cannot read two texts apart"):
        small_ranker(tokenizer, encoder(kind), decoder("cross", opens=0.5))
