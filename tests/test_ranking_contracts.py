"""Contracts of every encoder under every ranking decoder, with one tower or two."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.conftest import decoder, encoder
from tests.rankers import GIVEN, PAIRS, batch_of, gradients, small_ranker
from tests.test_contracts import SYMBOLS, every, gives, kinds_of, still, widened
from twofold.data.tokenizer import TextTokenizer
from twofold.decoders import DecoderConfig
from twofold.decoders.cross import Config as CrossConfig
from twofold.encoders import EncoderConfig
from twofold.errors import TwofoldError
from twofold.inputs import INPUT
from twofold.inputs.text import Tokens
from twofold.model import Ranker
from twofold.types import Batch

TEXT_ENCODERS = kinds_of("encoders", "text")
CAUSAL = {"model_type": "gpt2", "n_embd": 8, "n_layer": 1, "n_head": 2, **SYMBOLS}
ENCODERS: dict[str, EncoderConfig] = {
    **{kind: still(encoder(kind)) for kind in TEXT_ENCODERS},
    "rnn-causal": still(encoder("rnn", bidirectional=False)),
    "transformer-causal": still(encoder("transformer", causal=True)),
    "pretrained-causal": still(encoder("pretrained", architecture=CAUSAL)),
}
each_encoder = pytest.mark.parametrize("reads", ENCODERS.values(), ids=ENCODERS)
each_ranker = pytest.mark.parametrize("ranks", every("decoders", decoder, "ranking"))
each_ranker_of_two_towers = pytest.mark.parametrize("ranks", [decoder("bi"), decoder("poly")], ids=["bi", "poly"])
CONTEXTS = [pair["context"] for pair in PAIRS]
RESPONSES = [str(pair["response"]) for pair in PAIRS]


def ranker_of(tokenizer: TextTokenizer, reads: EncoderConfig, ranks: DecoderConfig, two_towers: bool = False) -> Ranker:
    """A ranker, if the two fit, whose towers differ and no tensor of which is what a new ranker has anyway."""
    if not ranks.needs() <= gives(reads):
        pytest.skip("this pair does not fit; tests/test_pairs.py sees the error")
    ranker = small_ranker(tokenizer, reads, ranks, two_towers=two_towers)
    with torch.no_grad():
        for value in ranker.state_dict().values():
            value.add_(torch.rand_like(value) / 10)
    return ranker


def scores(ranker: Ranker) -> torch.Tensor:
    return ranker.score(CONTEXTS, ranker.prepare(RESPONSES))


@each_encoder
@each_ranker
def test_scores_do_not_depend_on_what_is_read_beside(
    tokenizer: TextTokenizer, reads: EncoderConfig, ranks: DecoderConfig
) -> None:
    ranker = ranker_of(tokenizer, reads, ranks)
    together = scores(ranker)
    assert together.shape == (len(PAIRS), len(PAIRS))
    for row, column in ((0, 0), (1, 3)):
        alone = ranker.score([CONTEXTS[row]], ranker.prepare([RESPONSES[column]]))[0, 0]
        torch.testing.assert_close(together[row, column], alone, atol=1e-5, rtol=1e-5)


@each_encoder
@each_ranker
def test_more_columns_of_padding_change_nothing_that_is_kept(
    tokenizer: TextTokenizer, reads: EncoderConfig, ranks: DecoderConfig
) -> None:
    ranker = ranker_of(tokenizer, reads, ranks)
    contexts = ranker.contexts.items_of(CONTEXTS)
    if ranker.joined:
        read = ranker.pair.batch(list(zip(contexts, tokenizer.encode(RESPONSES), strict=True)))
    else:
        read = ranker.contexts.batch(contexts)
    assert isinstance(read, Tokens)
    segments = None if read.segments is None else torch.cat([read.segments, read.segments[:, :3] * 0], 1)
    wide = Tokens(*widened(read.tokens, read.mask), segments)
    for training in (False, True):
        ranker.train(training)
        torch.testing.assert_close(kept(ranker, wide), kept(ranker, read), atol=1e-5, rtol=1e-5)


def kept(ranker: Ranker, read: Tokens) -> list[torch.Tensor]:
    """All that the decoder keeps of some texts, as far as it is there."""
    batch = Batch({INPUT: read})
    if ranker.joined:
        return [ranker.head.joint(ranker.encode_batch(batch))]
    hidden, head = ranker.encoder(batch), ranker.head
    sides = (head.context(hidden), head.candidate(hidden))
    return [values for side in sides for values in (side.present, side.counts)]


@each_ranker
def test_no_candidate_scores_more_than_the_ceiling_and_several_vectors_exactly_that(
    tokenizer: TextTokenizer, ranks: DecoderConfig
) -> None:
    ranker = ranker_of(tokenizer, ENCODERS["transformer"], ranks)
    if ranker.joined:
        pytest.skip("keeps nothing of a candidate")
    contexts, candidates = ranker.embed_contexts(CONTEXTS), ranker.embed_candidates(RESPONSES)
    stored, table = ranker.head.stored(candidates), scores(ranker)
    for row in range(len(CONTEXTS)):
        groups = ranker.head.ceiling(contexts[row : row + 1])  # (groups, vectors, width)
        for column in range(len(RESPONSES)):
            most = (groups @ stored[column : column + 1].present.T).amax((1, 2)).sum()
            assert table[row, column] <= most + 1e-5 * (1 + most.abs())
            if ranker.head.several:
                torch.testing.assert_close(table[row, column], most, atol=1e-5, rtol=1e-5)


@each_encoder
@each_ranker
def test_every_parameter_that_learns_gets_a_gradient(
    tokenizer: TextTokenizer, reads: EncoderConfig, ranks: DecoderConfig
) -> None:
    if reads == ENCODERS["rnn"] and getattr(ranks, "pooling", None) == "first":
        pytest.skip("at the first position of two directions nothing has been read forwards")
    check_gradients(ranker_of(tokenizer, reads, ranks))


@each_encoder
@each_ranker_of_two_towers
def test_every_parameter_of_two_towers_gets_a_gradient(
    tokenizer: TextTokenizer, reads: EncoderConfig, ranks: DecoderConfig
) -> None:
    check_gradients(ranker_of(tokenizer, reads, ranks, two_towers=True))


def check_gradients(ranker: Ranker) -> None:
    ranker.loss(batch_of(ranker.train(), GIVEN)).backward()  # type: ignore[no-untyped-call]
    computed = gradients(ranker)
    learning = [name for name, value in ranker.named_parameters() if value.requires_grad]
    assert learning
    assert [name for name in learning if name not in computed or not computed[name].any()] == []
    assert all(value.isfinite().all() for value in computed.values())


@pytest.mark.parametrize("kind", TEXT_ENCODERS)
@each_ranker
def test_a_saved_and_loaded_ranker_gives_the_same_scores(
    tokenizer: TextTokenizer, kind: str, ranks: DecoderConfig, tmp_path: Path
) -> None:
    check_saving(ranker_of(tokenizer, ENCODERS[kind], ranks), tmp_path / "saved")


@pytest.mark.parametrize("kind", TEXT_ENCODERS)
@each_ranker_of_two_towers
def test_two_saved_and_loaded_towers_give_the_same_scores(
    tokenizer: TextTokenizer, kind: str, ranks: DecoderConfig, tmp_path: Path
) -> None:
    check_saving(ranker_of(tokenizer, ENCODERS[kind], ranks, two_towers=True), tmp_path / "saved")


def check_saving(ranker: Ranker, folder: Path) -> None:
    ranker.save_pretrained(folder)
    loaded = Ranker.from_pretrained(folder)
    assert loaded.config == ranker.config
    assert torch.equal(scores(loaded), scores(ranker))
    best, expected = loaded.rank("seven", RESPONSES, k=3), ranker.rank("seven", RESPONSES, k=3)
    assert [(hit.id, hit.score) for hit in best] == [(hit.id, hit.score) for hit in expected]


@pytest.mark.parametrize("kind", TEXT_ENCODERS)
def test_a_cross_encoder_as_it_comes_sees_the_candidate_after_a_long_context(
    tokenizer: TextTokenizer, kind: str
) -> None:
    ranker = small_ranker(tokenizer, ENCODERS[kind], CrossConfig())
    context = "one two three four five six seven eight nine ten"
    first, other = ranker.score_pairs([(context, "1"), (context, "2")]).tolist()
    assert first != other
    check_gradients(ranker)


@pytest.mark.parametrize("kind", TEXT_ENCODERS)
def test_a_tower_of_the_candidates_own_begins_with_the_same_weights(tokenizer: TextTokenizer, kind: str) -> None:
    single = small_ranker(tokenizer, ENCODERS[kind], decoder("bi"))
    two = small_ranker(tokenizer, ENCODERS[kind], decoder("bi"), two_towers=True)
    assert torch.equal(scores(single), scores(two))


def test_a_tower_of_the_candidates_own_begins_with_the_weights_of_a_ranker_of_one_tower(
    tokenizer: TextTokenizer, tmp_path: Path
) -> None:
    single = small_ranker(tokenizer, encoder("rnn"), decoder("bi"))
    single.save_pretrained(tmp_path / "saved")
    two = small_ranker(tokenizer, encoder("rnn"), decoder("bi"), seed=1, two_towers=True)
    two.take_weights(tmp_path / "saved")
    assert torch.equal(scores(two), scores(single))


def test_two_towers_do_not_go_with_texts_read_as_one(tokenizer: TextTokenizer) -> None:
    with pytest.raises(TwofoldError, match="two_towers: the decoder 'cross' reads both sides as one text"):
        small_ranker(tokenizer, encoder("rnn"), decoder("cross"), two_towers=True)


def test_codes_that_are_not_there_are_masked(tokenizer: TextTokenizer) -> None:
    ranker = small_ranker(tokenizer, encoder("rnn"), decoder("poly", code_kind="first", codes=30))
    contexts = ranker.embed_contexts(CONTEXTS)
    lengths = [len(ids) + 1 for ids in ranker.contexts.items_of(CONTEXTS)]
    assert contexts.mask is not None
    assert contexts.mask.sum(1).tolist() == lengths
