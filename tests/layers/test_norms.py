"""Norms equal PyTorch's own, with BatchNorm seeing the real positions and nothing else."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from twofold.layers.blocks import BatchNorm, LayerNorm, NormKind, make_norm

WIDTH = 6


def some_states(seed: int, lengths: tuple[int, ...] = (5, 1, 3)) -> tuple[Tensor, Tensor]:
    """States far from zero mean and unit variance, padded with huge values."""
    draw = torch.Generator().manual_seed(seed)
    states = torch.randn(len(lengths), max(lengths), WIDTH, generator=draw) * 3 + torch.arange(WIDTH)
    mask = torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
    return states.masked_fill(~mask[..., None], 1e4), mask


def make_pair() -> tuple[BatchNorm, nn.BatchNorm1d]:
    """Ours and PyTorch's, with the same weights and biases."""
    torch.manual_seed(0)
    ours, other = BatchNorm(WIDTH), nn.BatchNorm1d(WIDTH)
    with torch.no_grad():
        ours.weight.copy_(torch.rand(WIDTH) + 0.5)
        ours.bias.copy_(torch.randn(WIDTH))
        other.weight.copy_(ours.weight)
        other.bias.copy_(ours.bias)
    return ours, other


def test_batch_norm_in_training_equals_pytorch_on_the_real_positions() -> None:
    ours, other = make_pair()
    for seed, lengths in enumerate([(5, 1, 3), (2, 2), (7, 4, 4, 1)]):
        states, mask = some_states(seed, lengths)
        torch.testing.assert_close(ours(states, mask)[mask], other(states[mask]), atol=1e-5, rtol=1e-4)
    assert isinstance(other.running_mean, Tensor)
    assert isinstance(other.running_var, Tensor)
    torch.testing.assert_close(ours.mean, other.running_mean, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours.variance, other.running_var, atol=1e-5, rtol=1e-5)


def test_batch_norm_without_a_mask_takes_all_positions_as_real() -> None:
    ours, other = make_pair()
    states = some_states(0)[0]
    torch.testing.assert_close(ours(states).flatten(0, 1), other(states.flatten(0, 1)), atol=1e-5, rtol=1e-4)


def test_batch_norm_in_evaluation_uses_the_running_statistics() -> None:
    ours, other = make_pair()
    for seed in range(3):
        states, mask = some_states(seed)
        ours(states, mask)
        other(states[mask])
    ours.eval()
    other.eval()
    states, mask = some_states(9)
    kept = ours.mean.clone()
    torch.testing.assert_close(ours(states, mask)[mask], other(states[mask]), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(ours(states[:1, :1]), ours(states, mask)[:1, :1])
    assert torch.equal(ours.mean, kept)


@pytest.mark.parametrize("training", [True, False])
def test_gradients_of_batch_norm_equal_those_of_pytorch(training: bool) -> None:
    ours, other = make_pair()
    ours.train(training)
    other.train(training)
    states, mask = some_states(1)
    mine, theirs = states.clone().requires_grad_(), states.clone().requires_grad_()
    pull = torch.randn(int(mask.sum()), WIDTH)
    (ours(mine, mask)[mask] * pull).sum().backward()
    (other(theirs[mask]) * pull).sum().backward()
    for first, two in ((mine, theirs), (ours.weight, other.weight), (ours.bias, other.bias)):
        assert first.grad is not None
        torch.testing.assert_close(first.grad, two.grad, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", ["layer", "batch"])
@pytest.mark.parametrize("training", [True, False])
def test_padding_has_no_influence(kind: NormKind, training: bool) -> None:
    states, mask = some_states(2)
    outputs, norms = [], [make_norm(kind, WIDTH).train(training) for _ in range(2)]
    for norm, filling in zip(norms, (0.0, -77.0), strict=True):
        outputs.append(norm(states.masked_fill(~mask[..., None], filling), mask)[mask])
    torch.testing.assert_close(outputs[0], outputs[1], atol=0, rtol=0)
    for first, two in zip(norms[0].buffers(), norms[1].buffers(), strict=True):
        assert torch.equal(first, two)


def test_layer_norm_equals_that_of_pytorch() -> None:
    ours, other = make_norm("layer", WIDTH), nn.LayerNorm(WIDTH)
    assert isinstance(ours, LayerNorm)
    with torch.no_grad():
        ours.weight.uniform_(0.5, 1.5)
        ours.bias.normal_()
    other.load_state_dict(ours.state_dict())
    states, mask = some_states(3)
    torch.testing.assert_close(ours(states, mask), other(states))
    by_hand = (states[0, 0] - states[0, 0].mean()) / (states[0, 0].var(correction=0) + 1e-5).sqrt()
    torch.testing.assert_close(ours(states, mask)[0, 0], by_hand * ours.weight + ours.bias)
