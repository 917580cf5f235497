"""`encode`, `encode_query`, `similarity` and `rank_many`: what people know from sentence-transformers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import twofold
from tests.conftest import decoder, encoder, small_model
from tests.rankers import PAIRS, small_ranker
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.model import Ranker

TEXTS = [str(row["response"]) for row in PAIRS]
QUESTIONS = ["eleven", "two thousand and forty five"]


@pytest.fixture
def bi(tokenizer: TextTokenizer) -> Ranker:
    return small_ranker(tokenizer, encoder("transformer"), decoder("bi")).eval()


def test_a_list_gives_one_vector_each_and_a_single_text_gives_one(bi: Ranker) -> None:
    vectors = bi.encode(TEXTS)
    assert isinstance(vectors, np.ndarray)
    assert vectors.shape == (len(TEXTS), 16)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(bi.encode(TEXTS[1]), vectors[1], atol=1e-6)
    tensor = bi.encode(TEXTS, as_tensor=True)
    assert isinstance(tensor, torch.Tensor)
    np.testing.assert_array_equal(tensor.numpy(), vectors)


def test_the_products_of_vectors_are_the_similarities_of_a_bi_encoder(bi: Ranker) -> None:
    queries, documents = bi.encode_query(QUESTIONS), bi.encode(TEXTS)
    similarities = bi.similarity(QUESTIONS, TEXTS)
    np.testing.assert_allclose(queries @ documents.T, similarities, atol=1e-5)
    assert bi.similarity(QUESTIONS[0], TEXTS[0]).shape == (1, 1)


def test_many_contexts_are_ranked_as_each_alone(bi: Ranker) -> None:
    together = bi.rank_many(QUESTIONS, TEXTS, k=3)
    for question, hits in zip(QUESTIONS, together, strict=True):
        assert [(hit.id, hit.text) for hit in hits] == [(hit.id, hit.text) for hit in bi.rank(question, TEXTS, k=3)]


def test_late_interaction_gives_the_token_vectors_of_each_text(tokenizer: TextTokenizer) -> None:
    late = small_ranker(tokenizer, encoder("transformer"), decoder("late")).eval()
    vectors, query = late.encode(TEXTS), late.encode_query(QUESTIONS[0])
    assert [len(each) for each in vectors] == [len(ids) + len(tokenizer.frame) for ids in tokenizer.encode(TEXTS)]
    score = sum((query @ vectors[0].T).max(1))
    assert late.similarity(QUESTIONS[0], TEXTS[0]).item() == pytest.approx(score, rel=1e-5)


def test_a_poly_encoder_gives_a_vector_for_each_code(tokenizer: TextTokenizer) -> None:
    poly = small_ranker(tokenizer, encoder("transformer"), decoder("poly", codes=4)).eval()
    assert poly.encode_query(QUESTIONS).shape == (2, 4, 16)
    assert poly.encode_query(QUESTIONS[0]).shape == (4, 16)
    assert poly.encode(TEXTS).shape == (len(TEXTS), 16)


def test_a_cross_encoder_has_no_vectors_but_similarities(tokenizer: TextTokenizer) -> None:
    cross = small_ranker(tokenizer, encoder("transformer"), decoder("cross")).eval()
    for call in (cross.encode, cross.encode_query):
        with pytest.raises(TwofoldError, match="a cross-encoder reads both sides as one text"):
            call(TEXTS)
    assert cross.similarity(QUESTIONS, TEXTS).shape == (2, len(TEXTS))


def test_a_model_that_does_not_rank_encodes_too(tokenizer: TextTokenizer) -> None:
    model = small_model(tokenizer, encoder("transformer"), decoder("rnn")).eval()
    vectors = model.encode(["one", "two hundred and two", "삼백"])
    assert vectors.shape == (3, 16)
    np.testing.assert_allclose(model.encode("one"), vectors[0], atol=1e-5)
    assert np.abs(vectors[0] - vectors[1]).max() > 1e-3


@pytest.mark.parametrize("given", [[], 7, None])
def test_what_is_no_text_is_one_line(bi: Ranker, given: Any) -> None:
    with pytest.raises(TwofoldError):
        bi.encode(given)


def test_the_package_shows_what_there_is() -> None:
    assert {"load", "train", "evaluate", "Index", "Ranker"} <= set(dir(twofold))
    assert not {"import_module", "annotations", "Any"} & set(dir(twofold))
