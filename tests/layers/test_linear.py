"""Packed weights give what `nn.Linear` gives, follow the weights, and stay out of training, copies and exports."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

from twofold.layers.linear import AVAILABLE, SMALL, Linear

pytestmark = pytest.mark.skipif(not AVAILABLE, reason="this torch has no oneDNN")
ROWS, WIDTH, OUTPUTS = 12, 128, 160
assert ROWS * WIDTH * OUTPUTS > SMALL


@pytest.fixture
def linear() -> Linear:
    torch.manual_seed(1)
    return Linear(WIDTH, OUTPUTS).eval()


@torch.no_grad()
@pytest.mark.parametrize("shape", [(ROWS, WIDTH), (3, 4, WIDTH), (0, WIDTH), (1, WIDTH)])
def test_packed_weights_give_what_plain_ones_give(linear: Linear, shape: tuple[int, ...]) -> None:
    states = torch.randn(shape)
    torch.testing.assert_close(linear(states), nn.functional.linear(states, linear.weight, linear.bias))
    turned = torch.randn(*shape[:-2], shape[-1], shape[-2]).transpose(-2, -1)
    torch.testing.assert_close(linear(turned), nn.functional.linear(turned, linear.weight, linear.bias))


@torch.no_grad()
def test_packed_weights_in_bfloat16_are_those_that_autocast_makes(linear: Linear) -> None:
    states = torch.randn(ROWS, WIDTH)
    with torch.autocast("cpu", torch.bfloat16):
        ours, theirs = linear(states), nn.functional.linear(states, linear.weight, linear.bias)
    assert ours.dtype == theirs.dtype == torch.bfloat16
    torch.testing.assert_close(ours, theirs, rtol=0.01, atol=0.01)
    assert linear(states).dtype == torch.float32


@torch.no_grad()
def test_weights_that_change_are_packed_anew(linear: Linear) -> None:
    states = torch.randn(ROWS, WIDTH)
    before = linear(states)
    assert linear.packed is not None
    linear.weight.mul_(2)
    linear.bias.mul_(2)
    torch.testing.assert_close(linear(states), 2 * before)
    linear.weight = nn.Parameter(torch.zeros(OUTPUTS, WIDTH))
    torch.testing.assert_close(linear(states), linear.bias.expand(ROWS, -1))


def test_training_drops_the_packed_weights_and_gradients_flow(linear: Linear) -> None:
    states = torch.randn(ROWS, WIDTH)
    with torch.no_grad():
        linear(states)
    linear(states).sum().backward()
    assert linear.weight.grad is not None
    assert linear.train().packed is None


def test_a_copy_packs_its_own_weights(linear: Linear) -> None:
    states = torch.randn(ROWS, WIDTH)
    with torch.no_grad():
        expected = linear(states)
        assert linear.packed is not None
        for other in (copy.deepcopy(linear), pickle.loads(pickle.dumps(linear))):
            assert other.packed is None
            torch.testing.assert_close(other(states), expected)
    assert set(linear.state_dict()) == {"weight", "bias"}
