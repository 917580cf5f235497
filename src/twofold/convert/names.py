"""Which tensor of a checkpoint is which of the model's, and what of either is left over."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from twofold.convert.found import HEAD, MISSING, SHAPE, TRAINING, UNKNOWN, Item

Shape = tuple[int, ...]
TRAINED_WITH = re.compile(r"global_step|beta[12]_power|.+/(adam_[mv]|Adam(_1)?)")
"""What only a training needs: its step, and what its optimizer keeps for each tensor."""


@dataclass(frozen=True)
class Target:
    """Where a tensor of a checkpoint goes."""

    name: str
    turn: Literal["same", "transposed", "unpacked"] = "same"
    """TensorFlow's dense layers lie the other way round; GPT-2's are convolutions of width one."""

    def turned(self, shape: Shape) -> Shape:
        """The shape of a checkpoint's tensor when it is there."""
        if self.turn == "transposed":
            return shape[::-1]
        return shape[1:] if self.turn == "unpacked" and shape[:1] == (1,) else shape

    def turned_back(self, shape: Shape) -> Shape:
        """The shape that a checkpoint's tensor should have."""
        if self.turn == "transposed":
            return shape[::-1]
        return (1, *shape) if self.turn == "unpacked" else shape

    def value(self, tensor: NDArray[Any]) -> NDArray[np.float32]:
        """A checkpoint's tensor as it is there."""
        turned = tensor.T if self.turn == "transposed" else tensor.reshape(self.turned(tensor.shape))
        return np.ascontiguousarray(turned, dtype=np.float32)


@dataclass(frozen=True)
class Plan:
    """What is done with each tensor of a checkpoint."""

    used: Mapping[str, Target]
    not_read: tuple[Item, ...]
    misfits: tuple[Item, ...]


def match(
    shapes: Mapping[str, Shape], targets: Mapping[str, Target], model: Mapping[str, Shape], heads: re.Pattern[str]
) -> Plan:
    """Compare a checkpoint's names and shapes with those that are known, and with those of the model.

    targets: every name of the checkpoint that the model has a place for
    heads: the names of what was trained on top, which no encoder has
    """
    used: dict[str, Target] = {}
    not_read, misfits = [], []
    for name, shape in sorted(shapes.items()):
        target = targets.get(name)
        if target is not None and target.name in model:
            if target.turned(shape) == model[target.name]:
                used[name] = target
            else:
                misfits.append(Item(SHAPE, name, shape, target.turned_back(model[target.name])))
        elif TRAINED_WITH.fullmatch(name):
            not_read.append(Item(TRAINING, name, shape))
        elif heads.fullmatch(name):
            not_read.append(Item(HEAD, name, shape))
        else:
            misfits.append(Item(UNKNOWN, name, shape))
    sources = {target.name: name for name, target in targets.items()}
    for ours, shape in model.items():
        name = sources.get(ours, ours)
        if name not in shapes:
            misfits.append(Item(MISSING, name, targets[name].turned_back(shape) if name in targets else shape))
    return Plan(used, tuple(not_read), tuple(misfits))
