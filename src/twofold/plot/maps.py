"""Attention maps to draw: the layers and heads that are asked for, on one scale."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from twofold.errors import TwofoldError
from twofold.results.explanation import Attention

Chosen = int | Literal["all"] | None
"""Layer or head from 1, or all of them; None is the last layer, or the mean of the heads."""
TITLES = {"encoder": "Self-attention of the encoder", "decoder": "Self-attention of the decoder"}
TITLES |= {"cross": "Cross-attention"}
MOST_MAPS = 150
"""Maximum number of maps in one figure."""


@dataclass(frozen=True)
class AttentionMaps:
    """Attention maps of one figure."""

    title: str
    names: tuple[str, ...]
    """Name of each map: its layer and head."""
    maps: NDArray[np.float32]
    """Weights (maps, queries, keys)."""
    columns: int
    """Number of maps beside each other: heads, or layers if each has one map."""

    @property
    def largest(self) -> float:
        """Upper end of the color scale, which all maps share."""
        return max(float(self.maps.max()), 1e-9)


def chosen_maps(attention: Attention, layer: Chosen = None, head: Chosen = None) -> AttentionMaps:
    """Maps of a layer or of all, of a head, of all, or of their mean."""
    layers, heads = attention.weights.shape[:2]
    rows = [layers - 1] if layer is None else _numbers("layer", layer, layers)
    columns = [] if head is None else _numbers("head", head, heads)
    if len(rows) * max(1, len(columns)) > MOST_MAPS:
        raise TwofoldError(
            f"{len(rows) * len(columns)} attention maps are too many for one figure; give --layer or --head a number"
        )
    mean = f"mean of {heads} heads" if heads > 1 else "1 head"
    title = TITLES[attention.name]
    if len(rows) == 1:
        title += f", layer {rows[0] + 1} of {layers}" + ("" if columns else f", {mean}")
    elif not columns:
        title += f", {mean}"
    maps, names = [], []
    for row in rows:
        weights = attention.weights[row]
        maps += [weights[column] for column in columns] or [weights.mean(0)]
        names += [f"layer {row + 1}, head {column + 1}" for column in columns] or [f"layer {row + 1}"]
    return AttentionMaps(title, tuple(names), np.stack(maps), len(columns) or min(4, len(rows)))


def _numbers(name: str, chosen: Chosen, count: int) -> list[int]:
    """Indices of the chosen layers or heads."""
    if chosen == "all":
        return list(range(count))
    if not isinstance(chosen, int) or not 1 <= chosen <= count:
        raise TwofoldError(f"--{name} {chosen}: there are {count}; give a number from 1 to {count}, or all")
    return [chosen - 1]
