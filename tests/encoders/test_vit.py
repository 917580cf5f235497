"""The vision Transformer: its patches, where they stand, and the text that is read with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from tests.conftest import encoder
from tests.images import captioning, write_shapes
from twofold.encoders.vit import Config, VisionTransformer
from twofold.errors import TwofoldError
from twofold.inputs import INPUT
from twofold.inputs.image import Images
from twofold.inputs.text import Tokens
from twofold.outputs.captions import PREFIX
from twofold.recipe import Recipe, train
from twofold.types import Batch, Vocabulary

VOCABULARY = Vocabulary(size=20, limit=20, pad=0, unknown=1, start=2, end=3)
POSITIONS = ["sinusoidal", "learned"]


def built(**settings: Any) -> VisionTransformer:
    torch.manual_seed(0)
    small: dict[str, Any] = {"width": 16, "layers": 2, "heads": 2, "patch": 4, "dropout": 0.0}
    return Config(**{**small, **settings}).build(VOCABULARY, frozenset({"states", "summary"})).eval()


def batch_of(pixels: Tensor, tokens: list[int] | None = None, mask: Tensor | None = None) -> Batch:
    """Images, each with the same beginning of a text."""
    batch = Batch({INPUT: Images(pixels)})
    if tokens is None:
        return batch
    text = torch.tensor([tokens] * len(pixels)).long()
    return batch.with_input(PREFIX, Tokens(text, torch.ones_like(text).bool() if mask is None else mask))


def images(height: int, width: int, rows: int = 2) -> Tensor:
    return torch.randn(rows, 3, height, width, generator=torch.Generator().manual_seed(0))


def patchwork(height: int, width: int, patch: int = 4) -> Tensor:
    """An image whose patches each have one color."""
    return images(height, width, 1).repeat_interleave(patch, 2).repeat_interleave(patch, 3)


@pytest.mark.parametrize("stem", ["linear", "convolutions"])
@pytest.mark.parametrize("patch", [1, 2, 4, 8])
@pytest.mark.parametrize("size", [(8, 8), (16, 24), (8, 40)], ids=str)
def test_there_is_a_position_for_each_patch(size: tuple[int, int], patch: int, stem: str) -> None:
    hidden = built(patch=patch, stem=stem)(batch_of(images(*size)))
    assert hidden.grid == (size[0] // patch, size[1] // patch)
    assert hidden.need("states").shape == (2, size[0] * size[1] // patch**2, 16)
    assert hidden.mask.shape == hidden.need("states").shape[:2]


@pytest.mark.parametrize(
    ("size", "read"),
    [((11, 13), (12, 12)), ((9, 9), (8, 8)), ((1, 1), (4, 4)), ((1, 30), (4, 32)), ((19, 4), (20, 4))],
    ids=str,
)
def test_a_size_that_patches_do_not_divide_is_brought_to_the_nearest_that_they_do(
    size: tuple[int, int], read: tuple[int, int]
) -> None:
    part, pixels = built(), images(*size)
    hidden = part(batch_of(pixels))
    resized = part(batch_of(F.interpolate(pixels, read, mode="bilinear", antialias=True)))
    assert hidden.size == size
    assert hidden.grid == resized.grid == (read[0] // 4, read[1] // 4)
    assert torch.equal(hidden.need("states"), resized.need("states"))


def test_with_learned_positions_an_image_of_more_patches_than_there_are_places_is_made_smaller() -> None:
    part, pixels = built(positions="learned", grid=3), images(20, 8)
    hidden = part(batch_of(pixels))
    assert hidden.grid == (3, 2)
    resized = part(batch_of(F.interpolate(pixels, (12, 8), mode="bilinear", antialias=True)))
    assert torch.equal(hidden.need("states"), resized.need("states"))


@pytest.mark.parametrize("stem", ["linear", "convolutions"])
def test_patches_stand_in_the_order_of_rows_then_columns(stem: str) -> None:
    part, pixels = built(positions="none", stem=stem), images(16, 24, 1)
    states = part.stem(pixels).flatten(2)
    near = 0 if stem == "linear" else 1  # convolutions look a little over the edge
    for place in (0, 8, 23):
        row, column = divmod(place, 6)
        changed = pixels.clone()
        changed[..., row * 4 : row * 4 + 4, column * 4 : column * 4 + 4] += 1.0
        moved = (part.stem(changed).flatten(2) - states).abs().sum((0, 1)).nonzero().flatten().tolist()
        assert place in moved
        assert all(abs(one // 6 - row) <= near and abs(one % 6 - column) <= near for one in moved)


@pytest.mark.parametrize("positions", POSITIONS)
def test_positions_tell_an_image_from_its_transpose(positions: str) -> None:
    image = patchwork(3, 3)
    turned = image.transpose(2, 3)
    blind, seeing = built(positions="none"), built(positions=positions)
    first, other = (blind(batch_of(pixels)).need("summary") for pixels in (image, turned))
    torch.testing.assert_close(first, other, atol=1e-5, rtol=1e-5)
    first, other = (seeing(batch_of(pixels)).need("summary") for pixels in (image, turned))
    assert (first - other).abs().max() > 1e-3


@pytest.mark.parametrize("positions", POSITIONS)
def test_every_place_of_an_empty_image_is_told_from_every_other(positions: str) -> None:
    states = built(positions=positions)(batch_of(torch.zeros(1, 3, 12, 20))).need("states")[0]
    distances = torch.cdist(states, states) + torch.eye(15) * 1e3
    assert distances.min() > 1e-2


PREFIXED: list[dict[str, Any]] = [
    {},
    {"positions": "learned"},
    {"stem": "convolutions", "norm": "batch"},
    {"norm_place": "post"},
]


@pytest.mark.parametrize("settings", PREFIXED, ids=str)
def test_patches_see_the_text_and_the_text_sees_the_patches(settings: dict[str, Any]) -> None:
    part, pixels = built(prefix=True, **settings), images(8, 12)
    batch = batch_of(pixels, [5, 6, 7])
    states = part(batch).need("states")
    assert states.shape == (2, 6 + 3, 16)

    def moved(other: Batch) -> Tensor:
        """(positions,): how much each differs."""
        return (part(other).need("states") - states).abs().amax((0, 2))

    last_word = batch_of(pixels, [5, 6, 8])
    assert (moved(last_word) > 1e-4).all()  # also the words before it: nothing looks only backwards
    last_pixel = pixels.clone()
    last_pixel[..., -1, -1] += 3.0
    assert (moved(batch_of(last_pixel, [5, 6, 7])) > 1e-4).all()


def test_words_in_another_order_are_another_text() -> None:
    part, pixels = built(prefix=True), images(8, 8)
    first, other = (part(batch_of(pixels, words)).need("summary") for words in ([5, 6], [6, 5]))
    assert (first - other).abs().max() > 1e-4


def test_a_text_is_told_from_an_image() -> None:
    part = built(prefix=True)
    grown = {name for name, _ in part.named_parameters()} - {name for name, _ in built().named_parameters()}
    assert grown == {"embedding.weight", "kind"}


def test_without_a_prefix_tokens_are_not_read() -> None:
    part, pixels = built(), images(8, 8)
    assert part(batch_of(pixels)).need("states").equal(part(batch_of(pixels, [5, 6])).need("states"))


def test_a_row_without_text_is_read_as_in_a_batch_without_any() -> None:
    part, pixels = built(prefix=True), images(8, 8)
    half = batch_of(pixels, [5, 6], torch.tensor([[True, True], [False, False]]))
    hidden, bare = part(half), part(batch_of(pixels))
    torch.testing.assert_close(hidden.need("states")[1, :4], bare.need("states")[1], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(hidden.need("summary")[1], bare.need("summary")[1], atol=1e-5, rtol=1e-5)


IMPOSSIBLE: list[tuple[dict[str, Any], str]] = [
    ({"positions": "rotary"}, "positions: rotary encodes one number, and a patch has a row and a column"),
    ({"width": 18}, "a width of a multiple of 4: 18"),
    ({"patch": 6, "stem": "convolutions"}, r"patch must be 1, 2, 4, 8, \.\.\., not 6"),
]


@pytest.mark.parametrize(("settings", "line"), IMPOSSIBLE)
def test_settings_that_cannot_be_are_refused(settings: dict[str, Any], line: str) -> None:
    with pytest.raises(TwofoldError, match=line):
        encoder("vit", **settings)


@pytest.mark.parametrize(("settings", "refused"), [({}, False), ({"stem": "convolutions"}, True)])
def test_a_stem_of_convolutions_does_not_go_with_accumulated_gradients(
    tmp_path: Path, settings: dict[str, Any], refused: bool
) -> None:
    rows = write_shapes(tmp_path / "images", 8)
    recipe = Recipe.of(captioning(rows, "vit", "transformer", encoder=settings, train={"accumulate": 2}))
    if not refused:
        assert train(recipe, tmp_path / "run").steps == 3
        return
    with pytest.raises(TwofoldError, match=r"does not go with train\.accumulate: .* of a `vit` stem_norm: group"):
        train(recipe, tmp_path / "run")
