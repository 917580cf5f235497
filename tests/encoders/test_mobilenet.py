"""MobileNetV2 computes what torchvision's does with the same weights, in any width, frozen or not."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import Tensor

from tests.conftest import decoder, encoder, small_image_model, some_image, some_mask
from twofold.data.tokenizer import TextTokenizer
from twofold.encoders import EncoderConfig
from twofold.encoders.mobilenet import Config, MobileNetEncoder, rounded
from twofold.errors import TwofoldError
from twofold.inputs import INPUT
from twofold.inputs.image import Images
from twofold.model import Model
from twofold.training.config import TrainConfig
from twofold.training.freezing import Freezing
from twofold.types import Batch, Features, Hidden

ALL = frozenset({"states", "summary", "maps"})
SETTINGS = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""Table 2 of the paper: expansion t, channels c, repeats n, stride s."""
STRIDES = [stride if number == 0 else 1 for _, _, count, stride in SETTINGS for number in range(count)]
Weights = dict[str, Tensor]


def torchvision_weights(multiplier: float = 1.0, seed: int = 0) -> Weights:
    """Random weights under the names of torchvision's mobilenet_v2, classifier included."""
    draw = torch.Generator().manual_seed(seed)
    weights: Weights = {}

    def add(name: str, norm: str, out: int, inner: int, size: int) -> None:
        weights[f"{name}.weight"] = torch.randn(out, inner, size, size, generator=draw) / (inner * size**2) ** 0.5
        for what in ("weight", "bias", "running_mean"):
            weights[f"{norm}.{what}"] = torch.randn(out, generator=draw) / 2
        weights[f"{norm}.running_var"] = torch.rand(out, generator=draw) + 0.5
        weights[f"{norm}.num_batches_tracked"] = torch.tensor(7)

    channels, number = rounded(32 * multiplier), 1
    add("features.0.0", "features.0.1", channels, 3, 3)
    for expansion, width, count, _ in SETTINGS:
        for _ in range(count):
            block, wide, out, place = f"features.{number}.conv", channels * expansion, rounded(width * multiplier), 0
            if expansion > 1:
                add(f"{block}.0.0", f"{block}.0.1", wide, channels, 1)
                place = 1
            add(f"{block}.{place}.0", f"{block}.{place}.1", wide, 1, 3)
            add(f"{block}.{place + 1}", f"{block}.{place + 2}", out, wide, 1)
            channels, number = out, number + 1
    last = rounded(1280 * max(1.0, multiplier))
    add(f"features.{number}.0", f"features.{number}.1", last, channels, 1)
    weights["classifier.1.weight"], weights["classifier.1.bias"] = torch.zeros(1000, last), torch.zeros(1000)
    return weights


def convolved(weights: Weights, name: str, norm: str, maps: Tensor, stride: int = 1, relu: bool = True) -> Tensor:
    """A convolution and its norm, written out."""
    kernel = weights[f"{name}.weight"]
    maps = F.conv2d(maps, kernel, None, stride, kernel.shape[-1] // 2, 1, maps.shape[1] // kernel.shape[1])
    mean, scale = weights[f"{norm}.running_mean"], (weights[f"{norm}.running_var"] + 1e-5).rsqrt()
    maps = (maps - mean[:, None, None]) * (scale * weights[f"{norm}.weight"])[:, None, None]
    maps = maps + weights[f"{norm}.bias"][:, None, None]
    return maps.clamp(0, 6) if relu else maps


def written_out(weights: Weights, pixels: Tensor) -> list[Tensor]:
    """Outputs of torchvision's blocks, from the stem to the convolution on top."""
    outputs = [convolved(weights, "features.0.0", "features.0.1", pixels, 2)]
    for number, stride in enumerate(STRIDES, start=1):
        block, read, place = f"features.{number}.conv", outputs[-1], 0
        if number > 1:  # the first block does not expand
            read, place = convolved(weights, f"{block}.0.0", f"{block}.0.1", read), 1
        read = convolved(weights, f"{block}.{place}.0", f"{block}.{place}.1", read, stride)
        read = convolved(weights, f"{block}.{place + 1}", f"{block}.{place + 2}", read, relu=False)
        outputs.append(outputs[-1] + read if stride == 1 and read.shape == outputs[-1].shape else read)
    return [*outputs, convolved(weights, "features.18.0", "features.18.1", outputs[-1])]


def saved(weights: Weights, path: Path) -> str:
    if path.suffix == ".safetensors":
        save_file(weights, path)
    else:
        torch.save(weights, path)
    return str(path)


def filled(config: Config) -> MobileNetEncoder:
    part = config.build(Features(), ALL)
    config.fill(part)
    return part.eval()


def read(part: MobileNetEncoder, pixels: Tensor) -> Hidden:
    hidden = part(Batch({INPUT: Images(pixels)}))
    assert isinstance(hidden, Hidden)
    return hidden


def shown(seed: int = 0) -> dict[str, Any]:
    return {"image": some_image(33, 46, seed), "mask": some_mask(33, 46, seed), "captions": ["seven hundred and two"]}


def settings(**given: Any) -> EncoderConfig:
    return encoder("mobilenet", **{"width_multiplier": 1.0, "top": 1280, **given})


@pytest.mark.parametrize("file", ["weights.safetensors", "weights.pth"])
def test_maps_are_those_of_torchvisions_network_written_out(file: str, tmp_path: Path) -> None:
    weights, pixels = torchvision_weights(), torch.randn(2, 3, 65, 96)
    part = filled(Config(weights=saved(weights, tmp_path / file)))
    with torch.no_grad():
        hidden, outputs = read(part, pixels), written_out(weights, pixels)
    expected = [outputs[place] for place in (1, 3, 6, 13, 18)]
    assert [maps.shape[1] for maps in hidden.pyramid()] == [16, 24, 32, 96, 1280] == list(part_channels(part))
    for maps, other in zip(hidden.pyramid(), expected, strict=True):
        torch.testing.assert_close(maps, other, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(hidden.need("summary"), expected[-1].mean((2, 3)), atol=1e-4, rtol=1e-4)
    for finer, coarser in pairwise(hidden.pyramid()):
        assert tuple(coarser.shape[2:]) == tuple(-(-side // 2) for side in finer.shape[2:])


def part_channels(part: MobileNetEncoder) -> tuple[int, ...]:
    return Config(top=None if part.top is None else 1280).spec().channels()


def test_without_the_convolution_on_top_the_coarsest_map_is_that_of_the_last_block(tmp_path: Path) -> None:
    weights, pixels = torchvision_weights(), torch.randn(1, 3, 64, 64)
    config = Config(weights=saved(weights, tmp_path / "weights.safetensors"), top=None)
    with torch.no_grad():
        coarsest = read(filled(config), pixels).pyramid()[-1]
        torch.testing.assert_close(coarsest, written_out(weights, pixels)[17], atol=1e-4, rtol=1e-4)
    assert config.spec().summary == 320


@pytest.mark.parametrize("multiplier", [0.35, 0.5, 1.4])
def test_the_width_multiplier_gives_the_channels_of_torchvision(multiplier: float, tmp_path: Path) -> None:
    weights, pixels = torchvision_weights(multiplier), torch.randn(1, 3, 32, 32)
    part = filled(Config(weights=saved(weights, tmp_path / "weights.pth"), width_multiplier=multiplier))
    with torch.no_grad():
        hidden = read(part, pixels)
        torch.testing.assert_close(hidden.pyramid()[-1], written_out(weights, pixels)[18], atol=1e-4, rtol=1e-4)
    assert part.top is not None
    assert part.top.convolution.out_channels == {0.35: 1280, 0.5: 1280, 1.4: 1792}[multiplier]


@pytest.mark.parametrize("how", ["frozen", "train.freeze", "neither"])
def test_frozen_batch_norm_neither_learns_nor_counts(tokenizer: TextTokenizer, how: str, tmp_path: Path) -> None:
    weights = saved(torchvision_weights(0.1), tmp_path / "weights.safetensors")
    reads: Any = settings(weights=weights, width_multiplier=0.1, frozen=how == "frozen")
    model = small_image_model(tokenizer, reads, decoder("unet"), decoder("attention_rnn"))
    reads.fill(model.encoder)
    if how == "train.freeze":
        Freezing(model, TrainConfig(freeze="encoder")).at(0.0)
    model.train()
    before = {name: value.clone() for name, value in model.encoder.state_dict().items()}
    learning = [value for value in model.parameters() if value.requires_grad]
    model.loss(model.batch([shown(1), shown(2)])).backward()  # type: ignore[no-untyped-call]
    torch.optim.SGD(learning, 0.1).step()
    same = {name: torch.equal(value, before[name]) for name, value in model.encoder.state_dict().items()}
    if how == "neither":
        assert not any(kept for name, kept in same.items() if "running" in name)
        assert not same["stem.convolution.weight"]
    else:
        assert all(same.values())


def test_a_saved_model_does_not_need_the_file_again(tokenizer: TextTokenizer, tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    reads: Any = settings(weights=saved(torchvision_weights(0.1), path), width_multiplier=0.1)
    model = small_image_model(tokenizer, reads, decoder("unet")).eval()
    reads.fill(model.encoder)
    model.save_pretrained(tmp_path / "saved")
    path.unlink()
    batch = model.batch([shown()])
    loaded = Model.from_pretrained(tmp_path / "saved")
    assert torch.equal(loaded.encoder(batch).pyramid()[-1], model.encoder(batch).pyramid()[-1])


def test_weights_of_another_network_are_listed_by_name_and_shape(tmp_path: Path) -> None:
    weights = torchvision_weights()
    first = weights.pop("features.0.0.weight")
    weights["features.1.conv.1.weight"] = torch.zeros(8, 32, 1, 1)
    weights["layer4.1.conv2.weight"] = torch.zeros(5, 3)
    path = saved(weights, tmp_path / "weights.safetensors")
    config = Config(weights=path)
    with pytest.raises(TwofoldError) as refused:
        filled(config)
    assert str(refused.value) == (
        f"encoder.weights={path}: does not fit: features.0.0.weight (32, 3, 3, 3) is missing; "
        "features.1.conv.1.weight is (8, 32, 1, 1), not (16, 32, 1, 1); "
        "layer4.1.conv2.weight (5, 3) is not in this network; start_anyway=true leaves these out"
    )
    part = config.build(Features(), ALL)
    with pytest.warns(UserWarning, match=r"left out: features\.0\.0\.weight \(32, 3, 3, 3\) is missing"):
        config.fill(part, anyway=True)
    assert not torch.equal(part.stem.convolution.weight, first)
    assert torch.equal(part.state_dict()["stem.norm.weight"], weights["features.0.1.weight"])


def test_nothing_that_fits_is_refused_even_anyway(tmp_path: Path) -> None:
    resnet = {"conv1.weight": torch.zeros(64, 3, 7, 7), "fc.weight": torch.zeros(1000, 512)}
    config = Config(weights=saved(resnet, tmp_path / "weights.safetensors"))
    with pytest.raises(TwofoldError, match=r"conv1\.weight \(64, 3, 7, 7\) is not in this network"):
        config.fill(config.build(Features(), ALL), anyway=True)


def test_code_in_a_pickled_file_is_not_run(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Any, ...]:
            return (Path.touch, (tmp_path / "ran",))

    torch.save({"features.0.0.weight": Evil()}, tmp_path / "weights.pth")
    with pytest.raises(TwofoldError, match=r"weights\.pth: not readable as tensors alone .*; code in it is never run"):
        filled(Config(weights=str(tmp_path / "weights.pth")))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"weights": "weights.npz"}, r"weights weights\.npz: default-image, or a \.safetensors or \.pth file"),
        ({"weights": "default-reranker"}, "weights default-reranker: no weights of images; write default-image"),
        ({"width_multiplier": 0.0}, "width_multiplier 0.0: above 0, and at most 16"),
    ],
)
def test_settings_that_make_no_network_are_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(TwofoldError, match=said):
        settings(**given)


def test_the_named_weights_say_the_command_that_brings_them() -> None:
    with pytest.raises(TwofoldError, match="not on this machine; `twofold pull default-image` brings them"):
        filled(Config(weights="default-image"))


def test_learning_rates_can_decay_from_the_top_to_the_stem() -> None:
    part = Config(width_multiplier=0.1).build(Features(), ALL)
    levels = part.levels()
    assert len(levels) == 6
    assert levels[0][0] is part.stem.convolution.weight
    assert part.top is not None
    assert any(value is part.top.convolution.weight for value in levels[-1])
    assert sum(map(len, levels)) == len(list(part.parameters()))
