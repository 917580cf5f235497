"""Each row is read once an epoch in a batch of its size, as seed, epoch and row say; what cannot be used is not."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.images import (
    CLASSES,
    bad_files,
    captioning,
    encoded,
    noise,
    segmenting,
    squares,
    squares_files,
    write_files,
    write_shapes,
    write_zip,
)
from twofold.data.batches import Moment, plan_by_size
from twofold.data.image_fields import CaptionField, MaskField
from twofold.data.image_files import ImageError
from twofold.data.image_rows import ImageRows
from twofold.model import Model
from twofold.recipe import Recipe
from twofold.types import Batch


def made(folder: Path, recipe: dict[str, Any]) -> tuple[ImageRows, Model]:
    """The rows of a training, and its model."""
    settings: Any = Recipe.of(recipe)
    model = settings.model(folder / "tokenizers")
    cache = settings.cache(model)
    return settings.rows(cache, settings.split(cache, model).rows, model), model


def batch_of(rows: ImageRows, numbers: list[int], epoch: int = 0, rank: int = 0, world: int = 1) -> Batch:
    batch = rows.batch(np.array(numbers, np.int64), Moment(epoch, rank=rank, world=world))
    assert batch is not None
    return batch


@pytest.mark.parametrize("batch_rows", [1, 4, 7, 100])
def test_every_row_is_in_one_batch_an_epoch_and_a_batch_has_one_size(batch_rows: int) -> None:
    draw = np.random.default_rng(1)
    rows = np.flatnonzero(draw.random(90) < 0.7)
    sizes = draw.integers(1, 3, (len(rows), 2)).astype(np.int32)
    known = dict(zip(rows.tolist(), sizes.tolist(), strict=True))
    for epoch in range(3):
        plan = plan_by_size(sizes, rows, batch_rows, 5, epoch)
        batches = [plan.rows(number).tolist() for number in range(len(plan))]
        assert sorted(row for batch in batches for row in batch) == rows.tolist()
        assert all(0 < len(batch) <= batch_rows for batch in batches)
        assert all(len({tuple(known[row]) for row in batch}) == 1 for batch in batches)
        again = plan_by_size(sizes, rows, batch_rows, 5, epoch)
        assert [again.rows(number).tolist() for number in range(len(again))] == batches
        other = plan_by_size(sizes, rows, batch_rows, 5, epoch + 1)
        assert [other.rows(number).tolist() for number in range(len(other))] != batches


def test_images_of_one_size_are_mixed_anew_each_epoch() -> None:
    rows = np.arange(40)
    plans = [plan_by_size(np.ones((40, 2), np.int32), rows, 10, 1, epoch) for epoch in range(2)]
    first, second = ({frozenset(plan.rows(number).tolist()) for number in range(4)} for plan in plans)
    assert not first & second


@pytest.fixture
def mixed(tmp_path: Path) -> dict[str, Any]:
    """Images of two sizes, of which some cannot be used, seen in random views."""
    files = {**squares_files(10), **squares_files(6, 10, side=20), "images/aaa.png": b"x", "masks/aaa.png": b"x"}
    folder = write_files(tmp_path / "images", {**files, "images/012.png": b""})
    augment = {"flip": True, "scale": [0.7, 1.5], "color": 0.3}
    return segmenting(folder, data={"view": {"broken": "skip"}, "augment": augment})


@pytest.mark.filterwarnings("ignore:.*(left out|cannot be used)")
def test_a_training_sees_every_usable_image_once_an_epoch(tmp_path: Path, mixed: dict[str, Any]) -> None:
    rows, _ = made(tmp_path, mixed)
    assert len(rows.rows) == 15
    plan = rows.plan(0)
    numbers = [plan.rows(number).tolist() for number in range(len(plan))]
    assert sorted(row for some in numbers for row in some) == rows.rows.tolist()
    shapes = [batch_of(rows, some).image().shape for some in numbers]
    assert {shape[2:] for shape in shapes} == {(16, 16), (20, 20)}
    assert sum(shape[0] for shape in shapes) == 15


@pytest.mark.filterwarnings("ignore:.*(left out|cannot be used)")
def test_a_view_depends_on_seed_epoch_and_row_alone(tmp_path: Path, mixed: dict[str, Any]) -> None:
    rows, _ = made(tmp_path, mixed)
    numbers = rows.rows[:8].tolist()
    whole = batch_of(rows, numbers, epoch=3)
    for place, number in enumerate(numbers):
        alone = batch_of(rows, [number], epoch=3)
        assert torch.equal(alone.image()[0], whole.image()[place])
        assert torch.equal(alone.targets["main"].tokens[0], whole.targets["main"].tokens[place])
        assert torch.equal(alone.targets["main"].mask[0], whole.targets["main"].mask[place])
        other = batch_of(rows, [number], epoch=4)
        assert not torch.equal(other.image(), alone.image())
    shares = [batch_of(rows, numbers, 3, rank, 3) for rank in range(3)]
    for rank, share in enumerate(shares):
        assert torch.equal(share.image(), whole.image()[rank::3])
    assert rows.batch(np.array(numbers[:2]), Moment(rank=2, world=3)) is None
    reseeded, _ = made(tmp_path, {**mixed, "train": {**mixed["train"], "seed": 2}})
    assert not torch.equal(batch_of(reseeded, numbers, 3).image(), whole.image())


def test_classes_are_numbered_from_0_and_what_does_not_count_is_masked(tmp_path: Path) -> None:
    pixels, mask = squares(1)
    shifted = mask + 4
    shifted[0] = 9
    folder = write_files(tmp_path / "p", {"images/a.jpg": encoded(pixels, "jpeg"), "masks/a.png": encoded(shifted)})
    rows, model = made(tmp_path, segmenting(folder, data={"first_class": 4, "ignore": 9}))
    right = mask.copy()
    right[0] = 0
    for batch in (batch_of(rows, [0]), model.batch_of(list(model.read(str(folder))))):
        target = batch.targets["main"]
        assert (target.tokens[0].numpy() == right).all()
        assert target.mask.sum() == 15 * 16 == model.counts(batch)["main"]
        assert not target.mask[0, 0].any()


def test_both_ways_of_reading_see_the_same(tmp_path: Path) -> None:
    write_zip(tmp_path / "p.zip", {f"in/{name}": content for name, content in squares_files(5).items()})
    for fit in ("stretch", "crop"):
        recipe = segmenting(tmp_path / "p.zip/in", data={"view": {"size": [12, 10], "fit": fit}})
        rows, model = made(tmp_path, recipe)
        learned, judged = batch_of(rows, list(range(5))), model.batch_of(list(model.read(str(tmp_path / "p.zip/in"))))
        assert learned.image().shape == (5, 3, 12, 10)
        assert torch.equal(learned.image(), judged.image())
        assert torch.equal(learned.targets["main"].tokens, judged.targets["main"].tokens)


def captions(rows: ImageRows) -> CaptionField:
    field = rows.targets["main"]
    assert isinstance(field, CaptionField)
    return field


def texts(rows: ImageRows, batch: Batch) -> list[str]:
    target = batch.targets["main"]
    return [
        captions(rows).decode(ids[mask][1:-1].tolist()) for ids, mask in zip(target.tokens, target.mask, strict=True)
    ]


def test_a_image_is_read_once_for_all_its_captions(tmp_path: Path) -> None:
    table = write_shapes(tmp_path / "p", 6)
    (tmp_path / "p/rows.jsonl").write_text('{"image": "001.png", "caption": ["a dog", "two dogs"], "other": "x y"}\n')
    rows, _ = made(tmp_path, captioning(table))
    batch = batch_of(rows, [3, 1, 4])
    owners = batch.targets["main"].rows
    assert owners is not None
    assert owners.tolist() == [0, 0, 1, 1, 2, 2]
    assert texts(rows, batch)[::2] == texts(rows, batch)[1::2] == ["a white square", "a green square", "a red cross"]
    assert batch.tokens.shape == (3, 0)
    several, _ = made(tmp_path / "b", captioning(tmp_path / "p/rows.jsonl"))
    assert texts(several, batch_of(several, [0])) == ["a dog", "two dogs", "x y"]


def test_prefixes_are_as_long_as_evenly_drawn_and_the_rest_is_written(tmp_path: Path) -> None:
    table = write_shapes(tmp_path / "p", 2)
    settings = {"target": ["caption"], "prefix": 1.0}
    rows, _ = made(tmp_path, captioning(table, "vit", "transformer", encoder={"prefix": True}, data=settings))
    (whole,) = captions(rows).split(rows.cache.columns["main"].row(0))
    lengths = []
    for epoch in range(300):
        batch = batch_of(rows, [0, 1], epoch)
        target = batch.targets["main"]
        prefix, rest = batch.tokens[0][batch.mask[0]], target.tokens[0][target.mask[0]][1:-1]
        assert [*prefix.tolist(), *rest.tolist()] == whole.tolist()
        lengths.append(len(prefix))
    counts = np.bincount(lengths, minlength=len(whole))
    assert len(counts) == len(whole) > 2
    assert np.abs(counts - 300 / len(whole)).max() < 4 * (300 / len(whole)) ** 0.5


@pytest.mark.parametrize("share", [0.0, 0.4])
def test_only_so_often_is_a_prefix_read_and_otherwise_all_captions_are_written(tmp_path: Path, share: float) -> None:
    recipe = captioning(
        write_shapes(tmp_path / "p", 1), "vit", "transformer", encoder={"prefix": True}, data={"prefix": share}
    )
    rows, _ = made(tmp_path, recipe)
    written = [len(batch_of(rows, [0], epoch).targets["main"].tokens) for epoch in range(200)]
    assert set(written) == ({1, 2} if share else {2})
    assert 200 * share - 30 <= written.count(1) <= 200 * share + 30
    if not share:
        assert batch_of(rows, [0]).tokens.shape == (1, 0)


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
    with pytest.raises(ImageError, match=rf"masks/001\.png: .*{said}"):
        made(tmp_path, segmenting(folder))
    with pytest.warns(UserWarning, match=rf"left out: .*masks/001\.png: .*{said}|1 of 3 rows cannot be used") as caught:
        rows, _ = made(tmp_path, segmenting(folder, data={"view": {"broken": "skip"}}))
    assert [str(one.message).split(": ")[0] for one in caught] == ["left out", str(folder)]
    assert rows.rows.tolist() == [0, 2]


def test_a_image_without_a_mask_is_refused_or_left_out(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "p", squares_files(3))
    (folder / "masks/002.png").unlink()
    (folder / "rows.tsv").write_text(
        "image\tmask\n" + "".join(f"images/{n:03}.png\tmasks/{n:03}.png\n" for n in (0, 1))
    )
    with (folder / "rows.tsv").open("a") as file:
        file.write("images/002.png\t\n")
    for where, place in ((folder, "images/002.png"), (folder / "rows.tsv", "rows.tsv:4")):
        with pytest.raises(ImageError, match=f"{place}: no mask 'mask' for this image"):
            made(tmp_path, segmenting(where))
        with pytest.warns(UserWarning, match=f"{place}: no mask|1 of 3 rows"):
            rows, _ = made(tmp_path, segmenting(where, data={"view": {"broken": "skip"}}))
        assert rows.rows.tolist() == [0, 1]


def test_unknown_classes_are_said_with_what_does_not_count(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "p", squares_files(1))
    with pytest.raises(ImageError, match="holds 0, but classes go from 1 to 3 and 255 does not count"):
        made(tmp_path, segmenting(folder, data={"first_class": 1, "ignore": 255}))


def test_what_is_left_out_is_counted_and_named(tmp_path: Path) -> None:
    bad = {f"images/{n:03}.png": b"" for n in range(2, 28)}
    folder = write_files(tmp_path / "p", {**squares_files(29), **bad})
    recipe = segmenting(folder, data={"view": {"broken": "skip"}})
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
    field = model.targets["main"]
    assert isinstance(field, MaskField)
    assert field.classes.names == tuple(CLASSES)


def test_a_image_that_vanishes_after_the_first_look_is_named(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "p", squares_files(3))
    rows, _ = made(tmp_path, segmenting(folder))
    (folder / "images/001.png").unlink()
    with pytest.raises(ImageError, match=r"images/001\.png: cannot be read"):
        batch_of(rows, [0, 1, 2])


def test_names_that_are_no_unicode_are_found_again(tmp_path: Path) -> None:
    name = os.fsdecode(b"\xff\xe9.png")
    folder = write_files(tmp_path / "p", {f"{part}/{name}": encoded(noise(4, 4) % 3) for part in ("images", "masks")})
    rows, _ = made(tmp_path, segmenting(folder))
    assert batch_of(rows, [0]).image().shape == (1, 3, 4, 4)
