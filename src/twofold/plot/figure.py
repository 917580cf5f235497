"""Figures: a canvas with fonts that have every character shown, color bars and legends, written to a file."""

from __future__ import annotations

import contextlib
import importlib.util
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL.Image import Image

from twofold import storage
from twofold.errors import TwofoldError

DEFAULT_FONT = "DejaVu Sans"
FORMATS = (".png", ".svg", ".pdf", ".jpg")
DRAWN = 1500
"""Longest side of an image in pixels; larger images are reduced before they are drawn."""


@dataclass(frozen=True)
class Canvas:
    """Figure to draw on."""

    figure: Any
    missing: set[str]
    """Characters that no font has."""

    def shown(self, texts: Iterable[str]) -> list[str]:
        """Texts with ? for each character that no font has."""
        return ["".join("?" if letter in self.missing else letter for letter in text) for text in texts]

    def grid(self, lines: int, columns: int) -> list[Any]:
        """Axes without frames, for images beside each other."""
        places = list(self.figure.subplots(lines, columns, squeeze=False).flat)
        for axes in places:
            axes.axis("off")
        return places

    def color_bar(self, drawn: Any, places: Any, label: str) -> None:
        """Color bar of an image that was drawn, beside the axes that share its scale."""
        self.figure.colorbar(drawn, ax=places, label=label, shrink=0.9, aspect=30, pad=0.01)


@contextlib.contextmanager
def figure(
    path: Path, texts: Iterable[str], wide: float, high: float, colors: Mapping[str, Any] | None = None
) -> Iterator[Canvas]:
    """Figure with fonts for all texts, written to `path` at the end; the ending of `path` sets the format.

    wide, high: size in inches, without the legend
    colors: legend below the figure, a color for each name
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
        from matplotlib.patches import Patch
    except ImportError:
        raise TwofoldError("--plot needs `pip install 'twofold[plot]'`") from None
    if path.suffix.lower() not in FORMATS:
        raise TwofoldError(f"{path}: an image ends in one of {', '.join(FORMATS)}")
    colors = colors or {}
    columns = max(1, min(6, int(wide / (0.7 + 0.08 * max(map(len, colors), default=0)))))
    legend = 0.3 + 0.2 * math.ceil(len(colors) / columns) if colors else 0.0
    families, missing = fonts_for("".join([*texts, *colors]))
    if missing:
        warnings.warn(
            f"no font here has {' '.join(sorted(missing)[:10])}: shown as ?; `pip install 'twofold[plot]'` brings one "
            "for Korean, or install a font of your language",
            stacklevel=4,
        )
    with matplotlib.rc_context({"font.family": families, "text.parse_math": False}):
        drawn = Figure(figsize=(wide, high + legend), layout="constrained")
        canvas = Canvas(drawn, missing)
        yield canvas
        if colors:
            patches = [Patch(color=color) for color in colors.values()]
            drawn.legend(patches, canvas.shown(colors), loc="outside lower center", ncols=columns, fontsize=8)
        with storage.new_file(path) as file:
            drawn.savefig(file, format=path.suffix[1:].lower(), dpi=150)


def class_colors(names: Sequence[str]) -> Any:
    """Colors (classes, 4) of the classes of masks."""
    from matplotlib import colormaps

    count = len(names)
    shades = [*range(0, 20, 2), *range(1, 20, 2)]  # strong colors first: a pale color looks like its strong neighbor
    return colormaps["tab20"](shades[:count]) if count <= 20 else colormaps["gist_ncar"](np.linspace(0, 1, count))


def aspect(image: Image) -> float:
    """Height / width of an image, within limits that a figure can show."""
    return min(max(image.height / image.width, 0.2), 5.0)


def stride(height: int, width: int) -> int:
    """Number of pixels beside each other that are drawn as one, of an image and of its mask alike."""
    return max(1, max(height, width) // DRAWN)


def reduced(image: Image) -> Image:
    """Image at the resolution that is drawn."""
    step = stride(image.height, image.width)
    return image if step == 1 else image.reduce(step)


def fonts_for(text: str) -> tuple[list[str], set[str]]:
    """Font families that together have every character of the text, and the characters that none of them has."""
    from matplotlib import font_manager

    families = [DEFAULT_FONT]
    missing = {letter for letter in text if not letter.isspace()} - _characters(font_manager.findfont(DEFAULT_FONT))
    # matplotlib's font of last resort has every character, as a box.
    known = {entry.fname for entry in font_manager.fontManager.ttflist if "last resort" not in entry.name.lower()}
    for file in (*_package_fonts(), *sorted(known)):
        if missing and (present := missing & _characters(file)):
            if file not in known:
                font_manager.fontManager.addfont(file)
            families.append(font_manager.FontProperties(fname=file).get_name())
            missing -= present
    return families, missing


def _characters(file: str) -> set[str]:
    """Characters of a font file; none if it cannot be read."""
    from matplotlib.ft2font import FT2Font

    try:
        charmap: Iterable[Any] = FT2Font(file).get_charmap()
    except (OSError, RuntimeError):
        return set()
    return {chr(code) for code in charmap}


def _package_fonts() -> Iterator[str]:
    """Font files of the package in the extra `plot`, without importing it, because that would change settings."""
    spec = importlib.util.find_spec("koreanize_matplotlib")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        yield from sorted(str(file) for file in Path(folder).rglob("*.ttf"))
