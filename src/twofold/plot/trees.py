"""Dependency trees: words in a line, with an arc from each head to its dependents and the relation on the arc."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twofold.plot.figure import Canvas, figure
from twofold.results import Tree

LETTER, GAP = 0.095, 0.35
"""Width of a letter and of the space between words, in inches."""
LEVEL = 0.32
"""Height of a level of arcs, in inches."""
WORDS_IN_A_FIGURE = 200


def draw_trees(trees: Sequence[Tree], path: Path) -> None:
    """Draws trees one below the other."""
    levels = [arc_levels(tree.heads) for tree in trees]
    heights = [LEVEL * (2 + max(level)) + 0.5 for level in levels]
    widths = [sum(_widths(tree)) for tree in trees]
    texts = [text for tree in trees for text in (*tree.words, *tree.relations)]
    with figure(path, texts, max(3.0, *widths) + 0.4, sum(heights)) as canvas:
        places = canvas.figure.subplots(len(trees), 1, squeeze=False, height_ratios=heights)[:, 0]
        for axes, tree, level, height in zip(places, trees, levels, heights, strict=True):
            axes.axis("off")
            axes.set_xlim(0, max(3.0, *widths))
            axes.set_ylim(-0.4, height - 0.5)
            _draw_tree(canvas, axes, tree, level)


def arc_levels(heads: Sequence[int]) -> list[int]:
    """Height of the arc to each word, from 1: an arc is above all shorter arcs that its span meets."""
    spans = [(min(head, word), max(head, word)) for word, head in enumerate(heads, start=1)]
    levels = [0] * len(spans)
    for number in sorted(range(len(spans)), key=lambda number: spans[number][1] - spans[number][0]):
        start, stop = spans[number]
        if heads[number] == 0:
            continue
        below = [levels[other] for other, (left, right) in enumerate(spans) if left < stop and start < right]
        levels[number] = 1 + max(below)
    highest = max(levels)
    return [highest + 1 if head == 0 else level for level, head in zip(levels, heads, strict=True)]


def _draw_tree(canvas: Canvas, axes: Any, tree: Tree, levels: Sequence[int]) -> None:
    widths = _widths(tree)
    centers = np.cumsum(widths) - np.array(widths) / 2
    for center, word in zip(centers, canvas.shown(tree.words), strict=True):
        axes.text(center, 0, word, ha="center", va="top", fontsize=10)
    angles = np.linspace(0, np.pi, 60)
    for place, (head, relation) in enumerate(zip(tree.heads, canvas.shown(tree.relations), strict=True)):
        to, top = centers[place], LEVEL * levels[place]
        if head:
            # Arcs end beside the middle of a word, on the side that they come from.
            shift = 0.06 if centers[head - 1] > to else -0.06
            start, to = centers[head - 1] - shift, to + shift
            middle, radius = (start + to) / 2, abs(start - to) / 2
            axes.plot(middle + radius * np.cos(angles), 0.12 + top * np.sin(angles), color="0.35", linewidth=0.9)
        else:
            middle = to
            axes.plot([to, to], [0.12, 0.12 + top], color="0.35", linewidth=0.9)
        axes.plot(to, 0.1, marker="v", color="0.35", markersize=4)
        label = {"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none"}
        axes.text(middle, 0.12 + top, relation, ha="center", va="center", fontsize=7, color="tab:blue", bbox=label)


def _widths(tree: Tree) -> list[float]:
    """Width of each word with its space, in inches; at least that of its relation."""
    return [
        GAP + max(LETTER * _length(word), 0.6 * LETTER * _length(relation))
        for word, relation in zip(tree.words, tree.relations, strict=True)
    ]


def _length(text: str) -> int:
    """Number of letters; wide letters, such as Hangul, count twice."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)
