"""Equal texts are encoded once, however many candidates or contexts share them, and get equal scores."""

from __future__ import annotations

import pytest
import torch

from tests.conftest import decoder, encoder
from tests.rankers import small_ranker
from twofold.data.tokenizer import TextTokenizer
from twofold.inputs.text import Tokens
from twofold.model import Ranker
from twofold.types import Batch

TEXTS = ["one two", "three", "one two", "four five six", "three", "one two"]


class Counter:
    """Counts the rows that an encoder reads."""

    def __init__(self, ranker: Ranker) -> None:
        self.rows = 0
        ranker.encoder.register_forward_pre_hook(self._count)

    def _count(self, module: torch.nn.Module, given: tuple[Batch]) -> None:
        self.rows += len(given[0].read(Tokens).tokens)


@pytest.mark.parametrize("kind", ["bi", "poly", "late"])
def test_equal_candidates_are_encoded_once(tokenizer: TextTokenizer, kind: str) -> None:
    ranker = small_ranker(tokenizer, encoder("rnn", bidirectional=False), decoder(kind))
    counter = Counter(ranker)
    hits = ranker.rank("one", TEXTS, k=6)
    assert counter.rows == 1 + 3
    assert len({hit.score for hit in hits}) == 3
    assert sorted(hit.id for hit in hits) == [0, 1, 2, 3, 4, 5]
    counter.rows = 0
    ranker.rank_many(["one", "two"], TEXTS, k=6)
    assert counter.rows == 2 + 3


def test_a_cross_encoder_reads_equal_pairs_once(tokenizer: TextTokenizer) -> None:
    ranker = small_ranker(tokenizer, encoder("transformer"), decoder("cross"))
    counter = Counter(ranker)
    hits = ranker.rank("one", TEXTS, k=6)
    assert counter.rows == 3
    assert len({hit.score for hit in hits}) == 3
    counter.rows = 0
    ranker.score_pairs([("one", "two"), ("one", "three"), ("one", "two")])
    assert counter.rows == 2


def test_equal_contexts_are_encoded_once(tokenizer: TextTokenizer) -> None:
    ranker = small_ranker(tokenizer, encoder("rnn"), decoder("bi"))
    counter = Counter(ranker)
    vectors = ranker.encode_query(["one", "two", "one"], as_tensor=True)
    assert counter.rows == 2
    assert torch.equal(vectors[0], vectors[2])


def test_a_progress_report_counts_equal_texts_as_well(tokenizer: TextTokenizer) -> None:
    ranker = small_ranker(tokenizer, encoder("rnn"), decoder("bi"))
    reported: list[int] = []
    ranker.prepare(TEXTS, report=reported.append)
    assert reported[-1] == len(TEXTS)
