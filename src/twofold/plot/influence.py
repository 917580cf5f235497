"""Influence of each input word on the answer, by leaving it out."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from twofold.plot.figure import figure
from twofold.results.explanation import Influence


def draw_influence(influence: Influence, path: Path) -> None:
    """Draws a map of words by scores: red where a word raises the score, blue where it lowers the score."""
    words, scores, values = influence.words, influence.scores, influence.values
    largest = float(np.nanmax(np.abs(values), initial=1e-9)) if np.isfinite(values).any() else 1.0
    wide, high = max(3.0, 1.5 + 0.45 * len(words)) + 1.2, max(1.6, 1.2 + 0.35 * len(scores)) + 0.5
    with figure(path, [*words, *scores], wide, high) as canvas:
        axes = canvas.figure.subplots()
        drawn = axes.imshow(values.T, cmap="RdBu_r", vmin=-largest, vmax=largest, aspect="auto")
        axes.set_xticks(range(len(words)), canvas.shown(words), rotation=90)
        axes.set_yticks(range(len(scores)), canvas.shown(scores))
        axes.set_xlabel("word left out")
        axes.set_ylabel("score")
        canvas.figure.suptitle("Influence: score with the word minus score without it", fontsize=11)
        canvas.color_bar(drawn, axes, "influence")
