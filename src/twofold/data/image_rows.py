"""The images of a training as batches: read, seen in a random view, with their captions or masks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from twofold.data.batches import Moment, Plan, make_batch, make_target, plan_at_random, plan_by_size
from twofold.data.cache import Cache
from twofold.data.image_fields import CaptionField, ImageField, MaskField
from twofold.data.image_files import Files
from twofold.data.images import ImageFile
from twofold.data.labels import LabelField
from twofold.data.views import UNCOUNTED, Augment, Size, View
from twofold.types import Batch, Target

NAME = "name"
"""The cache's column of the images' names; those of masks begin with it."""


@dataclass(frozen=True)
class ImageRows:
    """Which images of a cache to learn from."""

    cache: Cache
    rows: NDArray[np.int64]
    files: Files
    source: ImageField
    targets: Mapping[str, CaptionField | MaskField | LabelField]
    augment: Augment
    prefix: float
    """How often an image is read with the beginning of one of its captions."""
    batch_rows: int
    seed: int

    def plan(self, epoch: int) -> Plan:
        """The batches of an epoch, each of images of one size."""
        if self.augment.crop:  # whatever their sizes were, the parts that are learned from have one
            return plan_at_random(self.rows, self.batch_rows, self.seed, epoch)
        sizes = self.cache.columns["source"].whole().reshape(-1, 2)
        # Rows that were left out have no size, so a row's size stands where its offset says.
        places = self.cache.columns["source"].offsets[self.rows] // 2
        return plan_by_size(sizes[places], self.rows, self.batch_rows, self.seed, epoch)

    def batch(self, rows: NDArray[np.int64], moment: Moment) -> Batch | None:
        """The share of one process in a batch as tensors; none where there are more processes than rows."""
        share = rows[moment.rank :: moment.world]
        if not len(share):
            return None
        draws = [np.random.default_rng([self.seed, moment.epoch, int(row)]) for row in share]
        view = self.source.view
        seen = [view.see(self._image(NAME, row).image(view.near)) for row in share]
        views = [self.augment.draw(_size(one), draw) for one, draw in zip(seen, draws, strict=True)]
        pixels = self.source.view.tensor([view.of(one) for view, one in zip(views, seen, strict=True)])
        prefixes: list[Sequence[int]] = [()] * len(share)
        targets = {}
        for name, field in self.targets.items():
            if isinstance(field, MaskField):
                targets[name] = self._masks(name, field, share, views)
            elif isinstance(field, LabelField):
                targets[name] = field.target([self.cache.columns[name].row(row) for row in share])
            else:
                written = [field.split(self.cache.columns[name].row(row)) for row in share]
                if self.prefix:
                    begun = [self._begin(captions, draw) for captions, draw in zip(written, draws, strict=True)]
                    prefixes, written = [one for one, _ in begun], [rest for _, rest in begun]
                targets[name] = captions_target(written, field)
        batch = make_batch(prefixes, self.source.vocabulary, progress=moment.progress)
        return replace(batch, pixels=pixels, targets=targets)

    def _begin(
        self, captions: list[NDArray[np.int64]], draw: np.random.Generator
    ) -> tuple[Sequence[int], list[NDArray[np.int64]]]:
        """The beginning of one caption and its rest; or no beginning, and all captions."""
        if draw.random() >= self.prefix:
            return (), captions
        chosen = captions[draw.integers(len(captions))]
        length = int(draw.integers(len(chosen)))
        return chosen[:length].tolist(), [chosen[length:]]

    def _masks(self, name: str, field: MaskField, rows: NDArray[np.int64], views: Sequence[View]) -> Target:
        images = [self._image(f"{NAME}_{name}", row) for row in rows]
        masks = [field.classed(image.numbers(), image.place) for image in images]
        fitted = [field.source.view.see_mask(mask) for mask in masks]
        return masks_target([view.of_mask(mask) for view, mask in zip(views, fitted, strict=True)])

    def _image(self, column: str, row: int) -> ImageFile:
        return ImageFile(self.files, self.cache.columns[column].row(row).tobytes().decode(errors="surrogatepass"))


def masks_target(masks: Sequence[NDArray[np.uint8]]) -> Target:
    """Masks of one size as what a decoder must write."""
    classes = torch.from_numpy(np.stack(masks)).long()
    counts = classes != UNCOUNTED
    return Target(classes.masked_fill(~counts, 0), counts)


def captions_target(captions: Sequence[Sequence[NDArray[np.int64]]], field: CaptionField) -> Target:
    """All captions of some images, each with the number of its image."""
    owners = [number for number, own in enumerate(captions) for _ in own]
    target = make_target([ids for own in captions for ids in own], field.vocabulary)
    return replace(target, rows=torch.tensor(owners))


def _size(pixels: NDArray[np.uint8]) -> Size:
    return pixels.shape[0], pixels.shape[1]
