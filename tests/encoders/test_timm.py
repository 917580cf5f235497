"""Networks of timm read images like our own, from weights in a file, frozen or not."""

from __future__ import annotations

import builtins
import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from tests.conftest import decoder, encoder, small_image_model, some_image, some_mask
from twofold.data.tokenizer import TextTokenizer
from twofold.encoders import EncoderConfig
from twofold.errors import TwofoldError
from twofold.inputs.image import Images
from twofold.model import Model

needs_timm = pytest.mark.skipif(importlib.util.find_spec("timm") is None, reason="timm is not installed")
NETWORKS = ["test_efficientnet", "test_convnext"]
"""One rounds odd sizes up as it halves them, the other down."""


def shown(height: int, width: int) -> dict[str, Any]:
    return {
        "image": some_image(height, width),
        "mask": some_mask(height, width),
        "captions": ["seven hundred and two"],
    }


def settled(**settings: Any) -> EncoderConfig:
    return encoder("timm", **settings).settled()


@needs_timm
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("size", [(64, 96), (65, 99)])
def test_a_network_gives_the_maps_that_its_spec_tells(
    tokenizer: TextTokenizer, name: str, size: tuple[int, int]
) -> None:
    reads: Any = settled(name=name)
    model = small_image_model(tokenizer, reads, decoder("unet"), decoder("attention_rnn"))
    hidden = model.encoder(model.batch([shown(*size)]))
    assert tuple(one.shape[1] for one in hidden.pyramid()) == reads.spec().maps
    assert hidden.pyramid()[0].shape[2] == size[0] // reads.stride + (size[0] % reads.stride > 0) * (
        name == NETWORKS[0]
    )
    assert hidden.need("states").shape[2] == reads.spec().states
    assert model.predict([some_image(*size)], decoder="main")[0].output.pixels.shape == size
    assert model.eval().loss(model.batch([shown(*size)])).isfinite()


@needs_timm
@pytest.mark.parametrize("frozen", [False, True])
def test_only_a_network_that_is_not_frozen_learns(tokenizer: TextTokenizer, frozen: bool) -> None:
    model = small_image_model(tokenizer, settled(name=NETWORKS[0], frozen=frozen), decoder("unet")).train()
    before = {name: one.clone() for name, one in model.encoder.state_dict().items()}
    batch = model.batch([shown(64, 64), shown(64, 64)])
    optimizer = torch.optim.SGD([one for one in model.parameters() if one.requires_grad], 0.1)
    model.loss(batch).backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    same = [torch.equal(one, before[name]) for name, one in model.encoder.state_dict().items()]
    assert all(same) if frozen else not any(same)


@needs_timm
@pytest.mark.parametrize("name", NETWORKS)
def test_weights_come_from_a_file_and_are_saved_with_the_model(
    tokenizer: TextTokenizer, tmp_path: Path, name: str
) -> None:
    import timm  # type: ignore[import-not-found,unused-ignore]

    torch.manual_seed(5)
    network: Any = timm.create_model(name, pretrained=False)
    save_file(network.state_dict(), tmp_path / "weights.safetensors")
    reads: Any = settled(name=name, weights=str(tmp_path / "weights.safetensors"))
    model = small_image_model(tokenizer, reads, decoder("unet")).eval()
    reads.fill(model.encoder)
    batch = model.batch([shown(64, 64)])
    expected = network.eval().forward_intermediates(batch.read(Images).pixels, intermediates_only=True)
    for first, other in zip(model.encoder(batch).pyramid(), expected, strict=True):
        torch.testing.assert_close(first, other)
    model.save_pretrained(tmp_path / "saved")
    (tmp_path / "weights.safetensors").unlink()
    loaded = Model.from_pretrained(tmp_path / "saved")
    assert torch.equal(loaded.encoder(batch).pyramid()[-1], model.encoder(batch).pyramid()[-1])


@needs_timm
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"name": "no_such_net"}, "encoder.name=no_such_net: timm has no such network"),
        ({"name": "test_vit"}, "encoder.name=test_vit: its feature maps do not halve from stage to stage"),
    ],
)
def test_a_network_that_will_not_do_is_named(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(TwofoldError, match=said):
        settled(**settings)


@needs_timm
def test_a_file_without_the_weights_is_named(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    reads: Any = settled(name=NETWORKS[0], weights=str(tmp_path / "none.safetensors"))
    model = small_image_model(tokenizer, reads, decoder("unet"))
    with pytest.raises(TwofoldError, match=r"none\.safetensors: no such file"):
        reads.fill(model.encoder)
    save_file({"other.weight": torch.zeros(3)}, tmp_path / "none.safetensors")
    for anyway in (False, True):  # nothing at all is not to be started from
        with pytest.raises(TwofoldError, match=r"none\.safetensors: does not fit: conv_stem\.weight is missing"):
            reads.fill(model.encoder, anyway)
    stem = torch.ones_like(model.encoder.get_submodule("network").state_dict()["conv_stem.weight"])
    save_file({"conv_stem.weight": stem}, tmp_path / "none.safetensors")
    with pytest.warns(UserWarning, match=r"left out: bn1\.weight is missing"):
        reads.fill(model.encoder, anyway=True)
    assert torch.equal(model.encoder.get_submodule("network").state_dict()["conv_stem.weight"], stem)


def test_without_the_package_the_line_that_installs_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    imported = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name == "timm":
            raise ImportError(name)
        return imported(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(TwofoldError, match=r"encoder.kind=timm needs `pip install 'twofold\[timm\]'`"):
        settled(name="resnet18")


def test_weights_that_are_no_safetensors_are_refused() -> None:
    with pytest.raises(TwofoldError, match=r"weights weights.pth: a \.safetensors file, or hub"):
        encoder("timm", weights="weights.pth")
