"""Attention of tokens over tokens: a map for each layer and head that is asked for."""

from __future__ import annotations

import math
from pathlib import Path

from twofold.plot.figure import figure
from twofold.plot.maps import Chosen, chosen_maps
from twofold.results.explanation import Attention

SIDES = {"encoder": ("attending token", "token attended to"), "decoder": ("written token", "earlier token")}
SIDES |= {"cross": ("written token", "input token")}
"""Labels of the queries and of the keys."""


def draw_attention(attention: Attention, path: Path, layer: Chosen = None, head: Chosen = None) -> None:
    """Draws attention maps of a text, one panel for each layer and head."""
    shown = chosen_maps(attention, layer, head)
    queries, keys = attention.queries, attention.keys
    lines = math.ceil(len(shown.maps) / shown.columns)
    cell = 1.0 if len(shown.maps) == 1 else 0.45  # many panels are drawn smaller
    wide = max(2.5, 1.2 + 0.45 * cell * len(keys)) * shown.columns + 1.5
    high = max(1.6, 1.2 + 0.35 * cell * len(queries)) * lines + 0.7
    with figure(path, [*queries, *keys], wide, high) as canvas:
        places = canvas.figure.subplots(lines, shown.columns, squeeze=False)
        size = 10 if len(shown.maps) == 1 else 6
        for axes, name, weights in zip(places.flat, shown.names, shown.maps, strict=False):
            drawn = axes.imshow(weights, cmap="Greys", vmin=0, vmax=shown.largest, aspect="auto")
            axes.set_xticks(range(len(keys)), canvas.shown(keys), rotation=90, fontsize=size)
            axes.set_yticks(range(len(queries)), canvas.shown(queries), fontsize=size)
            if len(shown.maps) > 1:
                axes.set_title(name, fontsize=8)
        for axes in places.flat[len(shown.maps) :]:
            axes.axis("off")
        canvas.figure.suptitle(shown.title, fontsize=11)
        query, key = SIDES[attention.name]
        canvas.figure.supylabel(query, fontsize=9)
        canvas.figure.supxlabel(key, fontsize=9)
        canvas.color_bar(drawn, list(places.flat), "attention weight")
