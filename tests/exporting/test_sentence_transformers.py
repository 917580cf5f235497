"""Folders that sentence-transformers loads give the same vectors and scores; what it cannot express is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from huggingface_hub import ModelCard

from tests.conftest import decoder, encoder, small_model
from tests.rankers import small_ranker
from tests.test_contracts import FURTHER
from twofold.data.tokenizer import TextTokenizer
from twofold.encoders import EncoderConfig
from twofold.errors import TwofoldError
from twofold.exporting import export
from twofold.model import Ranker
from twofold.model.load import load_ranker

sentence_transformers = pytest.importorskip(
    "sentence_transformers", reason="sentence-transformers is not installed (extra dev)"
)
pytestmark = [
    pytest.mark.usefixtures("one_thread"),
    pytest.mark.filterwarnings("ignore:sentence-transformers"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]
TO = "sentence-transformers"
TEXTS = ["a", "one hundred and two", "삼백", "tab\tline", "🙂"]
FAMILIES = [
    encoder("pretrained"),
    *(encoder("pretrained", **settings) for settings in FURTHER["encoders"]["pretrained"]),
]
SETTINGS: list[dict[str, Any]] = [
    {"pooling": "mean"},
    {"pooling": "first", "normalize": "none"},
    {"pooling": "max", "normalize": "none", "similarity": "cosine"},
    {"pooling": "weighted_mean", "dense": [{"width": 7, "activation": "gelu"}, {"width": 5, "bias": False}]},
]


def ranker(tokenizer: TextTokenizer, kind: str = "bi", reads: EncoderConfig = FAMILIES[0], **settings: Any) -> Ranker:
    towers = {name: settings.pop(name) for name in ("two_towers", "context", "candidate") if name in settings}
    model = small_ranker(tokenizer, reads, decoder(kind, **settings), **towers)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) / 20)
    return model.eval()


@pytest.mark.parametrize("reads", FAMILIES, ids=["bert", "gpt2", "distilbert"])
@pytest.mark.parametrize("settings", SETTINGS, ids=["mean", "first", "max", "dense"])
def test_a_bi_encoder_gives_the_same_vectors_and_rankings(
    tokenizer: TextTokenizer, settings: dict[str, Any], reads: EncoderConfig, tmp_path: Path
) -> None:
    model = ranker(tokenizer, reads=reads, **settings, context={"prompt": "one "}, candidate={"prompt": "two "})
    export(model, tmp_path / "out", TO)
    theirs = sentence_transformers.SentenceTransformer(str(tmp_path / "out"), device="cpu")
    ours, vectors = model.encode_query(TEXTS), theirs.encode_query(TEXTS)
    np.testing.assert_allclose(vectors, ours, atol=1e-5)
    scores = np.asarray(theirs.similarity(vectors, theirs.encode_document(TEXTS)))
    expected = model.similarity(TEXTS, TEXTS)
    np.testing.assert_allclose(scores / scores.max(), expected / expected.max(), atol=1e-5)


def test_two_towers_become_the_two_routes_of_a_router(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    model = ranker(tokenizer, two_towers=True, normalize="none")
    export(model, tmp_path / "out", TO)
    theirs = sentence_transformers.SentenceTransformer(str(tmp_path / "out"), device="cpu")
    queries, documents = theirs.encode_query(TEXTS), theirs.encode_document(TEXTS)
    assert not np.allclose(queries, documents, atol=1e-2)
    np.testing.assert_allclose(queries @ documents.T, model.similarity(TEXTS, TEXTS), atol=1e-4)


@pytest.mark.parametrize("reads", FAMILIES, ids=["bert", "gpt2", "distilbert"])
def test_a_cross_encoder_gives_the_same_scores(tokenizer: TextTokenizer, reads: EncoderConfig, tmp_path: Path) -> None:
    model = ranker(tokenizer, "cross", reads)
    export(model, tmp_path / "out", TO)
    pairs = [(first, second) for first in TEXTS for second in TEXTS]
    scores = sentence_transformers.CrossEncoder(str(tmp_path / "out"), device="cpu").predict(pairs)
    np.testing.assert_allclose(scores, model.score_pairs(pairs).numpy(), atol=1e-5)


def test_what_is_exported_is_loaded_again_with_the_same_vectors(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    model = ranker(tokenizer, candidate={"prompt": "two "})
    export(model, tmp_path / "out", TO)
    again = load_ranker(tmp_path / "out")
    np.testing.assert_allclose(again.encode_query(TEXTS), model.encode_query(TEXTS), atol=1e-5)
    np.testing.assert_allclose(again.encode(TEXTS) * 20, model.encode(TEXTS), rtol=0.1, atol=2)  # without the scale


@pytest.mark.parametrize(
    ("kind", "settings", "line"),
    [
        ("poly", {}, "the decoder 'poly': makes no single vector"),
        ("late", {}, "the decoder 'late': makes no single vector"),
        ("bi", {"pooling": "attention"}, "the decoder 'bi': decoder.pooling: .* has no 'attention'"),
        ("bi", {"normalize": "candidates"}, "the decoder 'bi': decoder.normalize: candidates treats the two sides"),
        ("cross", {"pooling": "both"}, "the decoder 'cross': decoder.pooling: .* has no 'both'"),
        ("cross", {"compare": {"kind": "bi"}}, "the decoder 'cross': decoder.compare"),
    ],
)
def test_what_it_cannot_express_is_refused_by_name(
    tokenizer: TextTokenizer, kind: str, settings: dict[str, Any], line: str, tmp_path: Path
) -> None:
    with pytest.raises(TwofoldError, match=line):
        export(ranker(tokenizer, kind, **settings), tmp_path / "out", TO)
    assert not (tmp_path / "out").exists()


def test_encoders_that_are_no_backbones_and_models_that_do_not_rank_are_refused(
    tokenizer: TextTokenizer, tmp_path: Path
) -> None:
    with pytest.raises(TwofoldError, match="the encoder 'rnn' is no backbone of transformers"):
        export(ranker(tokenizer, reads=encoder("rnn")), tmp_path / "out", TO)
    labels = small_model(tokenizer, encoder("pretrained"), decoder("label"))
    with pytest.raises(TwofoldError, match="the model ranks no candidates"):
        export(labels, tmp_path / "out", TO)


def test_texts_that_are_cut_in_another_way_are_told(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="sentence-transformers: ") as told:
        done = export(ranker(tokenizer), tmp_path / "out", TO)
    lines = [str(warning.message) for warning in told if "sentence-transformers: " in str(warning.message)]
    assert ["up to 30 tokens, and not up to 30 and 20" in lines[0], "the beginning is read" in lines[1]] == [True] * 2
    assert json.loads((tmp_path / "out" / "parity.json").read_text())["notes"] == list(done.parity.notes)
    assert "the factor" in done.parity.notes[-1]


def test_the_card_is_one_of_the_hub(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    export(ranker(tokenizer), tmp_path / "out", TO)
    card = ModelCard.load(tmp_path / "out" / "README.md")
    assert card.data.library_name == TO
    assert card.data.pipeline_tag == "sentence-similarity"
    assert {"twofold", TO} <= set(card.data.tags)
    assert "SentenceTransformer(" in card.text
