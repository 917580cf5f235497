"""An encoder of another kind for the candidates of a ranker."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import decoder, encoder, write_jsonl
from tests.rankers import PAIRS, small_ranker
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.model import Ranker
from twofold.recipe import Recipe
from twofold.recipe.build import build_model


def test_candidates_are_read_by_an_encoder_of_another_kind(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    other = encoder("transformer", width=24)
    ranker = small_ranker(tokenizer, encoder("rnn"), decoder("bi"), candidate_encoder=other)
    assert type(ranker.candidate_encoder) is not type(ranker.encoder)
    ranker.save_pretrained(tmp_path / "model")
    again = Ranker.from_pretrained(tmp_path / "model")
    texts = [str(row["response"]) for row in PAIRS]
    assert again.score(["eleven"], texts).tolist() == ranker.eval().score(["eleven"], texts).tolist()


def test_encoders_of_unequal_width_are_refused(tokenizer: TextTokenizer) -> None:
    other = encoder("transformer", width=16)
    with pytest.raises(TwofoldError, match="candidate_encoder: its states are 16 wide, but the encoder's are 24"):
        small_ranker(tokenizer, encoder("rnn"), decoder("bi"), candidate_encoder=other)


def test_a_pretrained_candidate_encoder_is_saved_with_its_architecture(tmp_path: Path) -> None:
    rows = write_jsonl(tmp_path / "pairs.jsonl", PAIRS)
    default = {"kind": "pretrained", "name": "default"}
    content = {"data": {"train": rows}, "encoder": default, "candidate_encoder": default, "decoder": {"kind": "bi"}}
    model = build_model(Recipe.of(content), tmp_path)
    assert model.config.candidate_encoder == model.config.encoder
