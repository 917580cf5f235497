"""The layers of image networks compute what they say, whatever their width."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from twofold.layers.convolutions import Convolution, Residual, channels_last


@pytest.mark.parametrize("channels", [3, 8, 12, 16, 24])
def test_a_narrow_way_around_on_large_maps_gives_what_a_convolution_with_a_stride_gives(channels: int) -> None:
    torch.manual_seed(0)
    layer = Convolution(channels, 16, "group", None, size=1, stride=2)
    plain = torch.randn(4, channels, 64, 64).requires_grad_()
    fast = channels_last(plain.detach()).requires_grad_()
    given = layer(fast)
    expected = layer.norm(F.conv2d(plain, layer.convolution.weight, stride=2))
    torch.testing.assert_close(given, expected, rtol=1e-4, atol=1e-4)
    upstream = torch.randn_like(expected)
    given.backward(channels_last(upstream))  # with torch alone this ends the process below 16 channels
    expected.backward(upstream)
    torch.testing.assert_close(fast.grad, plain.grad, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("widths", [(8, 16), (4, 8), (16, 32)])
def test_a_narrow_block_learns_on_images_of_a_usual_size(widths: tuple[int, int]) -> None:
    block = Residual(*widths, "batch", "relu", stride=2)
    block(channels_last(torch.randn(8, widths[0], 64, 64))).sum().backward()
    assert all(one.grad is not None and one.grad.isfinite().all() for one in block.parameters())
