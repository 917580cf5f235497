"""Masks are classes from 0 that follow their images; one that does not fit is refused or left out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.images import (
    CLASSES,
    bad_files,
    encoded,
    noise,
    segmenting,
    squares,
    squares_files,
    write_files,
)
from tests.inputs.image_rows import batch_of, judged, made, pixels_of
from twofold.data.named_files import FileError
from twofold.types import Classes


def test_classes_are_numbered_from_0_and_what_does_not_count_is_masked(tmp_path: Path) -> None:
    pixels, mask = squares(1)
    shifted = mask + 4
    shifted[0] = 9
    folder = write_files(tmp_path / "p", {"images/a.jpg": encoded(pixels, "jpeg"), "masks/a.png": encoded(shifted)})
    rows, model = made(tmp_path, segmenting(folder, output={"first_class": 4, "ignore": 9}))
    right = mask.copy()
    right[0] = 0
    for batch in (batch_of(rows, [0]), judged(model, folder)):
        target = batch.targets["main"]
        assert (target.tokens[0].numpy() == right).all()
        assert target.mask.sum() == 15 * 16 == model.counts(batch)["main"]
        assert not target.mask[0, 0].any()


BAD_MASKS: dict[str, tuple[bytes, str]] = {
    "size": (encoded(squares(1)[1][:-1]), "a mask of 15 × 16 for an image of 16 × 16"),
    "turned": (encoded(noise(16, 17, 1) % 3), "a mask of 16 × 17 for an image of 16 × 16"),
    "classes": (encoded(squares(1)[1] + 1), "holds 3, but classes go from 0 to 2"),
    "colors": (encoded(squares(1)[0]), "one class number for each pixel, not RGB"),
    **{name: (content, "") for name, content in bad_files().items()},
}


@pytest.mark.parametrize("name", BAD_MASKS)
def test_a_mask_that_does_not_fit_is_refused_or_left_out(tmp_path: Path, name: str) -> None:
    content, said = BAD_MASKS[name]
    folder = write_files(tmp_path / "p", {**squares_files(3), "masks/001.png": content})
    with pytest.raises(FileError, match=rf"masks/001\.png: .*{said}"):
        made(tmp_path, segmenting(folder))
    with pytest.warns(UserWarning, match=rf"left out: .*masks/001\.png: .*{said}|1 of 3 rows cannot be used") as caught:
        rows, _ = made(tmp_path, segmenting(folder, input={"broken": "skip"}))
    assert [str(one.message).split(": ")[0] for one in caught] == ["left out", str(folder)]
    assert rows.rows.tolist() == [0, 2]


def test_an_image_without_a_mask_is_refused_or_left_out(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "p", squares_files(3))
    (folder / "masks/002.png").unlink()
    (folder / "rows.tsv").write_text(
        "image\tmask\n" + "".join(f"images/{n:03}.png\tmasks/{n:03}.png\n" for n in (0, 1))
    )
    with (folder / "rows.tsv").open("a") as file:
        file.write("images/002.png\t\n")
    for where, place in ((folder, "images/002.png"), (folder / "rows.tsv", "rows.tsv:4")):
        with pytest.raises(FileError, match=f"{place}: no mask 'mask' for this image"):
            made(tmp_path, segmenting(where))
        with pytest.warns(UserWarning, match=f"{place}: no mask|1 of 3 rows"):
            rows, _ = made(tmp_path, segmenting(where, input={"broken": "skip"}))
        assert rows.rows.tolist() == [0, 1]


def test_unknown_classes_are_said_with_what_does_not_count(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "p", squares_files(1))
    with pytest.raises(FileError, match="holds 0, but classes go from 1 to 3 and 255 does not count"):
        made(tmp_path, segmenting(folder, output={"first_class": 1, "ignore": 255}))


def test_what_is_left_out_is_counted_and_named(tmp_path: Path) -> None:
    bad = {f"images/{n:03}.png": b"" for n in range(2, 28)}
    folder = write_files(tmp_path / "p", {**squares_files(29), **bad})
    recipe = segmenting(folder, input={"broken": "skip"})
    with pytest.warns(UserWarning, match="left out|cannot be used") as caught:
        rows, model = made(tmp_path, recipe)
    said = [str(one.message) for one in caught]
    assert "002.png" in said[0]
    assert said[0].endswith(" and 6 more")
    assert said[-1].startswith(f"{folder}: 26 of 29 rows cannot be used: images/002.png; images/003.png; ")
    assert rows.rows.tolist() == [0, 1, 28]
    with pytest.warns(UserWarning, match="cannot be used") as caught:  # from the cache
        made(tmp_path, recipe)
    assert [str(one.message) for one in caught] == said[-1:]
    assert model.outputs["main"].spec == Classes(tuple(CLASSES))


def test_names_that_are_no_unicode_are_found_again(tmp_path: Path) -> None:
    name = os.fsdecode(b"\xff\xe9.png")
    folder = write_files(tmp_path / "p", {f"{part}/{name}": encoded(noise(4, 4) % 3) for part in ("images", "masks")})
    rows, _ = made(tmp_path, segmenting(folder))
    assert pixels_of(batch_of(rows, [0])).shape == (1, 3, 4, 4)
