"""Ranking decoders against the published definition, in every setting."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.decoders.published import (
    HEADS,
    WIDTH,
    Vector,
    codes_of,
    finder,
    mean,
    one_vector,
    plain,
    scores_of,
    tokens_of,
)
from twofold.decoders import RankingDecoder, Vectors, bi, cross, poly
from twofold.types import Hidden, HiddenSpec, Vocabulary

VOCABULARY = Vocabulary(size=20, limit=400, pad=0, unknown=1, start=2, end=3)
ATTENTIONS = ["plain", "scaled", "multihead"]
POOLINGS = ["first", "mean", "max", "attention", "summary"]


def built(config: Any, causal: bool = False) -> Any:
    """A decoder all of whose parameters are random."""
    torch.manual_seed(0)
    head = config.build(HiddenSpec(states=WIDTH, summary=WIDTH, causal=causal), VOCABULARY)
    with torch.no_grad():
        for name, value in head.named_parameters():
            value.copy_(torch.randn_like(value) * (0.1 if name.endswith("log_scale") else 0.7))
    return head


def some_hidden(lengths: Sequence[int], seed: int = 0, finish: Callable[[Tensor], Tensor] | None = None) -> Hidden:
    """Random states; those where nothing is real would be seen at once if they were read."""
    draw = torch.Generator().manual_seed(seed)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    states = torch.randn(len(lengths), max(lengths), WIDTH, generator=draw).masked_fill(~mask[..., None], 1e4)
    return Hidden(mask, states, torch.randn(len(lengths), WIDTH, generator=draw), finish)


def alone(hidden: Hidden, row: int) -> Hidden:
    """One row without its padding."""
    single, length = hidden.select(torch.tensor([row])), int(hidden.mask[row].sum())
    return Hidden(single.mask[:, :length], single.need("states")[:, :length], single.summary, hidden.finish)


def wider(hidden: Hidden) -> Hidden:
    """Two more columns of padding."""
    more = torch.full((len(hidden.mask), 2, WIDTH), -1e4)
    mask = torch.cat([hidden.mask, torch.zeros(len(hidden.mask), 2, dtype=torch.bool)], 1)
    return Hidden(mask, torch.cat([hidden.need("states"), more], 1), hidden.summary, hidden.finish)


def close(computed: Tensor, expected: Any) -> None:
    torch.testing.assert_close(computed.double(), torch.as_tensor(np.array(expected)), atol=1e-5, rtol=1e-5)


# --- the poly-encoder ---


@pytest.mark.parametrize("codes", [1, 16, 64, 360])
@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize(
    ("kind", "looks", "causal"),
    [("learned", "plain", False), ("learned", "scaled", True), ("first", "plain", False), ("first", "plain", True)],
)
def test_a_poly_encoder_scores_as_published(codes: int, attention: Any, kind: Any, looks: Any, causal: bool) -> None:
    config = poly.Config(
        codes=codes, code_kind=kind, code_attention=looks, attention=attention, heads=HEADS, normalize="none"
    )
    head: poly.PolyEncoder = built(config, causal)
    # One context has more tokens than there are codes, the others have fewer.
    contexts = some_hidden((5, 1, codes + 3 if kind == "first" else 23, 11), seed=1)
    candidates = some_hidden([1 + number % 4 for number in range(100)], seed=2)
    means = [mean(tokens, [1 / len(tokens)] * len(tokens)) for tokens in tokens_of(candidates)]
    vectors = head.candidate(candidates)
    close(vectors.single, means)
    batches = [head.context(contexts), head.context(wider(contexts))]
    for row, tokens in enumerate(tokens_of(contexts)):
        # With very many codes, all candidates of one context will do.
        expected = scores_of(head, config, tokens, means[: 100 if codes < 100 or row == 0 else 2], causal)
        for count in {1, 2, len(expected)}:
            close(head.score(head.context(alone(contexts, row)), vectors[:count])[0], expected[:count])
            for batch in batches:
                close(head.score(batch, vectors[:count])[row], expected[:count])
    assert torch.equal(head.candidate(wider(candidates)).single, vectors.single)


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("kind", ["learned", "first"])
def test_what_a_candidate_finds_in_a_context_is_as_published(attention: Any, kind: Any) -> None:
    config = poly.Config(codes=5, code_kind=kind, attention=attention, heads=HEADS, normalize="none")
    head: poly.PolyEncoder = built(config)
    contexts, candidates = some_hidden((7, 1, 3), seed=1), some_hidden((2, 4, 1), seed=2)
    kept, vectors = head.context(contexts), head.candidate(candidates)
    finds = [finder(head, config, codes_of(head, config, tokens, False)) for tokens in tokens_of(contexts)]
    towards = head.towards(kept, vectors.single)
    close(towards, [find(one) for find, one in zip(finds, plain(vectors.single), strict=True)])
    close((towards * vectors.single).sum(1), plain(head.score(kept, vectors).diagonal()))


@pytest.mark.parametrize("masked", [False, True])
def test_several_heads_are_those_of_torch(masked: bool) -> None:
    head: poly.PolyEncoder = built(poly.Config(codes=6, attention="multihead", heads=HEADS, normalize="none"))
    ours = head.heads
    assert ours is not None
    theirs = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([ours.query.weight, ours.key.weight, ours.value.weight]))
        # The same for all codes, a bias of the keys changes no share.
        theirs.in_proj_bias.copy_(torch.cat([ours.query.bias, torch.randn(WIDTH), ours.value.bias]))
        theirs.out_proj.load_state_dict(ours.output.state_dict())
    vectors, candidates = torch.randn(3, 6, WIDTH), torch.randn(10, WIDTH)
    mask = torch.arange(6) < torch.tensor([6, 1, 4])[:, None] if masked else None
    asked = candidates.expand(3, -1, -1)
    attended, _ = theirs(asked, vectors, vectors, key_padding_mask=None if mask is None else ~mask)
    close(head.score(Vectors(vectors, mask), Vectors(candidates[:, None])), plain((attended * asked).sum(-1)))
    close(head.towards(Vectors(vectors, mask), candidates[:3]), plain(attended[torch.arange(3), torch.arange(3)]))


@pytest.mark.parametrize("attention", ["plain", "scaled"])
@pytest.mark.parametrize("size", [0.1, 1.0, 10.0])
def test_a_score_lies_just_below_the_largest_dot_product(attention: Any, size: float) -> None:
    head: poly.PolyEncoder = built(poly.Config(codes=7, code_kind="first", attention=attention, normalize="none"))
    contexts, candidates = head.context(some_hidden((9, 1, 4), seed=1)), torch.randn(50, WIDTH) * size
    assert contexts.mask is not None
    products = contexts.vectors @ candidates.T
    most = products.masked_fill(~contexts.mask[..., None], -math.inf).amax(1)
    codes = contexts.mask.sum(1, keepdim=True)
    score = head.score(contexts, Vectors(candidates[:, None]))
    slack = 1e-5 * (1 + most.abs())
    assert (score <= most + slack).all()
    assert (score >= most - codes.log() / head.beta - slack).all()


def test_a_score_of_several_heads_is_at_most_what_each_head_could_find() -> None:
    head: poly.PolyEncoder = built(poly.Config(codes=5, attention="multihead", heads=HEADS, normalize="none"))
    assert head.heads is not None
    contexts, candidates = head.context(some_hidden((9, 1, 4), seed=1)), torch.randn(50, WIDTH) * 3
    values = head.heads.project(contexts.vectors)[1].view(3, HEADS, 5, WIDTH) @ candidates.T
    bound = values.amax(2).sum(1) + candidates @ head.heads.output(head.heads.value.bias)
    assert (head.score(contexts, Vectors(candidates[:, None])) <= bound + 1e-4).all()


@pytest.mark.parametrize("attention", ATTENTIONS)
@pytest.mark.parametrize("kind", ["learned", "first"])
@pytest.mark.parametrize("block", [1, 50, 333])
def test_how_many_dot_products_are_held_changes_nothing(
    attention: Any, kind: Any, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    head: poly.PolyEncoder = built(poly.Config(codes=4, code_kind=kind, attention=attention, heads=HEADS))
    contexts = head.context(some_hidden((5, 1, 3), seed=1))
    vectors = head.candidate(some_hidden([1 + number % 3 for number in range(29)], seed=2))
    at_once = head.score(contexts, vectors)
    monkeypatch.setattr("twofold.decoders.poly.BLOCK", block)
    torch.testing.assert_close(head.score(contexts, vectors), at_once, atol=1e-6, rtol=1e-6)


def test_contexts_shorter_than_the_codes_have_finite_gradients() -> None:
    head: poly.PolyEncoder = built(poly.Config(codes=6, code_kind="first"))
    hidden = some_hidden((2, 1), seed=1)
    states = hidden.need("states").requires_grad_()
    head.score(head.context(hidden), head.candidate(some_hidden((1, 3), seed=2))).sum().backward()  # type: ignore[no-untyped-call]
    assert states.grad is not None
    assert states.grad.isfinite().all()
    assert not states.grad[~hidden.mask].any()


# --- one vector of a text, its length and its scale ---


def twice_bent(vectors: Tensor) -> Tensor:
    return 2 * vectors.tanh()


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("finish", [None, twice_bent])
def test_every_pooling_is_what_a_loop_gives(pooling: Any, causal: bool, finish: Any) -> None:
    hidden = some_hidden((4, 1, 6), seed=3, finish=finish)

    def expected(query: Tensor | None) -> list[Vector]:
        query_vector = None if query is None else plain(query)
        rows = zip(tokens_of(hidden), plain(hidden.need("summary")), strict=True)
        vectors = [one_vector(pooling, tokens, summary, causal, query_vector) for tokens, summary in rows]
        return vectors if finish is None or pooling == "summary" else [2 * np.tanh(one) for one in vectors]

    two: bi.BiEncoder = built(bi.Config(pooling=pooling, normalize="none"), causal)
    joined: cross.CrossEncoder = built(cross.Config(pooling=pooling), causal)
    for states in (hidden, wider(hidden)):
        close(two.context(states).vectors[:, 0], expected(two.pool.query))
        close(two.candidate(states).single, expected(two.vector.pool.query))
        weight = plain(joined.output.weight)[0]
        assert joined.pool is not None
        close(joined.joint(states), [float(weight @ vector) for vector in expected(joined.pool.query)])


@pytest.mark.parametrize("part", [bi, poly])
@pytest.mark.parametrize("normalize", ["none", "candidates", "both"])
@pytest.mark.parametrize("learns", [False, True])
def test_normalized_sides_have_length_one_and_candidates_that_of_the_scale(
    part: Any, normalize: str, learns: bool
) -> None:
    head: RankingDecoder = part.Config(normalize=normalize, scale=7.0, learn_scale=learns).build(
        HiddenSpec(states=WIDTH), VOCABULARY
    )
    kept, vectors = head.context(some_hidden((4, 1, 6))), head.candidate(some_hidden((2, 3), seed=1)).single
    lengths = kept.vectors.norm(dim=-1)
    close(lengths, np.ones(lengths.shape)) if normalize == "both" else differ(lengths)
    close(vectors.norm(dim=-1), [7.0, 7.0]) if normalize != "none" else differ(vectors.norm(dim=-1))
    assert ("vector.log_scale" in dict(head.named_parameters())) == (learns and normalize != "none")


def differ(lengths: Tensor) -> None:
    assert ((lengths - 1).abs() > 1e-3).all()


def test_a_bi_encoder_scores_by_the_dot_product_and_nothing_else() -> None:
    head: bi.BiEncoder = built(bi.Config(scale=3.0, learn_scale=False, output_scale=9.0))
    contexts, candidates = some_hidden((4, 1), seed=1), some_hidden((3, 2, 1), seed=2)
    sides = []
    for hidden in (contexts, candidates):
        vectors = [mean(tokens, [1 / len(tokens)] * len(tokens)) for tokens in tokens_of(hidden)]
        sides.append([one / math.sqrt(math.fsum(one * one)) for one in vectors])
    kept, stored = head.context(contexts), head.candidate(candidates)
    close(head.score(kept, stored), [[3 * float(one @ other) for other in sides[1]] for one in sides[0]])
    close(head.towards(kept, stored.single[:2]), sides[0])
