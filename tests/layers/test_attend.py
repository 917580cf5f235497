"""Window and linear attention against slow references, in steps, on the weights of full attention, and at length."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.conftest import decoder, encoder
from twofold.config import structure
from twofold.decoders.transformer import Config as DecoderConfig
from twofold.decoders.transformer import TransformerDecoder
from twofold.encoders import EncoderConfig
from twofold.encoders.transformer import Config as TransformerConfig
from twofold.encoders.transformer import TransformerEncoder
from twofold.errors import TwofoldError
from twofold.inputs import INPUT
from twofold.inputs.text import Tokens
from twofold.layers.attend import BLOCK, KeysValues, LinearAttention, WindowAttention
from twofold.recording import recorded_attention
from twofold.types import Batch, Hidden, HiddenSpec, Vocabulary

LONG = 3 * BLOCK + 5
"""More positions than two blocks have, and no multiple of a block."""
VOCABULARY = Vocabulary(size=15, limit=LONG, pad=0, unknown=1, start=2, end=3)
LENGTHS = torch.tensor([LONG, LONG - 2 * BLOCK, 1])
MASK = torch.arange(LONG) < LENGTHS[:, None]
each_kind = pytest.mark.parametrize("kind", ["full", "window", "linear"])
each_position = pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary", "none"])


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def some_heads(positions: int = LONG, scale: float = 1.0) -> tuple[Tensor, KeysValues]:
    queries, keys, values = (scale * torch.randn(3, 3, 2, positions, 4)).unbind()
    return queries, KeysValues(keys, values)


def weights_by_formula(kind: str, queries: Tensor, keys: Tensor, allowed: Tensor, window: int) -> Tensor:
    """Weights (queries, keys) of one row and head in float64; `allowed` is (queries, keys)."""
    queries, keys = queries.double(), keys.double()
    places = torch.arange(len(queries))
    if kind == "window":
        scores = (queries @ keys.T / math.sqrt(queries.shape[1])).exp()
        scores = scores * ((places[:, None] - places).abs() <= window)
    else:
        queries, keys = (torch.where(states > 0, states + 1, states.exp()) for states in (queries, keys))
        scores = queries @ keys.T
    scores = scores * allowed
    return scores / scores.sum(1, keepdim=True).clamp_min(1e-300)  # rows of padding see nothing


@pytest.mark.parametrize("positions", [1, 7, 2 * BLOCK, 2 * BLOCK + 1, LONG])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("kind", "window"), [("window", 1), ("window", 5), ("window", BLOCK + 7), ("linear", 1)])
def test_values_gradients_and_weights_equal_the_formula(
    kind: str, window: int, masked: bool, causal: bool, positions: int
) -> None:
    attends = WindowAttention(window) if kind == "window" else LinearAttention()
    queries, memory = some_heads(positions)
    mask = torch.arange(positions) < torch.tensor([positions, (positions + 1) // 2, 1])[:, None]
    mask = mask if masked else torch.ones_like(mask)
    given = [tensor.requires_grad_() for tensor in (queries, *memory)]
    padding_mask = mask[:, None, None] if masked else None
    values = attends(queries, memory, padding_mask, causal).values
    recorded = attends(queries, memory, padding_mask, causal, weights=True)
    assert recorded.weights is not None
    expected = torch.zeros_like(values)
    for row in range(3):
        real = mask[row]
        allowed = real.expand(positions, -1).tril() if causal else real.expand(positions, -1)
        for head in range(2):
            shares = weights_by_formula(kind, queries[row, head], memory.keys[row, head], allowed, window)[real]
            torch.testing.assert_close(recorded.weights[row, head, real], shares.float(), atol=1e-5, rtol=1e-5)
            expected[row, head, real] = (shares @ memory.values[row, head].double()).float()
    compared = mask[:, None, :, None]
    torch.testing.assert_close(values * compared, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(recorded.values * compared, expected, atol=1e-5, rtol=1e-5)
    towards = torch.randn_like(values) * compared
    gradients, right = (torch.autograd.grad(result, given, towards) for result in (values, expected))
    for gradient, reference in zip(gradients, right, strict=True):
        torch.testing.assert_close(gradient, reference, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("attends", [WindowAttention(5), LinearAttention()])
@pytest.mark.parametrize("causal", [False, True])
def test_rows_of_nothing_but_padding_stay_finite(attends: Any, causal: bool) -> None:
    queries, memory = some_heads()
    queries.requires_grad_()
    values = attends(queries, memory, torch.zeros(3, 1, 1, LONG, dtype=torch.bool), causal).values
    values.sum().backward()
    assert values.isfinite().all()
    assert queries.grad is not None
    assert queries.grad.isfinite().all()


@pytest.mark.parametrize("causal", [False, True])
def test_linear_attention_divides_by_no_zero_where_features_are_tiny(causal: bool) -> None:
    queries, memory = some_heads()
    keys = memory.keys - 30  # elu(-30) + 1 is 0 in float32
    values = LinearAttention()(queries, KeysValues(keys, torch.ones_like(keys)), None, causal).values
    torch.testing.assert_close(values, torch.ones_like(values))


@pytest.mark.parametrize("attends", [WindowAttention(3), LinearAttention()])
@pytest.mark.parametrize("causal", [False, True])
def test_memory_grows_with_the_length_and_not_with_its_square(attends: Any, causal: bool) -> None:
    def kept(positions: int) -> int:
        """Numbers that are kept for the gradients."""
        sizes: list[int] = []
        queries, memory = some_heads(positions)
        states = KeysValues(*(tensor.requires_grad_() for tensor in memory))

        def keep(tensor: Tensor) -> Tensor:
            sizes.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            attends(queries.requires_grad_(), states, None, causal)
        return sum(sizes)

    assert kept(32 * BLOCK) < 2.1 * kept(16 * BLOCK)


# --- Transformers ---


def settings_of(kind: str) -> dict[str, Any]:
    return {"attention": kind, "window": 5}


def make_encoder(kind: str, **settings: Any) -> TransformerEncoder:
    config = encoder("transformer", **settings_of(kind), **settings)
    assert isinstance(config, TransformerConfig)
    return config.build(VOCABULARY, frozenset({"states", "summary"})).eval()


def make_decoder(kind: str, **settings: Any) -> TransformerDecoder:
    config = decoder("transformer", **settings_of(kind), **settings)
    assert isinstance(config, DecoderConfig)
    return config.build(HiddenSpec(states=10, summary=10), VOCABULARY).eval()


def some_hidden() -> Hidden:
    mask = torch.arange(5) < torch.tensor([5, 2, 1])[:, None]
    return Hidden(mask=mask, states=torch.randn(3, 5, 10))


def some_tokens() -> Tensor:
    return torch.randint(4, VOCABULARY.size, (3, LONG))


@each_kind
@each_position
@torch.no_grad()
def test_steps_over_a_long_text_equal_the_whole(positions: str, kind: str) -> None:
    part, hidden, tokens = make_decoder(kind, positions=positions), some_hidden(), some_tokens()
    whole = part.teach(hidden, tokens, torch.ones_like(tokens, dtype=torch.bool), 0.0)
    state = part.start(hidden)
    for place in range(LONG):
        step = part.step(state, tokens[:, place])
        assert isinstance(step.state, type(state))
        state = step.state
        torch.testing.assert_close(step.features, whole[:, place], atol=1e-4, rtol=1e-4)


@each_kind
@each_position
@pytest.mark.parametrize("causal", [False, True])
@torch.no_grad()
def test_padding_of_a_long_batch_changes_nothing(positions: str, kind: str, causal: bool) -> None:
    part, tokens = make_encoder(kind, positions=positions, causal=causal), some_tokens()
    together = part(Batch({INPUT: Tokens(tokens, MASK)}))
    for row, length in enumerate(LENGTHS.tolist()):
        alone = part(Batch({INPUT: Tokens(tokens[row : row + 1, :length], MASK[row : row + 1, :length])}))
        torch.testing.assert_close(together.need("states")[row, :length], alone.need("states")[0], atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(together.need("summary")[row], alone.need("summary")[0], atol=1e-5, rtol=1e-4)


def test_two_layers_see_no_further_than_two_windows() -> None:
    part, tokens = make_encoder("window"), some_tokens()[:1]
    changed = tokens.clone()
    changed[0, 100] = (changed[0, 100] - 3) % 11 + 4
    mask = torch.ones_like(tokens, dtype=torch.bool)
    before, after = (part(Batch({INPUT: Tokens(ids, mask)})).need("states")[0] for ids in (tokens, changed))
    differs = (before != after).any(1).nonzero()[:, 0]
    assert (differs.min().item(), differs.max().item()) == (90, 110)


@each_kind
def test_the_weights_of_full_attention_load_into_every_kind(kind: str) -> None:
    batch = Batch({INPUT: Tokens(some_tokens(), MASK)})
    full, other = make_encoder("full"), make_encoder(kind)
    other.load_state_dict(full.state_dict())  # strict: the same names and shapes
    before, after = (part(batch).need("states")[MASK] for part in (full, other))
    assert torch.allclose(before, after) == (kind == "full")
    hidden, tokens = some_hidden(), some_tokens()
    full_decoder, other_decoder = make_decoder("full"), make_decoder(kind)
    other_decoder.load_state_dict(full_decoder.state_dict())
    before, after = (part.teach(hidden, tokens, MASK, 0.0) for part in (full_decoder, other_decoder))
    assert torch.allclose(before, after) == (kind == "full")


@torch.no_grad()
def test_a_window_that_covers_the_text_is_full_attention() -> None:
    full = make_encoder("full")
    config = encoder("transformer", attention="window", window=LONG - 1)
    wide = config.build(VOCABULARY, frozenset({"states"})).eval()
    wide.load_state_dict(full.state_dict())
    batch = Batch({INPUT: Tokens(some_tokens(), MASK)})
    before, after = (part(batch).need("states")[MASK] for part in (full, wide))
    torch.testing.assert_close(before, after, atol=1e-5, rtol=1e-5)


@each_kind
@each_position
@torch.no_grad()
def test_an_encoder_whose_weights_are_recorded_reads_the_same(positions: str, kind: str) -> None:
    part = make_encoder(kind, positions=positions)
    batch = Batch({INPUT: Tokens(some_tokens(), MASK)})
    unrecorded = part(batch).need("states")[MASK]
    with recorded_attention() as record:
        torch.testing.assert_close(part(batch).need("states")[MASK], unrecorded, atol=1e-5, rtol=1e-4)
    places = torch.arange(LONG)
    seen = MASK[:, None, None].expand(3, 2, LONG, LONG)
    seen = seen & ((places[:, None] - places).abs() <= 5) if kind == "window" else seen
    assert len(record) == 2
    for _, weights in record:
        torch.testing.assert_close(weights.sum(-1), torch.ones(3, 2, LONG))
        real = MASK[:, None].expand(3, 2, LONG)
        assert torch.equal((weights > 0)[real], seen[real])


@each_kind
def test_bfloat16_gives_nearly_the_states_and_gradients_of_float32(kind: str) -> None:
    part = make_encoder(kind)
    batch = Batch({INPUT: Tokens(some_tokens(), MASK)})
    results = []
    for rounded in (False, True):
        with torch.autocast("cpu", torch.bfloat16, enabled=rounded):
            states = part(batch).need("states")
        part.zero_grad()
        states[MASK].float().square().sum().backward()  # type: ignore[no-untyped-call]
        gradient = part.blocks[0].attention.project.weight.grad  # type: ignore[union-attr]
        assert isinstance(gradient, Tensor)
        results.append((states[MASK].float().detach(), gradient.clone()))
    for exact, rough in zip(*results, strict=True):
        assert (rough - exact).norm() < 0.05 * exact.norm()


def test_linear_attention_sums_many_positions_in_float32() -> None:
    queries, memory = some_heads(4000)
    memory = KeysValues(memory.keys, torch.ones_like(memory.values))
    with torch.autocast("cpu", torch.bfloat16):
        for causal in (False, True):
            values = LinearAttention()(queries, memory, None, causal).values
            torch.testing.assert_close(values, torch.ones_like(values), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"attention": "sparse"}, "attention"),
        ({"attention": "window", "window": 0}, "window"),
        ({"attention": "linear", "attention_dropout": 0.1}, "attention_dropout: linear attention never forms"),
        ({"kind": "vit", "attention": "window"}, "attention: window is for sequences"),
    ],
)
def test_settings_that_make_no_sense_are_refused_in_one_line(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(TwofoldError, match=message) as caught:
        structure({"kind": "transformer", **settings}, EncoderConfig)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", ["window", "linear"])
def test_cross_attention_stays_full(kind: str) -> None:
    hidden, tokens = some_hidden(), some_tokens()
    full, other = make_decoder("full", layers=1), make_decoder(kind, layers=1)
    other.load_state_dict(full.state_dict())
    crossed = []
    for part in (full, other):
        with recorded_attention() as record:
            part.teach(hidden, tokens, MASK, 0.0)
        crossed.append(dict(record)["cross"][:, :, 0])  # the first token has only itself to attend to
    torch.testing.assert_close(*crossed)
