"""The Python API holds for every kind of model: logits, losses, vectors, rankings, and what is refused in one line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.conftest import decoder, encoder, small_model
from tests.model.kinds import KINDS, RANKERS, READERS, SENTENCES, WRITERS, Kind
from twofold.data.tokenizer import TextTokenizer
from twofold.errors import TwofoldError
from twofold.model import Model, Ranker
from twofold.model.batches import as_rows
from twofold.results import DecoderOutput
from twofold.types import Batch

LONGEST_REPR = 15
VOCABULARY = 100
"""Tokens of the small tokenizer."""
NO_VECTORS = ("mask", "cross")
"""Models without a vector of an input: feature maps alone, or both sides read as one text."""


def each(kinds: dict[str, Kind]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("kind", kinds.values(), ids=kinds)


def cross_entropy(output: DecoderOutput, batch: Batch, name: str) -> Tensor:
    """Loss of a kind of model, computed from the logits as a user would do."""
    target, logits = batch.targets["main"], output.logits
    if name in WRITERS:
        mask = target.mask[:, 1:]
        return F.cross_entropy(logits[mask], target.tokens[:, 1:][mask])
    if name in RANKERS:
        scores = logits if "cross" in name else logits.masked_fill(~target.mask, -torch.inf)
        right = torch.zeros(len(logits), dtype=torch.long) if "cross" in name else target.tokens
        return F.cross_entropy(scores, right)
    if name == "labels":
        return F.binary_cross_entropy_with_logits(logits, target.tokens, reduction="sum") / len(logits)
    if name == "number":
        return F.mse_loss(logits, (target.tokens - 0.25) / 2)
    if name == "mask":
        return F.cross_entropy(logits.movedim(1, -1)[target.mask], target.tokens[target.mask])
    if output.relations is not None:
        heads, relations = target.tokens[target.mask].unbind(-1)
        return F.cross_entropy(logits[target.mask], heads) + F.cross_entropy(output.relations[target.mask], relations)
    mask = target.mask if logits.dim() == 3 else target.mask[:, 0]
    return F.cross_entropy(logits[mask], (target.tokens if logits.dim() == 3 else target.tokens[:, 0])[mask])


@pytest.mark.parametrize("name", KINDS)
def test_cross_entropy_of_what_a_model_gives_for_a_batch_is_its_loss(tokenizer: TextTokenizer, name: str) -> None:
    model = KINDS[name](tokenizer)
    batch = model.batch(KINDS[name].rows)
    expected = cross_entropy(model(batch)["main"], batch, name)
    if name == "mask" and getattr(model.config.tasks["main"].decoder, "dice", None):
        pytest.skip("its loss adds the Dice loss")
    torch.testing.assert_close(expected, model.loss(batch), atol=1e-5, rtol=1e-5)


@each(KINDS)
def test_gradients_of_the_logits_reach_every_encoder(tokenizer: TextTokenizer, kind: Kind) -> None:
    model = kind(tokenizer).train()
    output = model(model.batch(kind.rows))["main"]
    output.logits[output.logits.isfinite()].square().sum().backward()  # type: ignore[no-untyped-call]
    for part in model.encoders():
        assert any(value.grad is not None and value.grad.any() for value in part.parameters())


def expected_shape(model: Model, batch: Batch, name: str) -> tuple[int, ...]:
    target, rows = batch.targets["main"], len(batch)
    if name in RANKERS:
        candidates = 2 if "cross" in name else target.mask.shape[1]
        return (rows, batch_negatives(batch) if "cross" in name else candidates)
    if name in WRITERS:
        return (len(target.tokens), target.tokens.shape[1] - 1, VOCABULARY)
    words = target.mask.shape[1]
    shapes: dict[str, tuple[int, ...]] = {
        "number": (rows, 1),
        "tags": (rows, words, 3),
        "tree": (rows, words, 1 + words),
        "tokens": (rows, words, VOCABULARY),
        "mask": (rows, 3, *target.mask.shape[1:]),
    }
    return shapes.get(name, (rows, 2))


def batch_negatives(batch: Batch) -> int:
    """Number of candidates that a cross-encoder reads with each context."""
    target: Any = batch.targets["main"]
    return int(target.asked.shape[1])


@pytest.mark.parametrize("name", KINDS)
def test_the_logits_of_a_batch_have_the_documented_shape(tokenizer: TextTokenizer, name: str) -> None:
    model = KINDS[name](tokenizer)
    batch = model.batch(KINDS[name].rows)
    outputs = model(batch)
    assert list(outputs) == ["main"]
    assert tuple(outputs["main"].logits.shape) == expected_shape(model, batch, name)
    assert outputs["main"].logits.dtype == torch.float32


@each(KINDS)
def test_logits_are_float32_under_mixed_precision(tokenizer: TextTokenizer, kind: Kind) -> None:
    model = kind(tokenizer)
    batch = model.batch(kind.rows)
    exact = model(batch)["main"].logits
    model.precision = torch.bfloat16
    logits = model(batch)["main"].logits
    assert logits.dtype == torch.float32
    assert not torch.equal(logits, exact)


def test_several_decoders_give_their_logits_by_their_names(tokenizer: TextTokenizer) -> None:
    writes = decoder("rnn"), decoder("label")
    model = small_model(tokenizer, encoder("transformer"), *writes, input={"column": "text"}).eval()
    batch = model.batch(SENTENCES)
    outputs = model(batch)
    assert {name: output.logits.shape[-1] for name, output in outputs.items()} == {"main": VOCABULARY, "main1": 2}
    labels = F.cross_entropy(outputs["main1"].logits, batch.targets["main1"].tokens[:, 0], reduction="sum")
    torch.testing.assert_close(labels, model.losses(batch)["main1"].sum)


@each(READERS)
def test_labels_tags_and_masks_need_no_target_for_their_logits(tokenizer: TextTokenizer, kind: Kind) -> None:
    model = kind(tokenizer)
    batch = model.batch(kind.rows, targets=False)
    assert len(model(batch)["main"].logits) == len(kind.rows)


@each(WRITERS)
def test_a_text_decoder_without_a_target_says_that_it_reads_one(tokenizer: TextTokenizer, kind: Kind) -> None:
    model = kind(tokenizer)
    with pytest.raises(TwofoldError, match=r"teacher forcing.*make the batch with targets"):
        model(model.batch(kind.rows, targets=False))


@each(KINDS)
def test_a_loop_of_ten_lines_learns(tokenizer: TextTokenizer, kind: Kind) -> None:
    model = kind(tokenizer)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    batch = model.batch(kind.rows)
    first = model.loss(batch).item()
    model.train()
    for _ in range(8):
        optimizer.zero_grad()
        model.loss(model.batch(kind.rows)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert model.eval().loss(batch).item() < 0.95 * first


@pytest.mark.parametrize("name", KINDS)
def test_similarity_is_typed_alike_for_every_model(tokenizer: TextTokenizer, name: str) -> None:
    model, kind = KINDS[name](tokenizer), KINDS[name]
    others = kind.candidates or [kind.given, kind.given]
    if name == "mask":
        with pytest.raises(TwofoldError, match="gives feature maps, and no vector"):
            model.similarity([kind.given], others)
        return
    scores = model.similarity([kind.given], others)
    assert scores.shape == (1, len(others))
    assert scores.dtype == np.float32
    if name not in RANKERS:
        np.testing.assert_allclose(scores, 1, atol=1e-5)  # cosine of an input with itself


def test_a_single_image_is_one_candidate_and_gives_one_vector(tokenizer: TextTokenizer) -> None:
    kind = RANKERS["images for texts"]
    ranker, image = kind(tokenizer), kind.candidates[0]
    vectors = ranker.encode([image])
    np.testing.assert_allclose(ranker.encode(image), vectors[0], atol=1e-5)
    np.testing.assert_allclose(ranker.similarity("one", image), ranker.similarity(["one"], [image]), atol=1e-5)


@each({name: kind for name, kind in (WRITERS | READERS).items() if name not in NO_VECTORS})
def test_similarity_without_a_ranker_is_the_cosine_of_the_vectors(tokenizer: TextTokenizer, kind: Kind) -> None:
    model = kind(tokenizer)
    rows = [model.input.value(row) for row in as_rows(kind.rows)]
    vectors, queries = model.encode(rows), model.encode_query(rows[:2])
    np.testing.assert_array_equal(model.encode(rows[:2]), queries)
    cosine = torch.cosine_similarity(torch.tensor(queries)[:, None], torch.tensor(vectors)[None], dim=-1)
    np.testing.assert_allclose(model.similarity(rows[:2], rows), cosine, atol=1e-5)


@each(WRITERS | READERS)
def test_a_model_that_does_not_rank_says_so_and_what_would_do(tokenizer: TextTokenizer, kind: Kind) -> None:
    model = kind(tokenizer)
    for call in (model.rank, model.rank_many):
        with pytest.raises(TwofoldError, match=r"^rank.*: this model does not rank candidates; predict .* similarity"):
            call(kind.given, [kind.given])


@each(RANKERS)
def test_a_ranker_predicts_nothing_and_names_what_would_do(tokenizer: TextTokenizer, kind: Kind) -> None:
    model = kind(tokenizer)
    with pytest.raises(TwofoldError, match=r"^predict: this model ranks candidates .* use rank or similarity$"):
        model.predict([kind.given])
    assert len(model.rank(kind.given, kind.candidates, k=2)) == 2
    assert [len(hits) for hits in model.rank_many([kind.given] * 2, kind.candidates, k=3)] == [3, 3]


@pytest.mark.parametrize("name", KINDS)
def test_every_model_explains_itself_but_one_that_answers_nothing(tokenizer: TextTokenizer, name: str) -> None:
    model, kind = KINDS[name](tokenizer), KINDS[name]
    if name == "tokens":
        with pytest.raises(TwofoldError, match="a language model for pre-training has no answers"):
            model.explain(kind.given)
    elif isinstance(model, Ranker):
        assert len(model.explain(kind.given, kind.candidates, k=2, influence=False).candidates) == 2
    else:
        assert model.explain(kind.given, influence=False).output is not None


@each(KINDS)
def test_a_model_is_shown_on_one_screen(tokenizer: TextTokenizer, kind: Kind) -> None:
    model = kind(tokenizer)
    lines = repr(model).splitlines()
    assert len(lines) < LONGEST_REPR
    assert max(map(len, lines)) < 200
    assert f"{sum(value.numel() for value in model.parameters()):,} parameters" in lines[0]
    task = model.config.tasks["main"]
    for part in (model.config.encoder, task.decoder):
        assert any(f" {type(part).__module__.rpartition('.')[2]}" in line for line in lines)
