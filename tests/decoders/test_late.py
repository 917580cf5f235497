"""Late interaction against its definition, and against ColBERT's own formula; token pooling and skipped punctuation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.conftest import encoder
from tests.rankers import GIVEN, PAIRS, batch_of, gradients, small_ranker
from twofold.data.tokenizer import TextTokenizer, TokenizerConfig
from twofold.decoders import late
from twofold.model import Ranker
from twofold.training.gradient_caching import GradientCaching
from twofold.types import Hidden, HiddenSpec, Vocabulary

WIDTH = 8
VOCABULARY = Vocabulary(20, 30, 0, 1, 2, 3, pieces=lambda: [".", "▁a", "▁...", "##,", "b."] + ["x"] * 15)


def built(**settings: Any) -> late.LateInteraction:
    torch.manual_seed(0)
    return late.Config(**settings).build(HiddenSpec(states=WIDTH), VOCABULARY).eval()


def some_hidden(lengths: Sequence[int], seed: int = 0) -> Hidden:
    """Random states; those where nothing is real would be seen at once if they were read."""
    draw = torch.Generator().manual_seed(seed)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    states = torch.randn(len(lengths), max(lengths), WIDTH, generator=draw).masked_fill(~mask[..., None], 1e4)
    tokens = torch.randint(0, 20, mask.shape, generator=draw)
    return Hidden(mask, states, tokens=tokens)


def tokens_of(hidden: Hidden) -> list[torch.Tensor]:
    return [states[mask] for states, mask in zip(hidden.need("states"), hidden.mask, strict=True)]


@pytest.mark.parametrize("projection", [None, 5])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("block", [1, 200, 1 << 22])
def test_a_score_is_the_sum_of_each_query_tokens_best_match(
    projection: int | None, normalize: bool, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twofold.decoders.late.BLOCK", block)
    head = built(projection=projection, normalize=normalize)
    contexts, candidates = some_hidden((5, 1, 3), seed=1), some_hidden((2, 7, 1, 4), seed=2)

    def vectors(states: torch.Tensor) -> torch.Tensor:
        projected = states if projection is None else states @ head.project.weight.detach().T  # type: ignore[operator]
        return projected / projected.norm(dim=1, keepdim=True) if normalize else projected

    expected = [
        [
            sum(max(float(query @ token) for token in vectors(theirs)) for query in vectors(ours))
            for theirs in tokens_of(candidates)
        ]
        for ours in tokens_of(contexts)
    ]
    scores = head.score(head.context(contexts), head.candidate(candidates))
    torch.testing.assert_close(scores, torch.tensor(expected), atol=1e-4, rtol=1e-5)


def test_tokens_of_punctuation_alone_are_skipped_in_candidates_only() -> None:
    head = built(skip_punctuation=True)
    hidden = some_hidden((4, 2))
    hidden.tokens[:] = torch.tensor([[0, 1, 2, 4], [0, 3, 9, 9]])  # type: ignore[index]
    mask = head.candidate(hidden).mask
    assert mask is not None
    assert mask.tolist() == [[False, True, False, True], [True, True, False, False]], "of punctuation alone all stays"
    assert head.context(hidden).mask is hidden.mask


def test_a_tokenizers_punctuation_is_known() -> None:
    tokenizer = TextTokenizer.train(["a , b . c ; d ! e"] * 3, TokenizerConfig(size=30))
    pieces = tokenizer.pieces(range(len(tokenizer)))
    skipped = {pieces[token].removeprefix("▁") for token in late.punctuation_of(pieces)}
    assert {",", ".", ";", "!"} <= skipped
    assert not skipped & {"a", "<s>", ""}


@pytest.mark.parametrize("most", [1, 2, 3, 8])
def test_token_pooling_averages_the_two_that_are_most_alike_until_few_are_left(most: int) -> None:
    hidden = some_hidden((6, 2, 4), seed=3)
    vectors, mask, _ = late.pool_tokens(F.normalize(hidden.need("states"), dim=-1), hidden.mask, most)
    assert vectors.shape[1] == min(most, 6)
    assert mask.sum(1).tolist() == [min(most, length) for length in (6, 2, 4)]
    for row, tokens in enumerate(tokens_of(hidden)):
        groups = [[token / token.norm()] for token in tokens]
        while len(groups) > most:
            sums = [sum(group, torch.zeros(WIDTH)) for group in groups]
            alike = {
                (first, second): float(torch.cosine_similarity(sums[first], sums[second], dim=0))
                for first in range(len(groups))
                for second in range(first + 1, len(groups))
            }
            first, second = max(alike, key=alike.__getitem__)
            groups[first] += groups.pop(second)
        means = torch.stack([torch.stack(group).mean(0) for group in groups])
        torch.testing.assert_close(vectors[row][mask[row]], means, atol=1e-5, rtol=1e-5)


def test_pooling_is_for_what_is_stored_and_not_for_training() -> None:
    head = built(max_vectors=2)
    assert head.candidate(some_hidden((6,))).vectors.shape[1] == 2
    assert head.train().candidate(some_hidden((6,))).vectors.shape[1] == 6


def ranker(tokenizer: TextTokenizer, **settings: Any) -> Ranker:
    return small_ranker(tokenizer, encoder("transformer", dropout=0.0), late.Config(projection=6, **settings))


@pytest.mark.parametrize("chunk", [10, 30])
def test_gradient_caching_gives_the_gradients_of_the_whole_batch(tokenizer: TextTokenizer, chunk: int) -> None:
    model = ranker(tokenizer).train()
    batch = batch_of(model, GIVEN)
    model.loss(batch).backward()  # type: ignore[no-untyped-call]
    whole = gradients(model)
    loss = GradientCaching(chunk_tokens=chunk, memory_tokens=0).backward(model, batch, 1 / len(GIVEN))
    torch.testing.assert_close(loss.sum / loss.count, model.loss(batch), atol=1e-5, rtol=1e-5)
    for name, gradient in gradients(model).items():
        torch.testing.assert_close(gradient, whole[name], atol=1e-5, rtol=1e-4)


def test_it_is_trained_prepared_ranked_saved_and_loaded(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    model = ranker(tokenizer, max_vectors=4)
    responses = [str(pair["response"]) for pair in PAIRS]
    kept = model.prepare(responses)
    assert kept.vectors is not None
    assert kept.vectors.mask is not None
    assert int(kept.vectors.mask.sum(1).max()) <= 4
    model.save_pretrained(tmp_path / "model")
    loaded = Ranker.from_pretrained(tmp_path / "model")
    for context in (pair["context"] for pair in PAIRS):
        ours, theirs = model.rank(context, kept), loaded.rank(context, responses)
        assert [(hit.id, hit.score) for hit in ours] == [(hit.id, hit.score) for hit in theirs]


def test_prompts_are_markers_that_each_side_reads_and_keeps(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    ranks, reads = late.Config(projection=6), encoder("transformer", dropout=0.0)
    plain = small_ranker(tokenizer, reads, ranks)
    marked = small_ranker(tokenizer, reads, ranks, context={"prompt": "seven "}, candidate={"prompt": "eleven "})
    for side, marker in (("embed_contexts", "seven "), ("embed_candidates", "eleven ")):
        with_marker, by_hand = (
            getattr(model, side)(texts) for model, texts in ((marked, ["one"]), (plain, [marker + "one"]))
        )
        torch.testing.assert_close(with_marker.vectors, by_hand.vectors)
        assert with_marker.counts > getattr(plain, side)(["one"]).counts
    marked.save_pretrained(tmp_path / "model")
    assert Ranker.from_pretrained(tmp_path / "model").score(["one"], ["two"]) == marked.score(["one"], ["two"])


def test_trained_weights_do_for_another_number_of_vectors(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    model = ranker(tokenizer)
    task = model.config.tasks["main"]
    decoder: Any = replace(task.decoder, max_vectors=2)  # type: ignore[call-arg]
    pooled = Ranker(replace(model.config, tasks={"main": replace(task, decoder=decoder)}), model.tokenizers)
    pooled.load_state_dict(model.state_dict())
    pooled.save_pretrained(tmp_path / "model")
    loaded, texts = Ranker.from_pretrained(tmp_path / "model"), ["one two three four five", "six"]
    assert loaded.fingerprint() != model.fingerprint()
    kept, whole = loaded.embed_candidates(texts), model.embed_candidates(texts)
    assert kept.mask is not None
    assert whole.mask is not None
    vectors, mask, _ = late.pool_tokens(whole.vectors, whole.mask, 2)
    assert kept.mask.tolist() == mask.tolist()
    torch.testing.assert_close(kept.present, F.normalize(vectors, dim=-1)[mask])
