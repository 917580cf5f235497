"""Residual connections can be left out: a plain stack computes what it says and takes up the same weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from tests.conftest import decoder, encoder
from twofold.config import structure
from twofold.encoders import EncoderConfig
from twofold.encoders.text_convnet import Convolution as TextConvolution
from twofold.errors import TwofoldError
from twofold.inputs import INPUT
from twofold.inputs.audio import Spectrogram
from twofold.inputs.image import Images
from twofold.inputs.text import Tokens
from twofold.layers.convolutions import Residual
from twofold.layers.transformer import BlockSettings, DecoderBlock, EncoderBlock
from twofold.types import Batch, Features, HiddenSpec, InputBatch, InputSpec, Vocabulary

VOCABULARY = Vocabulary(size=15, limit=9, pad=0, unknown=1, start=2, end=3)
SPEC = HiddenSpec(states=10, summary=10)
MASK = torch.arange(6) < torch.tensor([6, 3])[:, None]


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def inputs(kind: str) -> tuple[InputSpec, InputBatch]:
    """Input of each encoder."""
    if kind in ("convnet", "vit"):
        return Features(), Images(torch.randn(2, 3, 16, 16))
    if kind == "spectrogram":
        return Features(width=8, limit=6), Spectrogram(torch.randn(2, 6, 8), MASK)
    return VOCABULARY, Tokens(torch.randint(4, 15, (2, 6)), MASK)


@pytest.mark.parametrize("norm_place", ["pre", "post"])
def test_a_plain_encoder_block_is_its_layers_one_after_the_other(norm_place: Any) -> None:
    block = EncoderBlock(BlockSettings(width=8, heads=2, norm_place=norm_place, residual=False)).eval()
    states = torch.randn(2, 6, 8)

    def normed(around: Any, layer: Any, values: Tensor) -> Tensor:
        result: Tensor = layer(around.norm(values)) if norm_place == "pre" else around.norm(layer(values))
        return result

    read = normed(block.around_attention, lambda values: block.attention(values, MASK, False, None), states)
    expected = normed(block.around_feed_forward, block.feed_forward, read)
    assert torch.equal(block(states, MASK, False, None), expected)


def test_a_plain_decoder_block_is_its_layers_one_after_the_other() -> None:
    block = DecoderBlock(BlockSettings(width=8, heads=2, residual=False), 10).eval()
    states, memory = torch.randn(2, 6, 8), block.cross.remember(torch.randn(2, 4, 10))
    source = torch.ones(2, 4, dtype=torch.bool)
    read = block.attention(block.around_attention.norm(states), None, True, None)
    read = block.cross(block.around_cross.norm(read), memory, source)
    expected = block.feed_forward(block.around_feed_forward.norm(read))
    assert torch.equal(block(states, MASK, memory, source, None), expected)


@pytest.mark.parametrize("stride", [1, 2])
def test_a_plain_block_of_convolutions_is_its_two_convolutions(stride: int) -> None:
    block = Residual(8, 8, "batch", "relu", stride, residual=False).eval()
    maps = torch.randn(2, 8, 12, 12)
    assert torch.equal(block(maps), block.second(block.first(maps)).relu())


def test_a_plain_convolution_over_tokens_adds_nothing_to_what_its_layers_give() -> None:
    layer, values = TextConvolution(2, 5, residual=False), torch.randn(4, 5)
    windows = torch.tensor([[0, 1], [1, 2], [2, 3], [3, 4]])  # the number 4 stands for nothing
    expected = values
    for linear in (layer.first, layer.second):
        following = torch.cat([expected[1:], torch.zeros(1, 5)])
        expected = linear(torch.cat([expected, following], 1)).relu()
    torch.testing.assert_close(layer(values, windows), expected)


@pytest.mark.parametrize("kind", ["transformer", "vit", "spectrogram", "convnet", "text_convnet"])
def test_an_encoder_takes_up_the_same_weights_with_and_without_residual_connections(kind: str) -> None:
    spec, given = inputs(kind)
    needs = frozenset({"states", "summary"})
    default, residual, plain = (
        encoder(kind, **settings).build(spec, needs).eval()
        for settings in ({}, {"residual": True}, {"residual": False})
    )
    for part in (residual, plain):
        part.load_state_dict(default.state_dict())  # strict: the same names and shapes
    batch = Batch({INPUT: given})
    first, same, other = (part(batch).need("states") for part in (default, residual, plain))
    assert torch.equal(first, same)
    assert not torch.allclose(first, other, atol=1e-3)


def test_a_decoder_takes_up_the_same_weights_with_and_without_residual_connections() -> None:
    residual, plain = (
        decoder("transformer", residual=wanted).build(SPEC, VOCABULARY).state_dict() for wanted in (True, False)
    )
    assert {name: value.shape for name, value in residual.items()} == {name: v.shape for name, v in plain.items()}


def test_weights_that_were_trained_with_residual_connections_keep_them() -> None:
    with pytest.raises(TwofoldError, match="were trained with residual connections; leave residual out"):
        structure({"kind": "text_convnet", "weights": "default-multilingual", "residual": False}, EncoderConfig)
