"""An image is read once for all its captions; some are begun, and their rest is written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.images import (
    captioning,
    write_shapes,
)
from tests.inputs.image_rows import batch_of, made
from twofold.inputs import INPUT
from twofold.inputs.text import Tokens
from twofold.model.batches import TrainingRows
from twofold.outputs.captions import CaptionsOutput
from twofold.types import Batch


def captions(rows: TrainingRows) -> CaptionsOutput:
    (output,) = rows.outputs
    assert isinstance(output, CaptionsOutput)
    return output


def texts(rows: TrainingRows, batch: Batch) -> list[str]:
    target = batch.targets["main"]
    return [
        captions(rows).text.decode(ids[mask][1:-1].tolist())
        for ids, mask in zip(target.tokens, target.mask, strict=True)
    ]


def test_an_image_is_read_once_for_all_its_captions(tmp_path: Path) -> None:
    table = write_shapes(tmp_path / "p", 6)
    (tmp_path / "p/rows.jsonl").write_text('{"image": "001.png", "caption": ["a dog", "two dogs"], "other": "x y"}\n')
    rows, _ = made(tmp_path, captioning(table))
    batch = batch_of(rows, [3, 1, 4])
    owners = batch.targets["main"].rows
    assert owners is not None
    assert owners.tolist() == [0, 0, 1, 1, 2, 2]
    assert texts(rows, batch)[::2] == texts(rows, batch)[1::2] == ["a white square", "a green square", "a red cross"]
    assert set(batch.inputs) == {INPUT}
    several, _ = made(tmp_path / "b", captioning(tmp_path / "p/rows.jsonl"))
    assert texts(several, batch_of(several, [0])) == ["a dog", "two dogs", "x y"]


def test_prefixes_are_as_long_as_evenly_drawn_and_the_rest_is_written(tmp_path: Path) -> None:
    table = write_shapes(tmp_path / "p", 2)
    settings = {"column": ["caption"], "prefix": 1.0}
    rows, _ = made(tmp_path, captioning(table, "vit", "transformer", encoder={"prefix": True}, output=settings))
    (whole,) = captions(rows).cached(rows.cache, 0)
    lengths = []
    for epoch in range(300):
        batch = batch_of(rows, [0, 1], epoch)
        target = batch.targets["main"]
        read = batch.read(Tokens)
        prefix, rest = read.tokens[0][read.mask[0]], target.tokens[0][target.mask[0]][1:-1]
        assert [*prefix.tolist(), *rest.tolist()] == whole.tolist()
        lengths.append(len(prefix))
    counts = np.bincount(lengths, minlength=len(whole))
    assert len(counts) == len(whole) > 2
    assert np.abs(counts - 300 / len(whole)).max() < 4 * (300 / len(whole)) ** 0.5


@pytest.mark.parametrize("share", [0.0, 0.4])
def test_only_so_often_is_a_prefix_read_and_otherwise_all_captions_are_written(tmp_path: Path, share: float) -> None:
    recipe = captioning(
        write_shapes(tmp_path / "p", 1), "vit", "transformer", encoder={"prefix": True}, output={"prefix": share}
    )
    rows, _ = made(tmp_path, recipe)
    written = [len(batch_of(rows, [0], epoch).targets["main"].tokens) for epoch in range(200)]
    assert set(written) == ({1, 2} if share else {2})
    assert 200 * share - 30 <= written.count(1) <= 200 * share + 30
    if not share:
        assert set(batch_of(rows, [0]).inputs) == {INPUT}
