"""Attention over an image: the image once for each written word, bright where the decoder attends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL.Image import Image

from twofold.plot.figure import aspect, figure, reduced
from twofold.plot.maps import Chosen, chosen_maps
from twofold.results.explanation import Attention

SPACE = "▁"
"""First character of a token that begins a word."""
COLUMNS = 6
"""Number of words beside each other."""


def draw_glances(
    image: Image,
    attention: Attention,
    grid: tuple[int, int],
    path: Path,
    box: tuple[float, float, float, float],
    layer: Chosen = None,
    head: Chosen = None,
) -> None:
    """Draws the attention of each written word over the image.

    grid: rows and columns of image positions, which come first among the keys
    box: left, top, right and bottom edge of the part of the image that the encoder read
    """
    shown = chosen_maps(attention, layer, head)
    left, upper, right, lower = box
    positions = shown.maps[..., : grid[0] * grid[1]].reshape(*shown.maps.shape[:2], *grid)
    words, _ = by_word(attention.queries, positions[0])
    panels = np.stack([np.stack(by_word(attention.queries, weights)[1]) for weights in positions])
    scale = {"vmin": 0, "vmax": max(float(panels.max()), 1e-9), "extent": (left, right, lower, upper)}
    drawn, columns = reduced(image), min(COLUMNS, len(words))
    lines = math.ceil(len(words) / columns)  # of each map
    high = (2.0 * aspect(image) + 0.35) * lines * len(panels) + 0.5
    with figure(path, words, 2.0 * columns + 1.0, high) as canvas:
        places = np.reshape(canvas.grid(lines * len(panels), columns), (len(panels), lines * columns))
        for row, name, glances in zip(places, shown.names, panels, strict=True):
            for axes, word, weights in zip(row, canvas.shown(words), glances, strict=False):
                axes.set_title(word if len(panels) == 1 else f"{word}\n{name}", fontsize=9)
                axes.imshow(drawn, extent=(0, image.width, image.height, 0))
                bright = axes.imshow(weights, cmap="inferno", alpha=0.6, interpolation="bilinear", **scale)
                axes.axis((0, image.width, image.height, 0))
        canvas.figure.suptitle(shown.title, fontsize=11)
        canvas.color_bar(bright, list(places.flat), "attention weight")


def by_word(tokens: Sequence[str], weights: NDArray[np.float32]) -> tuple[list[str], list[NDArray[np.float32]]]:
    """Words of a written text, without the end symbol, and the mean weights of each word's tokens."""
    words: list[str] = []
    parts: list[list[NDArray[np.float32]]] = []
    for token, row in zip(tokens[:-1], weights[:-1], strict=True):
        if not words or token.startswith(SPACE):
            words.append("")
            parts.append([])
        words[-1] += token.removeprefix(SPACE)
        parts[-1].append(row)
    if not words:  # nothing was written
        return ["(nothing)"], [weights[-1]]
    return words, [np.mean(rows, 0) for rows in parts]
