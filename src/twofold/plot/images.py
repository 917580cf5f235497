"""Images with their masks over them, or with their answers below them."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from PIL.Image import Image

from twofold.plot.figure import aspect, class_colors, figure, reduced, stride
from twofold.results import Mask


@dataclass(frozen=True)
class Answered:
    """Image with a model's answer."""

    image: Image
    caption: str
    mask: Mask | None = None


def draw_mask(image: Image, mask: Mask, path: Path) -> None:
    """Draws the image, and beside it the image with the mask over it."""
    with figure(path, [], 8.0, 4.0 * aspect(image), _legend([mask])) as canvas:
        places = canvas.grid(1, 2)
        for axes in places:
            axes.imshow(reduced(image))
        _paint(places[1], mask)


def draw_sheet(answered: Sequence[Answered], path: Path) -> None:
    """Draws images beside each other, with masks over them or captions below them."""
    masks = [answer.mask for answer in answered if answer.mask is not None]
    texts = [textwrap.fill(answer.caption, 30) or "(nothing)" for answer in answered if answer.mask is None]
    columns = min(5, len(answered))
    lines = math.ceil(len(answered) / columns)
    high = 2.4 * max(aspect(answer.image) for answer in answered)
    high += 0.16 * max((2 + text.count("\n") for text in texts), default=0)
    with figure(path, texts, 2.4 * columns, high * lines, _legend(masks)) as canvas:
        for axes, answer in zip(places := canvas.grid(lines, columns), answered, strict=False):
            axes.imshow(reduced(answer.image))
        for axes, mask in zip(places, masks, strict=False):
            _paint(axes, mask)
        for axes, text in zip(places, canvas.shown(texts), strict=False):
            axes.set_title(text, fontsize=8, y=0, pad=-4, va="top")


def _legend(masks: Sequence[Mask]) -> dict[str, Any]:
    """Color of each class that occurs in the masks."""
    occurring = {name for mask in masks for name in mask.shares()}
    names = masks[0].names if masks else ()
    return {name: color for name, color in zip(names, class_colors(names), strict=True) if name in occurring}


def _paint(axes: Any, mask: Mask) -> None:
    step = stride(*mask.pixels.shape)
    axes.imshow(class_colors(mask.names)[mask.pixels[::step, ::step]], alpha=0.6)
