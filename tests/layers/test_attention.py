"""Attention against slow references written out in loops, its masks, its cache, and the positions it knows."""

from __future__ import annotations

import math
from itertools import product
from typing import Literal

import pytest
import torch
from torch import Tensor

from tests.conftest import decoder, encoder
from twofold.decoders.attention_rnn import AttentionRNNDecoder
from twofold.decoders.attention_rnn import Config as AttentionRNNConfig
from twofold.decoders.transformer import Config as DecoderConfig
from twofold.decoders.transformer import TransformerDecoder
from twofold.encoders.transformer import Config as EncoderConfig
from twofold.inputs import INPUT
from twofold.inputs.text import Tokens
from twofold.layers.attend import Attend, FullAttention, KeysValues, LinearAttention, WindowAttention, attend
from twofold.layers.attention import CrossAttention, Past, SelfAttention
from twofold.layers.blocks import Rotary, sinusoids
from twofold.layers.cache import ROOM, Cache
from twofold.layers.recurrent import QueryAttention
from twofold.recording import recorded_attention
from twofold.types import Batch, Hidden, HiddenSpec, Vocabulary

VOCABULARY = Vocabulary(size=15, limit=9, pad=0, unknown=1, start=2, end=3)
SPEC = HiddenSpec(states=10, summary=10)
POSITIONS = ["sinusoidal", "learned", "rotary", "none"]
LENGTHS = torch.tensor([5, 2, 1])


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def some_hidden() -> Hidden:
    mask = torch.arange(5) < LENGTHS[:, None]
    return Hidden(mask=mask, states=torch.randn(3, 5, 10), summary=torch.randn(3, 10))


def some_tokens(length: int = 6) -> Tensor:
    return torch.randint(4, VOCABULARY.size, (3, length))


def transformer(**settings: str) -> TransformerDecoder:
    config = decoder("transformer", **settings)
    assert isinstance(config, DecoderConfig)
    return config.build(SPEC, VOCABULARY).eval()


def by_hand(queries: Tensor, keys: Tensor, values: Tensor, allowed: Tensor) -> Tensor:
    """softmax(q·k / √d)·v for one row and head, in float64 and loops; `allowed` is (queries, keys)."""
    result = torch.zeros(len(queries), values.shape[1], dtype=torch.float64)
    for at, query in enumerate(queries.double().tolist()):
        open_to = [place for place in range(len(keys)) if allowed[at, place]]
        scores = [
            sum(a * b for a, b in zip(query, keys[place].double().tolist(), strict=True)) / math.sqrt(len(query))
            for place in open_to
        ]
        total = sum(math.exp(score) for score in scores)
        for place, score in zip(open_to, scores, strict=True):
            result[at] += math.exp(score) / total * values[place].double()
    return result


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_both_paths_of_attention_equal_the_formula(weights: bool, causal: bool, masked: bool) -> None:
    queries, keys, values = torch.randn(3, 3, 2, 5, 4).unbind()
    mask = (torch.arange(5) < LENGTHS[:, None])[:, None, None] if masked else None
    states = attend(queries, KeysValues(keys, values), mask, causal, weights=weights)
    allowed = torch.ones(3, 2, 5, 5, dtype=torch.bool)
    allowed = allowed if mask is None else allowed & mask
    allowed = allowed.tril() if causal else allowed
    for row, head in product(range(3), range(2)):
        expected = by_hand(queries[row, head], keys[row, head], values[row, head], allowed[row, head])
        torch.testing.assert_close(states.values[row, head], expected.float(), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_weights_sum_to_one_and_are_zero_where_nothing_may_be_seen(causal: bool) -> None:
    queries, keys, values = torch.randn(3, 3, 2, 5, 4).unbind()
    mask = (torch.arange(5) < LENGTHS[:, None])[:, None, None]
    weights = attend(queries, KeysValues(keys, values), mask, causal, weights=True).weights
    assert weights is not None
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 2, 5))
    allowed = mask.expand(3, 2, 5, 5)
    allowed = allowed.tril() if causal else allowed
    assert torch.equal(weights > 0, allowed)


@pytest.mark.parametrize("kind", ["attention_rnn", "transformer"])
def test_recorded_weights_of_a_decoder_sum_to_one_and_are_zero_on_padding(kind: str) -> None:
    config = decoder(kind)
    assert isinstance(config, (AttentionRNNConfig, DecoderConfig))
    part: AttentionRNNDecoder | TransformerDecoder = config.build(SPEC, VOCABULARY).eval()
    hidden, tokens = some_hidden(), some_tokens()
    with recorded_attention() as record:
        part.teach(hidden, tokens, torch.ones_like(tokens, dtype=torch.bool), 0.0)
    layers = [weights for recorded, weights in record if recorded == "cross"]
    assert len(layers) == (2 if kind == "transformer" else 1)
    for weights in layers:
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
        assert torch.equal(weights > 0, hidden.mask[:, None, None].expand(weights.shape))


def test_cross_attention_with_and_without_weights_reads_the_same() -> None:
    cross = CrossAttention(8, 2, 10)
    hidden, states = some_hidden(), torch.randn(3, 4, 8)
    memory = cross.remember(hidden.need("states"))
    fast = cross(states, memory, hidden.mask)
    with recorded_attention() as record:
        slow = cross(states, memory, hidden.mask)
    ((kind, weights),) = record
    assert kind == "cross"
    assert weights.shape == (3, 2, 4, 5)
    torch.testing.assert_close(fast, slow, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("norm_place", ["pre", "post"])
@pytest.mark.parametrize("positions", POSITIONS)
def test_what_is_written_later_does_not_change_what_came_before(positions: str, norm_place: str) -> None:
    part, hidden, tokens = transformer(positions=positions, norm_place=norm_place), some_hidden(), some_tokens()
    before = part.teach(hidden, tokens, torch.ones_like(tokens, dtype=torch.bool), 0.0)
    for place in range(1, 6):
        changed = tokens.clone()
        changed[:, place] = (changed[:, place] - 3) % 11 + 4
        after = part.teach(hidden, changed, torch.ones_like(tokens, dtype=torch.bool), 0.0)
        torch.testing.assert_close(after[:, :place], before[:, :place], atol=1e-6, rtol=0)
        assert not torch.allclose(after[:, place], before[:, place], atol=1e-3)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("positions", POSITIONS)
def test_only_an_encoder_that_is_not_causal_looks_ahead(positions: str, causal: bool) -> None:
    config = encoder("transformer", positions=positions, causal=causal)
    assert isinstance(config, EncoderConfig)
    part, tokens = config.build(VOCABULARY, frozenset({"states"})).eval(), some_tokens()
    mask = torch.ones_like(tokens, dtype=torch.bool)
    changed = tokens.clone()
    changed[:, 3] = (changed[:, 3] - 3) % 11 + 4
    before, after = (part(Batch({INPUT: Tokens(ids, mask)})).need("states") for ids in (tokens, changed))
    assert torch.allclose(before[:, :3], after[:, :3], atol=1e-6) == causal
    assert not torch.allclose(before[:, 3:], after[:, 3:], atol=1e-3)


@pytest.mark.parametrize("norm", ["layer", "batch"])
@pytest.mark.parametrize("norm_place", ["pre", "post"])
@pytest.mark.parametrize("positions", POSITIONS)
def test_steps_with_cached_keys_and_values_equal_the_whole(positions: str, norm_place: str, norm: str) -> None:
    part = transformer(positions=positions, norm_place=norm_place, norm=norm)
    hidden, tokens = some_hidden(), some_tokens(VOCABULARY.limit + 1)
    whole = part.teach(hidden, tokens, torch.ones_like(tokens, dtype=torch.bool), 0.0)
    state = part.start(hidden)
    for place in range(tokens.shape[1]):
        step = part.step(state, tokens[:, place])
        assert isinstance(step.state, type(state))
        state = step.state
        torch.testing.assert_close(step.features, whole[:, place], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("turned", [False, True])
def test_one_layer_of_self_attention_steps_as_it_runs(turned: bool) -> None:
    layer, states = SelfAttention(8, 2).eval(), torch.randn(3, 6, 8)
    rotary = Rotary(4, 6) if turned else None
    whole, cache = layer(states, None, True, rotary), Cache(rows=3, beam=1)
    for place in range(6):
        visible = cache.advance(states.device)
        state = layer.step(states[:, place : place + 1], Past(cache, 0, visible), rotary)
        torch.testing.assert_close(state[:, 0], whole[:, place], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("attends", [FullAttention(), WindowAttention(3), LinearAttention()])
@pytest.mark.parametrize("turned", [False, True])
def test_a_beam_in_one_cache_steps_as_each_hypothesis_alone(turned: bool, attends: Attend) -> None:
    """Hypotheses change parents, and a row leaves, while the cache grows beyond its first room."""
    layer, steps, beam = SelfAttention(8, 2, attend=attends).eval(), 2 * ROOM + 3, 3
    rotary = Rotary(4, steps) if turned else None
    cache, pasts = Cache(rows=2, beam=beam), [torch.empty(0, 8)] * 6
    for place in range(steps):
        states = torch.randn(cache.rows, beam, 8)
        pasts = [torch.cat([past, state[None]]) for past, state in zip(pasts, states.flatten(0, 1), strict=True)]
        stepped = layer.step(states, Past(cache, 0, cache.advance(states.device)), rotary)
        whole = layer(torch.stack(pasts), None, True, rotary)[:, -1]
        torch.testing.assert_close(stepped.flatten(0, 1), whole, atol=1e-5, rtol=1e-5)
        leaves = place == ROOM // 2
        rows = [1] if leaves else range(cache.rows)
        parents = torch.cat([row * beam + torch.randint(beam, (beam,)) for row in rows])
        cache, pasts = cache.select(parents), [pasts[parent] for parent in parents]


@pytest.mark.parametrize("kind", ["additive", "dot"])
def test_attention_of_the_rnns_equals_a_loop_in_float64(kind: Literal["additive", "dot"]) -> None:
    layer, hidden, queries = QueryAttention(7, 10, 6, kind), some_hidden(), torch.randn(3, 4, 7)
    states = hidden.need("states")
    attended = layer(queries, layer.key(states), states, hidden.mask)
    w, bias, u = (value.double() for value in (layer.query.weight, layer.query.bias, layer.key.weight))
    assert (layer.energy is None) == (kind == "dot")
    for row, at in product(range(3), range(4)):
        asked = w @ queries[row, at].double() + bias
        scores = []
        for place in range(int(LENGTHS[row])):
            key = u @ states[row, place].double()
            if layer.energy is None:
                scores.append(sum((asked[i] * key[i]).item() for i in range(6)) / math.sqrt(6))
            else:
                v = layer.energy.weight[0].tolist()
                scores.append(sum(v[i] * math.tanh((asked[i] + key[i]).item()) for i in range(6)))
        total = sum(math.exp(score) for score in scores)
        weights = torch.tensor([math.exp(score) / total for score in scores], dtype=torch.float64)
        expected = sum((weight * state.double() for weight, state in zip(weights, states[row], strict=False)), start=0)
        assert isinstance(expected, Tensor)
        torch.testing.assert_close(attended.values[row, at], expected.float(), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(attended.weights[row, 0, at, : len(weights)], weights.float(), atol=1e-6, rtol=1e-5)
        assert not attended.weights[row, 0, at, len(weights) :].any()


def test_turned_queries_and_keys_know_only_their_distance() -> None:
    rotary = Rotary(8, 12)
    query, key = (rotary(torch.randn(1, 1, 1, 8).expand(1, 1, 12, 8))[0, 0] for _ in range(2))
    products = query @ key.T
    torch.testing.assert_close(products[1:, 1:], products[:-1, :-1], atol=1e-5, rtol=1e-5)
    assert (products[0, 1:] - products[0, :-1]).abs().min() > 1e-3


def test_turning_follows_the_formula_from_any_start() -> None:
    rotary, heads = Rotary(6, 20), torch.randn(2, 3, 4, 6)
    turned = rotary(heads, start=11)
    for position, pair in product(range(4), range(3)):
        angle = (11 + position) * 10_000 ** (-2 * pair / 6)
        first, second = heads[:, :, position, pair], heads[:, :, position, pair + 3]
        cos, sin = math.cos(angle), math.sin(angle)
        torch.testing.assert_close(turned[:, :, position, pair], first * cos - second * sin, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(turned[:, :, position, pair + 3], second * cos + first * sin, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("width", [2, 6, 16])
def test_sinusoids_equal_the_published_formula(width: int) -> None:
    table = sinusoids(30, width)
    assert table.shape == (30, width)
    for position, pair in product(range(30), range(width // 2)):
        angle = position / 10_000 ** (2 * pair / width)
        # The paper puts sine and cosine side by side; here all sines come first.
        assert table[position, pair].item() == pytest.approx(math.sin(angle), abs=1e-5)
        assert table[position, width // 2 + pair].item() == pytest.approx(math.cos(angle), abs=1e-5)
