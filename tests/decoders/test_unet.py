"""The U-Net decoder: images of every size, its losses against plain loops, and what its skips bring."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from tests.conftest import CLASSES, SMALL, VOID, decoder, encoder, small_image_model, some_image
from tests.images import squares_files, write_files
from twofold.data.tokenizer import TextTokenizer
from twofold.decoders.unet import Config, UNetDecoder
from twofold.errors import TwofoldError
from twofold.recipe import Recipe
from twofold.recipe.build import build_model
from twofold.types import Classes, Hidden, HiddenSpec, Target

SIZES = [(1, 1), (1, 2), (1, 9), (7, 1), (2, 2), (5, 7), (17, 3), (16, 16)]
CHANNELS = (4, 6, 8)
LOSSES: dict[str, dict[str, Any]] = {
    "cross-entropy": {},
    "weighed": {"class_weights": (0.5, 1.0, 3.0)},
    "focal": {"cross_entropy": 0.0, "focal": 1.5},
    "focal-power": {"cross_entropy": 0.0, "focal": 1.0, "focal_power": 0.7, "class_weights": (2.0, 0.0, 1.0)},
    "dice": {"cross_entropy": 0.0, "dice": 2.0},
    "all": {"cross_entropy": 0.3, "focal": 0.6, "focal_power": 3.0, "dice": 0.9, "class_weights": (0.5, 1.0, 3.0)},
}


def built(stride: int = 2, seed: int = 0, **settings: Any) -> UNetDecoder:
    torch.manual_seed(seed)
    return Config(**settings).build(HiddenSpec(maps=CHANNELS, stride=stride), Classes(CLASSES))


def some_hidden(size: tuple[int, int], stride: int = 2, rows: int = 2, seed: int = 0) -> Hidden:
    """Random maps of images of this size."""
    draw = torch.Generator().manual_seed(seed)
    maps = []
    for number, channels in enumerate(CHANNELS):
        sides = [-(-side // (stride << number)) for side in size]
        maps.append(torch.randn(rows, channels, *sides, generator=draw, requires_grad=True))
    return Hidden(mask=torch.ones(rows, 1).bool(), maps=tuple(maps), size=size)


def some_target(size: tuple[int, int], rows: int = 2, seed: int = 0, counted: float = 0.7) -> Target:
    draw = torch.Generator().manual_seed(seed)
    classes = torch.randint(len(CLASSES), (rows, *size), generator=draw)
    return Target(classes, torch.rand((rows, *size), generator=draw) < counted)


def gradients(part: torch.nn.Module) -> list[Tensor]:
    return [value.grad for value in part.parameters() if value.grad is not None]


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("stride", [1, 2, 4])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_images_of_every_size_are_painted_and_learned_from(size: tuple[int, int], stride: int, rows: int) -> None:
    part = built(stride, focal=1.0, dice=1.0)
    hidden, target = some_hidden(size, stride, rows), some_target(size, rows, counted=1.0)
    assert part(hidden).logits.shape == (rows, len(CLASSES), *size)
    loss = part.loss(hidden, target)
    assert loss.count == part.count(target) == rows * size[0] * size[1]
    loss.sum.backward()  # type: ignore[no-untyped-call]
    computed = gradients(part)
    assert len(computed) == len(list(part.parameters()))
    assert loss.sum.isfinite()
    assert all(value.isfinite().all() for value in computed)
    painted = part.eval().predict(hidden)
    assert [one.pixels.shape for one in painted] == [size] * rows


@pytest.mark.parametrize("norm", ["batch", "group"])
@pytest.mark.parametrize("stem", [1, 2, 4])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_a_model_reads_and_paints_images_of_every_size(
    tokenizer: TextTokenizer, size: tuple[int, int], stem: int, norm: str
) -> None:
    model = small_image_model(tokenizer, encoder("convnet", stem=stem, norm=norm), decoder("unet", norm=norm))
    image, mask = some_image(*size), np.zeros(size, np.uint8)
    batch = model.train().batch([{"image": image, "mask": mask}])
    model.loss(batch).backward()  # type: ignore[no-untyped-call]
    assert model.losses(batch)["main"].count == mask.size
    assert all(value.isfinite().all() for value in gradients(model))
    prediction = model.predict([image])[0]
    assert prediction.output.pixels.shape == size
    assert prediction.output.names == CLASSES
    assert prediction.score < 0


def test_a_image_that_is_read_in_another_size_is_painted_in_its_own(tokenizer: TextTokenizer) -> None:
    model = small_image_model(tokenizer, encoder("convnet"), decoder("unet"), input={"size": [8, 6]})
    images = [some_image(*size) for size in [(1, 1), (31, 5), (8, 6)]]
    assert [one.output.pixels.shape for one in model.predict(images)] == [one.shape[:2] for one in images]


def by_hand(scores: NDArray[np.float64], target: Target, config: Config) -> float:
    """The published losses, pixel by pixel in double precision."""
    rows, classes, height, width = scores.shape
    weights = config.class_weights or (1.0,) * classes
    total = 0.0
    for row in range(rows):
        both, painted, right = ([0.0] * classes for _ in range(3))
        pixels = 0
        for y in range(height):
            for x in range(width):
                if not target.mask[row, y, x]:
                    continue
                pixels += 1
                powers = np.exp(scores[row, :, y, x] - scores[row, :, y, x].max())
                chances, gold = powers / powers.sum(), int(target.tokens[row, y, x])
                surprise = -np.log(chances[gold]) * weights[gold]
                total += config.cross_entropy * surprise
                total += config.focal * (1 - chances[gold]) ** config.focal_power * surprise
                both[gold] += chances[gold]
                right[gold] += 1
                for kind in range(classes):
                    painted[kind] += chances[kind]
        overlaps = [2 * both[one] / (painted[one] + right[one]) for one in range(classes) if right[one]]
        total += config.dice * pixels * (1 - sum(overlaps) / len(overlaps) if overlaps else 1.0)
    return total


@pytest.mark.parametrize("settings", LOSSES.values(), ids=LOSSES)
@pytest.mark.parametrize("counted", [1.0, 0.6, 0.05])
def test_the_losses_are_those_of_plain_loops_in_double_precision(settings: dict[str, Any], counted: float) -> None:
    part = built(**settings).eval()
    size, rows = (5, 7), 3
    hidden, target = some_hidden(size, rows=rows), some_target(size, rows, counted=counted)
    target.tokens[0][target.tokens[0] == 1] = 2  # a class that one image does not show
    loss = part.loss(hidden, target)
    scores = part(hidden).logits.detach().double().numpy()
    assert loss.count == int(target.mask.sum())
    assert loss.sum.item() == pytest.approx(by_hand(scores, target, part.config), rel=1e-5)
    loss.sum.backward()  # type: ignore[no-untyped-call]
    gradient = part.get_parameter("output.bias").grad
    assert gradient is not None
    for number in range(len(CLASSES)):
        step = np.zeros((len(CLASSES), 1, 1))
        step[number] = 1e-4
        up, down = (by_hand(scores + sign * step, target, part.config) for sign in (1, -1))
        assert gradient[number].item() == pytest.approx((up - down) / 2e-4, rel=1e-3, abs=1e-4)


@pytest.mark.parametrize("settings", LOSSES.values(), ids=LOSSES)
def test_what_stands_where_a_pixel_does_not_count_does_not_matter(settings: dict[str, Any]) -> None:
    part, hidden = built(**settings).eval(), some_hidden((5, 7))
    first, other = some_target((5, 7), seed=0), some_target((5, 7), seed=1)
    changed = Target(torch.where(first.mask, first.tokens, other.tokens), first.mask)
    assert not torch.equal(first.tokens, changed.tokens)
    assert part.loss(hidden, first).sum == part.loss(hidden, changed).sum


@pytest.mark.parametrize("settings", LOSSES.values(), ids=LOSSES)
def test_where_no_pixel_counts_nothing_is_learned_and_nothing_breaks(settings: dict[str, Any]) -> None:
    part, hidden = built(**settings), some_hidden((5, 7))
    loss = part.loss(hidden, some_target((5, 7), counted=0.0))
    loss.sum.backward()  # type: ignore[no-untyped-call]
    assert (loss.sum.item(), loss.count) == (0.0, 0)
    assert all(not value.any() for value in gradients(part))


def test_a_batch_in_which_no_pixel_counts_leaves_a_model_as_it_is(tokenizer: TextTokenizer) -> None:
    model = small_image_model(tokenizer, encoder("convnet"), decoder("unet", dice=1.0)).train()
    batch = model.batch([{"image": some_image(), "mask": np.full((10, 13), VOID, np.uint8)}])
    model.loss(batch).backward()  # type: ignore[no-untyped-call]
    losses = model.losses(batch)
    assert (losses["main"].sum.item(), losses["main"].count, model.loss(batch).item()) == (0.0, 0, 0.0)
    assert all(not value.any() for value in gradients(model))


@pytest.mark.parametrize("power", [0.0, 0.5, 2.0])
def test_a_focal_loss_stays_a_number_where_a_class_is_certain(power: float) -> None:
    part, target = built(focal=1.0, focal_power=power), some_target((4, 4), counted=1.0)
    target.tokens.zero_()
    with torch.no_grad():
        part.output.weight.zero_()
        part.get_parameter("output.bias").copy_(torch.tensor([200.0, 0.0, 0.0]))
    loss = part.loss(some_hidden((4, 4)), target)
    loss.sum.backward()  # type: ignore[no-untyped-call]
    assert loss.sum.item() == pytest.approx(0.0, abs=1e-6)
    assert all(value.isfinite().all() for value in gradients(part))


@pytest.mark.parametrize("finer", [0, 1])
@pytest.mark.parametrize("skips", [False, True])
def test_the_finer_maps_are_read_only_through_skips(skips: bool, finer: int) -> None:
    part, hidden = built(skips=skips).eval(), some_hidden((9, 6))
    maps = list(hidden.pyramid())
    maps[finer] = maps[finer] + 1.0
    changed = dataclasses.replace(hidden, maps=tuple(maps))
    assert torch.equal(part(hidden).logits, part(changed).logits) != skips
    part.loss(hidden, some_target((9, 6))).sum.backward()  # type: ignore[no-untyped-call]
    assert [one.grad is not None for one in hidden.pyramid()] == [skips, skips, True]


def test_widths_are_those_of_the_encoder_unless_given() -> None:
    def widths_of(part: UNetDecoder) -> list[int]:
        return [int(step.get_submodule("enlarge").out_channels) for step in part.steps]  # type: ignore[arg-type]

    assert widths_of(built(stride=1)) == [6, 4]
    assert widths_of(built(stride=4)) == [6, 4, 8, 8]
    assert widths_of(built(stride=2, widths=(9, 5, 3))) == [9, 5, 3]


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "widths": (
        {"widths": [8, 8]},
        "decoder.widths: give 3 widths, one for each doubling of the size up to the image, not 2",
    ),
    "class_weights": ({"class_weights": [1.0, 2.0]}, "decoder.class_weights: 2 for 3 classes"),
}


def recipe(output: dict[str, Any] | None = None, **settings: Any) -> dict[str, Any]:
    return {
        "data": {"train": "none"},
        "output": {"classes": list(CLASSES), **(output or {})},
        "encoder": {"kind": "convnet", **SMALL["convnet"]},
        "decoder": {"kind": "unet", **settings},
    }


@pytest.mark.parametrize(("settings", "line"), WRONG.values(), ids=WRONG)
def test_a_wrong_number_of_widths_or_weights_is_said_when_the_model_is_built(
    tokenizer: TextTokenizer, settings: dict[str, Any], line: str, tmp_path: Path
) -> None:
    images = write_files(tmp_path / "data", squares_files(1))
    with pytest.raises(TwofoldError, match=line):
        small_image_model(tokenizer, encoder("convnet"), decoder("unet", **settings))
    with pytest.raises(TwofoldError, match=line):
        build_model(Recipe.of({**recipe(**settings), "data": {"train": str(images)}}), tmp_path)


UNREADABLE: dict[str, tuple[dict[str, Any], str]] = {
    "widths of nothing": (recipe(widths=[8, 0, 8]), r"recipe.decoder: widths \[8, 0, 8\]: each must be at least 1"),
    "no loss": (recipe(cross_entropy=0.0), "recipe.decoder: weights .* one of the three losses above 0"),
    "a negative weight": (recipe(class_weights=[1.0, -1.0, 1.0]), "recipe.decoder: weights .* must be at least 0"),
    "no classes": (recipe({"classes": []}), "recipe.output: classes: name the classes of the masks: output.classes="),
    "a name twice": (recipe({"classes": ["a", "a"]}), "recipe.output: classes: a name stands twice"),
    "a class below 0": (recipe({"first_class": -1}), "recipe.output: classes: from 1 to 255 names"),
    "many columns": (recipe({"column": ["a", "b"]}), r"recipe.output.column: \['a', 'b'\] is not a text"),
}


@pytest.mark.parametrize(("content", "line"), UNREADABLE.values(), ids=UNREADABLE)
def test_what_makes_no_sense_is_said_when_the_recipe_is_read(content: dict[str, Any], line: str) -> None:
    with pytest.raises(TwofoldError, match=line):
        Recipe.of(content)
