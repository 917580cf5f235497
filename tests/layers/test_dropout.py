"""Dropout on the CPU drops the right share, keeps the mean, and can be repeated."""

from __future__ import annotations

import pytest
import torch

from twofold.layers.blocks import dropout

SHARES = [0.01, 0.1, 0.5, 0.9]


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


@pytest.mark.parametrize("size", [200_000, 200_001])
@pytest.mark.parametrize("share", SHARES)
def test_the_share_is_dropped_and_the_mean_kept(share: float, size: int) -> None:
    values = dropout(torch.ones(size), share, True)
    spread = (share * (1 - share) / size) ** 0.5
    assert (values == 0).double().mean().item() == pytest.approx(share, abs=5 * spread)
    assert values.double().mean().item() == pytest.approx(1, abs=5 * spread / (1 - share))
    kept = values[values != 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / (1 - share)), atol=0, rtol=1e-3)


def test_both_values_of_one_random_number_are_dropped_independently() -> None:
    dropped = (dropout(torch.ones(100_000, 2), 0.5, True) == 0).double()
    assert torch.corrcoef(dropped.T)[0, 1].abs().item() < 5 / 100_000**0.5
    torch.testing.assert_close(dropped.mean(0), torch.full((2,), 0.5, dtype=torch.float64), atol=0.01, rtol=0)


@pytest.mark.parametrize("shape", [(8, 6), (3, 5), (2, 3, 4), (1,), (7,)])
def test_the_gradient_passes_where_the_value_passed(shape: tuple[int, ...]) -> None:
    for _ in range(5):
        values = (torch.rand(shape) + 1).requires_grad_()
        after = dropout(values, 0.4, True)
        pull = torch.rand(shape) + 1
        (after * pull).sum().backward()  # type: ignore[no-untyped-call]
        assert values.grad is not None
        assert after.shape == values.shape
        torch.testing.assert_close(values.grad, (after / values).detach() * pull)


def test_a_tensor_that_lies_turned_in_memory_keeps_its_values_in_place() -> None:
    values = torch.arange(1.0, 25).view(4, 6).T.requires_grad_()
    after = dropout(values, 0.5, True)
    kept = after != 0
    assert kept.any()
    torch.testing.assert_close(after[kept], 2 * values[kept])


@pytest.mark.parametrize("shape", [(4, 6), (3, 5)])
def test_nothing_is_dropped_in_evaluation_or_at_share_zero(shape: tuple[int, ...]) -> None:
    values = torch.randn(shape)
    assert torch.equal(dropout(values, 0.5, False), values)
    assert torch.equal(dropout(values, 0.0, True), values)


@pytest.mark.parametrize("share", [0.999, 0.99999, 0.9999999, 1.0])
@pytest.mark.parametrize("size", [10_000, 10_001])
def test_a_share_close_to_one_drops_almost_all_and_stays_finite(share: float, size: int) -> None:
    values = torch.ones(size, requires_grad=True)
    after = dropout(values, share, True)
    after.sum().backward()  # type: ignore[no-untyped-call]
    assert values.grad is not None
    assert torch.isfinite(after).all()
    assert torch.isfinite(values.grad).all()
    assert (after != 0).sum() < 50


@pytest.mark.parametrize("shape", [(10, 10), (9, 11)])
def test_two_calls_differ_and_a_seed_repeats_them(shape: tuple[int, ...]) -> None:
    values = torch.ones(shape)
    torch.manual_seed(3)
    first, second = dropout(values, 0.5, True), dropout(values, 0.5, True)
    torch.manual_seed(3)
    assert torch.equal(dropout(values, 0.5, True), first)
    assert torch.equal(dropout(values, 0.5, True), second)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("kind", [torch.float64, torch.bfloat16])
def test_other_precisions_keep_their_type(kind: torch.dtype) -> None:
    after = dropout(torch.ones(1000, dtype=kind), 0.5, True)
    assert after.dtype == kind
    assert set(after.tolist()) == {0.0, 2.0}
