"""Masks are written as numbers under the names of their images, and stand in the way of no other file."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.conftest import input_of, output_of, some_mask
from twofold.errors import TwofoldError
from twofold.outputs.mask import MaskOutput
from twofold.results import Mask
from twofold.types import HiddenSpec


@pytest.fixture
def output() -> MaskOutput:
    built = output_of("mask").build("main", input_of("image").build(None), None, HiddenSpec())
    assert isinstance(built, MaskOutput)
    return built


def test_masks_are_written_as_numbers_under_the_names_of_their_images(output: MaskOutput, tmp_path: Path) -> None:
    masks = [Mask(some_mask(seed=seed) % 3, ("a", "b", "c"), first=seed) for seed in range(2)]
    paths = output.mask_paths(["x/one.jpg", Path("two.tar.webp")], tmp_path / "new")
    for path, mask in zip(paths, masks, strict=True):
        output.write_mask(mask, path)
    assert sorted(os.listdir(tmp_path / "new")) == ["one.png", "two.tar.png"]
    for first, (path, mask) in enumerate(zip(paths, masks, strict=True)):
        with Image.open(path) as written:
            assert (np.asarray(written) == mask.pixels + first).all()


def test_masks_that_cannot_be_written_are_one_line(output: MaskOutput, tmp_path: Path) -> None:
    for inputs, said in (
        (["x/a.png", "y/a.jpg"], "two images are called a"),
        ([tmp_path / "a.png"], "is one of the images"),
        ([tmp_path / "a.jpg", tmp_path / "b.png", tmp_path / "a.png"], "is one of the images"),
    ):
        with pytest.raises(TwofoldError, match=said):
            output.mask_paths(inputs, tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(TwofoldError, match="could not be written"):
        output.write_mask(Mask(some_mask() % 3, ("a", "b", "c")), tmp_path / "file" / "b.png")
