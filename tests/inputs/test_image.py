"""Each row is read once an epoch in a batch of its size, as seed, epoch and row say; what cannot be used is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.images import (
    segmenting,
    squares_files,
    write_files,
    write_zip,
)
from tests.inputs.image_rows import batch_of, judged, made, pixels_of
from twofold.data.batches import Moment, plan_by_size
from twofold.data.named_files import FileError


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
    return segmenting(folder, input={"broken": "skip", "augment": augment})


@pytest.mark.filterwarnings("ignore:.*(left out|cannot be used)")
def test_a_training_sees_every_usable_image_once_an_epoch(tmp_path: Path, mixed: dict[str, Any]) -> None:
    rows, _ = made(tmp_path, mixed)
    assert len(rows.rows) == 15
    plan = rows.plan(0)
    numbers = [plan.rows(number).tolist() for number in range(len(plan))]
    assert sorted(row for some in numbers for row in some) == rows.rows.tolist()
    shapes = [pixels_of(batch_of(rows, some)).shape for some in numbers]
    assert {shape[2:] for shape in shapes} == {(16, 16), (20, 20)}
    assert sum(shape[0] for shape in shapes) == 15


@pytest.mark.filterwarnings("ignore:.*(left out|cannot be used)")
def test_a_view_depends_on_seed_epoch_and_row_alone(tmp_path: Path, mixed: dict[str, Any]) -> None:
    rows, _ = made(tmp_path, mixed)
    numbers = rows.rows[:8].tolist()
    whole = batch_of(rows, numbers, epoch=3)
    for place, number in enumerate(numbers):
        alone = batch_of(rows, [number], epoch=3)
        assert torch.equal(pixels_of(alone)[0], pixels_of(whole)[place])
        assert torch.equal(alone.targets["main"].tokens[0], whole.targets["main"].tokens[place])
        assert torch.equal(alone.targets["main"].mask[0], whole.targets["main"].mask[place])
        other = batch_of(rows, [number], epoch=4)
        assert not torch.equal(pixels_of(other), pixels_of(alone))
    shares = [batch_of(rows, numbers, 3, rank, 3) for rank in range(3)]
    for rank, share in enumerate(shares):
        assert torch.equal(pixels_of(share), pixels_of(whole)[rank::3])
    assert rows.batch(np.array(numbers[:2]), Moment(rank=2, world=3)) is None
    reseeded, _ = made(tmp_path, {**mixed, "train": {**mixed["train"], "seed": 2}})
    assert not torch.equal(pixels_of(batch_of(reseeded, numbers, 3)), pixels_of(whole))


def test_both_ways_of_reading_see_the_same(tmp_path: Path) -> None:
    write_zip(tmp_path / "p.zip", {f"in/{name}": content for name, content in squares_files(5).items()})
    for fit in ("stretch", "crop"):
        recipe = segmenting(tmp_path / "p.zip/in", input={"size": [12, 10], "fit": fit})
        rows, model = made(tmp_path, recipe)
        learned, evaluated = batch_of(rows, list(range(5))), judged(model, tmp_path / "p.zip/in")
        assert pixels_of(learned).shape == (5, 3, 12, 10)
        assert torch.equal(pixels_of(learned), pixels_of(evaluated))
        assert torch.equal(learned.targets["main"].tokens, evaluated.targets["main"].tokens)


def test_an_image_that_vanishes_after_the_first_look_is_named(tmp_path: Path) -> None:
    folder = write_files(tmp_path / "p", squares_files(3))
    rows, _ = made(tmp_path, segmenting(folder))
    (folder / "images/001.png").unlink()
    with pytest.raises(FileError, match=r"images/001\.png: cannot be read"):
        batch_of(rows, [0, 1, 2])
