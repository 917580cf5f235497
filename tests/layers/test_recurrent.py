"""Recurrent layers over padded rows equal PyTorch's over packed ones, and can be stepped."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from tests.conftest import decoder, encoder, small_model
from twofold.data.tokenizer import TextTokenizer
from twofold.layers.recurrent import CellKind, Recurrent, RecurrentState, TwoWay, turned_around

LENGTHS = torch.tensor([4, 7, 1, 6])
MASK = torch.arange(7) < LENGTHS[:, None]


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def reference(recurrent: TwoWay, cell: CellKind, layers: int, directions: int) -> nn.GRU | nn.LSTM:
    """PyTorch's layers with the same weights."""
    kind = nn.GRU if cell == "gru" else nn.LSTM
    other = kind(5, 3, layers, batch_first=True, bidirectional=directions == 2)
    ways = [("", recurrent.forwards), ("_reverse", recurrent.backwards)][:directions]
    weights = {
        name.replace("_l0", f"_l{number}{suffix}"): value
        for suffix, way in ways
        for number, layer in enumerate(way)
        for name, value in layer.state_dict().items()
    }
    other.load_state_dict(weights)
    return other


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_padded_rows_read_both_ways_equal_packed_ones(cell: CellKind, layers: int, directions: int) -> None:
    layer = TwoWay(cell, 5, 3, layers, directions, dropout=0.5).eval()
    inputs = torch.randn(4, 7, 5)
    packed = pack_padded_sequence(inputs, LENGTHS, batch_first=True, enforce_sorted=False)
    outputs, after = reference(layer, cell, layers, directions)(packed)
    expected = pad_packed_sequence(outputs, batch_first=True)[0]
    last = after if cell == "gru" else after[0]
    states, summary = layer(inputs, MASK)
    torch.testing.assert_close(states[MASK], expected[MASK], atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(summary, torch.cat(list(last[-directions:]), -1), atol=1e-6, rtol=1e-5)


def test_what_stands_in_the_padding_is_never_read() -> None:
    layer, inputs = TwoWay("gru", 5, 3, 2, 2, dropout=0.0), torch.randn(4, 7, 5)
    states, summary = layer(inputs, MASK)
    others = layer(inputs.masked_fill(~MASK[..., None], 99.0), MASK)
    assert torch.equal(others[0][MASK], states[MASK])
    assert torch.equal(others[1], summary)


def test_real_positions_are_turned_around_and_padding_stays() -> None:
    mask = torch.tensor([[True, True, True, False], [True, False, False, False]])
    assert turned_around(mask)[..., 0].tolist() == [[2, 1, 0, 3], [0, 1, 2, 3]]


def test_dropout_between_layers_acts_only_while_training() -> None:
    layer, inputs = TwoWay("gru", 5, 3, 2, 2, dropout=0.5), torch.randn(4, 7, 5)
    assert not torch.equal(layer(inputs, MASK)[0], layer(inputs, MASK)[0])
    layer.eval()
    assert torch.equal(layer(inputs, MASK)[0], layer(inputs, MASK)[0])
    single = TwoWay("gru", 5, 3, 1, 2, dropout=0.5)
    assert torch.equal(single(inputs, MASK)[0], single(inputs, MASK)[0])


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("cell", ["gru", "lstm"])
def test_steps_one_at_a_time_equal_the_whole(cell: CellKind, layers: int) -> None:
    layer = Recurrent(cell, 5, 3, layers, dropout=0.5).eval()
    inputs = torch.randn(4, 7, 5)
    start = layer.state(torch.randn(4, layers * 3))
    whole, last = layer(inputs, start)
    state: RecurrentState = start
    stepped: list[Tensor] = []
    for place in range(7):
        output, state = layer(inputs[:, place : place + 1], state)
        stepped.append(output)
    torch.testing.assert_close(torch.cat(stepped, 1), whole, atol=1e-6, rtol=1e-5)
    assert len(state) == len(last) == (1 if cell == "gru" else 2)
    for output, other in zip(state, last, strict=True):
        torch.testing.assert_close(output, other, atol=1e-6, rtol=1e-5)


def test_a_starting_state_gives_each_layer_its_own_part() -> None:
    first = torch.arange(12.0).view(2, 6)
    (state,) = Recurrent("gru", 5, 3, 2, 0.0).state(first)
    assert state.tolist() == [[[0, 1, 2], [6, 7, 8]], [[3, 4, 5], [9, 10, 11]]]
    state, memory = Recurrent("lstm", 5, 3, 2, 0.0).state(first)
    assert state.shape == memory.shape == (2, 2, 3)
    assert not memory.any()


@pytest.mark.parametrize("summary", ["last", "mean", "max"])
def test_the_one_vector_of_a_row_is_the_same_alone_and_beside_longer_rows(
    tokenizer: TextTokenizer, summary: str
) -> None:
    model = small_model(tokenizer, encoder("rnn", summary=summary), decoder("rnn")).eval()
    examples = [{"source": "one"}, {"source": "ninety-nine thousand nine hundred"}]
    both = model.encoder(model.batch(examples, targets=False)).need("summary")
    alone = model.encoder(model.batch(examples[:1], targets=False)).need("summary")
    torch.testing.assert_close(both[:1], alone)
