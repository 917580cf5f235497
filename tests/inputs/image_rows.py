"""Rows of a training and their batches, for tests of images, masks and captions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from twofold.data.batches import Moment
from twofold.inputs.image import Images
from twofold.model import Model
from twofold.model.batches import TrainingRows
from twofold.recipe import Recipe
from twofold.recipe.build import build_model, cache_rows, split_rows, training_rows
from twofold.types import Batch


def made(folder: Path, recipe: dict[str, Any]) -> tuple[TrainingRows, Model]:
    """The rows of a training, and its model."""
    settings = Recipe.of(recipe)
    model = build_model(settings, folder / "tokenizers")
    cache = cache_rows(settings, model)
    return training_rows(settings, cache, split_rows(settings, cache, model), model), model


def pixels_of(batch: Batch) -> Tensor:
    return batch.read(Images).pixels


def judged(model: Model, where: Path) -> Batch:
    """All rows of a file as they are evaluated."""
    (batch,) = model.batches(list(model.read(str(where))), "main")
    return batch


def batch_of(rows: TrainingRows, numbers: list[int], epoch: int = 0, rank: int = 0, world: int = 1) -> Batch:
    batch = rows.batch(np.array(numbers, np.int64), Moment(epoch, rank=rank, world=world))
    assert batch is not None
    return batch
