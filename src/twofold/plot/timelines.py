"""Inputs along a time axis, such as sounds: with their answers, or with the attention of each written token."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from twofold.plot.figure import figure, stride
from twofold.plot.maps import Chosen, chosen_maps
from twofold.results import Timeline
from twofold.results.explanation import Attention


def draw_timelines(timelines: Sequence[tuple[str, Timeline]], path: Path) -> None:
    """Draws sounds or series one below the other, each with its answer."""
    captions, drawn = zip(*timelines, strict=True)
    wide = min(4 + 1.5 * max(timeline.seconds for timeline in drawn), 12)
    with figure(path, captions, wide, 1.6 * len(drawn) + 0.4) as canvas:
        places = canvas.figure.subplots(len(drawn), 1, squeeze=False)[:, 0]
        for axes, caption, timeline in zip(places, canvas.shown(captions), drawn, strict=True):
            axes.set_title(caption, fontsize=9)
            _draw_timeline(axes, timeline)
        places[-1].set_xlabel("seconds")


def draw_over_time(
    timeline: Timeline, attention: Attention, path: Path, layer: Chosen = None, head: Chosen = None
) -> None:
    """Draws the input above, and below it the attention of each written token over time."""
    shown = chosen_maps(attention, layer, head)
    written, seconds = attention.queries, timeline.seconds
    lines = len(shown.maps)
    panel = 0.5 + 0.3 * len(written)
    with figure(path, written, min(4 + 1.5 * seconds, 20) + 1, 2.7 + (panel + 0.3) * lines + 0.4) as canvas:
        bands, *steps = canvas.figure.subplots(1 + lines, 1, sharex=True, height_ratios=[2.5, *[panel] * lines])
        _draw_timeline(bands, timeline)
        for axes, name, weights in zip(steps, shown.names, shown.maps, strict=True):
            extent = (0, seconds, len(written) - 0.5, -0.5)
            scale = {"vmin": 0, "vmax": shown.largest, "extent": extent}
            drawn = axes.imshow(weights, cmap="Greys", aspect="auto", interpolation="nearest", **scale)
            axes.set_yticks(range(len(written)), canvas.shown(written))
            if lines > 1:
                axes.set_title(name, fontsize=8)
        steps[-1].set_xlabel("seconds")
        canvas.figure.suptitle(shown.title, fontsize=11)
        canvas.color_bar(drawn, steps, "attention weight")


def _draw_timeline(axes: Any, timeline: Timeline) -> None:
    """Draws the bands of a spectrogram, or the line of a single value."""
    values = timeline.values[:, :: stride(*timeline.values.shape)]
    if len(values) == 1:
        axes.plot(np.linspace(0, timeline.seconds, values.shape[1]), values[0], color="black", linewidth=1)
        return
    axes.imshow(values, cmap="magma", aspect="auto", origin="lower", extent=(0, timeline.seconds, 0, 1))
    axes.set_yticks([])
