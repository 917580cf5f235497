"""The recurrent decoder with attention against the equations of Bahdanau et al. (2015), step by step in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.conftest import decoder, encoder, small_model
from twofold.data.tokenizer import TextTokenizer
from twofold.decoders.attention_rnn import AttentionRNNDecoder, Config
from twofold.errors import TwofoldError
from twofold.generate.search import GenerateOptions
from twofold.recording import recorded_attention
from twofold.types import Hidden, HiddenSpec, Vocabulary

VOCABULARY = Vocabulary(size=15, limit=9, pad=0, unknown=1, start=2, end=3)
LENGTHS = (5, 2, 1)
SOURCES = ["nine hundred and two", "seven", "twenty-one"]


def make(**settings: Any) -> AttentionRNNDecoder:
    torch.manual_seed(0)
    config = decoder("attention_rnn", recurrence="bahdanau", **settings)
    assert isinstance(config, Config)
    return config.build(HiddenSpec(states=10), VOCABULARY).eval()


def some_hidden() -> Hidden:
    torch.manual_seed(1)
    return Hidden(mask=torch.arange(5) < torch.tensor(LENGTHS)[:, None], states=torch.randn(3, 5, 10))


def some_tokens() -> Tensor:
    torch.manual_seed(2)
    return torch.randint(4, VOCABULARY.size, (3, 6))


def gru(weights: dict[str, Tensor], read: Tensor, state: Tensor) -> Tensor:
    """f of the paper's appendix: an update gate z, a reset gate r, and a state that is proposed; (width,)."""
    inside = weights["asking.rnn.weight_ih_l0"] @ read + weights["asking.rnn.bias_ih_l0"]
    before = weights["asking.rnn.weight_hh_l0"] @ state + weights["asking.rnn.bias_hh_l0"]
    (r_in, z_in, n_in), (r_before, z_before, n_before) = inside.chunk(3), before.chunk(3)
    reset, kept = torch.sigmoid(r_in + r_before), torch.sigmoid(z_in + z_before)
    update = 1 - kept  # the paper's z, of which PyTorch computes the counterpart
    proposed = torch.tanh(n_in + reset * n_before)
    return (1 - update) * state + update * proposed


def by_the_equations(part: AttentionRNNDecoder, source: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Features (positions, embedding) and weights (positions, source positions) of one row and one layer."""
    weights = {name: value.detach().double() for name, value in part.state_dict().items()}
    source = source.double()
    state = torch.tanh(weights["first.weight"] @ source.mean(0) + weights["first.bias"])  # s_0
    features, looked = [], []
    for token in tokens.tolist():  # y_{i-1}
        word = weights["embedding.weight"][token]
        asked = weights["attend.query.weight"] @ state + weights["attend.query.bias"]  # W s_{i-1}
        energies = torch.stack(
            [weights["attend.energy.weight"][0] @ torch.tanh(asked + weights["attend.key.weight"] @ h) for h in source]
        )
        share = energies.exp() / energies.exp().sum()  # alpha_ij
        context = sum((a * h for a, h in zip(share, source, strict=True)), torch.zeros(source.shape[1]).double())  # c_i
        state = gru(weights, torch.cat([word, context]), state)  # s_i = f(s_{i-1}, y_{i-1}, c_i)
        read = torch.cat([state, context, word])  # g(y_{i-1}, s_i, c_i)
        features.append(torch.tanh(weights["readout.weight"] @ read + weights["readout.bias"]))
        looked.append(share)
    return torch.stack(features), torch.stack(looked)


def attention(part: AttentionRNNDecoder, hidden: Hidden, tokens: Tensor) -> Tensor:
    """Recorded weights (rows, positions, source positions)."""
    with recorded_attention() as record:
        part.teach(hidden, tokens, torch.ones_like(tokens, dtype=torch.bool), 0.0)
    ((_, weights),) = record
    return weights.squeeze(1)


def test_what_it_writes_and_where_it_looks_follow_the_papers_equations() -> None:
    part, hidden, tokens = make(layers=1), some_hidden(), some_tokens()
    features = part.teach(hidden, tokens, torch.ones_like(tokens, dtype=torch.bool), 0.0)
    looked = attention(part, hidden, tokens)
    for row, length in enumerate(LENGTHS):
        expected, share = by_the_equations(part, hidden.need("states")[row, :length], tokens[row])
        torch.testing.assert_close(features[row], expected.float(), atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(looked[row, :, :length], share.float(), atol=1e-6, rtol=1e-5)
        assert not looked[row, :, length:].any()


def test_attention_looks_before_a_token_is_read_and_the_default_after() -> None:
    hidden, tokens = some_hidden(), some_tokens()
    changed = tokens.clone()
    changed[:, 2] = (changed[:, 2] - 3) % 11 + 4
    for recurrence, first_changed in (("bahdanau", 3), ("luong", 2)):
        part = decoder("attention_rnn", recurrence=recurrence).build(HiddenSpec(states=10), VOCABULARY).eval()
        assert isinstance(part, AttentionRNNDecoder)
        before, after = attention(part, hidden, tokens)[0], attention(part, hidden, changed)[0]
        same = [torch.allclose(*weights, atol=1e-7) for weights in zip(before, after, strict=True)]
        assert same.index(False) == first_changed


@pytest.mark.parametrize("settings", [{}, {"layers": 1}, {"layers": 3, "cell": "lstm"}, {"attention": "dot"}])
def test_steps_equal_the_whole(settings: dict[str, Any]) -> None:
    part, hidden, tokens = make(**settings), some_hidden(), some_tokens()
    whole = part.teach(hidden, tokens, torch.ones_like(tokens, dtype=torch.bool), 0.0)
    state = part.start(hidden)
    for place in range(tokens.shape[1]):
        step = part.step(state, tokens[:, place])
        assert isinstance(step.state, type(state))
        state = step.state
        torch.testing.assert_close(step.features, whole[:, place], atol=1e-5, rtol=1e-5)


def test_greedy_beam_streaming_and_attention_maps_agree(tokenizer: TextTokenizer) -> None:
    torch.manual_seed(0)
    model = small_model(tokenizer, encoder("rnn"), decoder("attention_rnn", recurrence="bahdanau")).eval()
    with torch.no_grad():
        model.decoder().output.weight.mul_(20)  # type: ignore[union-attr, operator]
    options = GenerateOptions(max_length=6)
    greedy = model.predict(SOURCES, options)
    for source, prediction in zip(SOURCES, greedy, strict=True):
        assert prediction.tokens is not None
        assert "".join(model.stream(source, options)) == prediction.output
        (looked,) = model.explain(source, written=prediction.tokens).attention
        assert looked.weights.sum(-1) == pytest.approx(1.0, abs=1e-5)
    for narrow, wide in zip(greedy, model.predict(SOURCES, GenerateOptions(beam=4, max_length=6)), strict=True):
        assert wide.normalized_scores[0] >= narrow.normalized_scores[0] - 1e-5


def test_the_default_has_the_weights_it_had() -> None:
    names = {name: tuple(value.shape) for name, value in make(layers=1).state_dict().items()}
    default = decoder("attention_rnn", layers=1).build(HiddenSpec(states=10), VOCABULARY).state_dict()
    different = {name for name, value in default.items() if tuple(value.shape) != names[name]}
    assert names.keys() == default.keys()
    assert different == {"asking.rnn.weight_ih_l0"}  # reads the answer as well
    assert default["asking.rnn.weight_ih_l0"].shape == (36, 8)


def test_an_unknown_recurrence_is_named() -> None:
    with pytest.raises(TwofoldError, match="'bahdanow' is not known; did you mean 'bahdanau'"):
        decoder("attention_rnn", recurrence="bahdanow")
