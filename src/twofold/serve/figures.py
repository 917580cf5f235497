"""Images of answers beside their explanations: what was read, and masks, as PNG in base64."""

from __future__ import annotations

import base64
import colorsys
import io
from typing import Any

import numpy as np
from PIL import Image

from twofold.model import Model
from twofold.results import Mask
from twofold.results.explanation import Explanation

LARGEST_SIDE = 1024
"""Maximum height and width of an image that is sent back."""

GOLDEN = 0.618034
"""Part of the circle between the hues of two classes, so that neighbors differ."""


def shown(model: Model, decoder: str, value: Any, explanation: Explanation) -> dict[str, Any]:
    """Image that was read, and the mask over it, if there are any."""
    content: dict[str, Any] = {}
    image = model.input.image(value)
    if image is not None:
        if explanation.grid is not None:  # which lies over what is read of the image
            left, top, right, bottom = model.input.box((image.height, image.width))
            image = image.crop((round(left), round(top), round(right), round(bottom)))
        width, height = image.size
        content["image"] = {"png": as_png(image.resize(_within(image.size))), "width": width, "height": height}
    mask = model.outputs[decoder].mask(explanation.output)
    if mask is not None:
        content["mask"] = _mask(mask)
        content["classes"] = _classes(mask)
    if explanation.confidence is not None:
        pixels = (255 * explanation.confidence).round().astype(np.uint8)
        content["confidence"] = {"png": as_png(_resized(Image.fromarray(pixels))), "mean": float(pixels.mean() / 255)}
    return content


def plain_output(model: Model, decoder: str, explanation: Explanation) -> Any:
    """Answer as JSON values, without the pixels of a mask."""
    output = model.outputs[decoder]
    return output.plain(explanation.output)


def _within(size: tuple[int, int]) -> tuple[int, int]:
    """Width and height of an image that is shown."""
    share = min(1.0, LARGEST_SIDE / max(size))
    return max(1, round(size[0] * share)), max(1, round(size[1] * share))


def _mask(mask: Mask) -> dict[str, Any]:
    """Class numbers as a PNG with a palette of the classes' colors; height and width are those of the mask itself."""
    height, width = mask.pixels.shape
    image = Image.fromarray(mask.pixels, "P")
    image.putpalette([value for color in colors(len(mask.names)) for value in color])
    return {"png": as_png(_resized(image)), "width": width, "height": height}


def _resized(image: Image.Image) -> Image.Image:
    """Classes or shares of pixels in the size that is shown."""
    return image.resize(_within(image.size), Image.Resampling.NEAREST)


def _classes(mask: Mask) -> list[dict[str, Any]]:
    shares = mask.shares()
    written = zip(mask.names, colors(len(mask.names)), strict=True)
    return [
        {"name": name, "color": "#{:02x}{:02x}{:02x}".format(*color), "share": shares.get(name, 0.0)}
        for name, color in written
    ]


def colors(count: int) -> list[tuple[int, int, int]]:
    """Colors of classes: hues in turn around the circle, light and dark."""
    shades = [((number * GOLDEN) % 1.0, (0.95, 0.7)[number % 2]) for number in range(count)]
    parts = (colorsys.hsv_to_rgb(hue, 0.75, value) for hue, value in shades)
    return [(round(255 * red), round(255 * green), round(255 * blue)) for red, green, blue in parts]


def as_png(image: Image.Image) -> str:
    """PNG of an image, in base64."""
    content = io.BytesIO()
    image.save(content, "png")
    return base64.b64encode(content.getvalue()).decode()
