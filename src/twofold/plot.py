"""Draws where a decoder looked at the source, in fonts that have every character shown."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from twofold import storage
from twofold.errors import TwofoldError
from twofold.model.model import Looked

DEFAULT_FONT = "DejaVu Sans"


def draw_attention(looked: Looked, path: Path) -> None:
    """Write the picture to `path`; its ending says the format."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise TwofoldError("--plot needs `pip install twofold[plot]`") from None
    formats = sorted(Figure().canvas.get_supported_filetypes())
    if path.suffix[1:].lower() not in formats:
        raise TwofoldError(f"{path}: a picture ends in one of {', '.join('.' + one for one in formats)}")
    families, missing = fonts_for("".join(looked.source + looked.written))
    if missing:
        warnings.warn(
            f"no font here has {' '.join(sorted(missing)[:10])}: shown as ?; `pip install twofold[plot]` brings one "
            "for Korean, or install a font of your language",
            stacklevel=2,
        )
    source, written = (
        ["".join("?" if letter in missing else letter for letter in piece) for piece in pieces]
        for pieces in (looked.source, looked.written)
    )
    with matplotlib.rc_context({"font.family": families}):
        figure = Figure(figsize=(1.5 + 0.45 * len(source), 1.5 + 0.35 * len(written)), layout="constrained")
        axes = figure.subplots()
        axes.imshow(looked.weights, cmap="Greys", vmin=0, vmax=1, aspect="auto")
        axes.xaxis.tick_top()
        axes.set_xticks(range(len(source)), source, rotation=90)
        axes.set_yticks(range(len(written)), written)
        aside = path.with_name(f".{path.stem}.new{path.suffix}")
        with storage.writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            figure.savefig(aside, dpi=150)
            aside.replace(path)


def fonts_for(text: str) -> tuple[list[str], set[str]]:
    """Font families that together have every character of the text, and the characters none of them has."""
    from matplotlib import font_manager

    missing = {letter for letter in text if letter.isprintable() and not letter.isspace()}
    families: list[str] = []
    default = font_manager.findfont(DEFAULT_FONT)
    for file in (default, *_package_fonts(), *(entry.fname for entry in font_manager.fontManager.ttflist)):
        if not missing:
            break
        found = missing & _characters(file)
        if found or file == default:
            font_manager.fontManager.addfont(file)
            families.append(font_manager.FontProperties(fname=file).get_name())
            missing -= found
    return families, missing


def _characters(file: str) -> set[str]:
    from matplotlib.ft2font import FT2Font

    try:
        charmap: Iterable[Any] = FT2Font(file).get_charmap()
    except (OSError, RuntimeError):  # a font file that cannot be read has nothing to offer
        return set()
    return {chr(code) for code in charmap}


def _package_fonts() -> Iterator[str]:
    """The font files of the package that the extra `plot` brings, without importing it: that would change settings."""
    spec = importlib.util.find_spec("koreanize_matplotlib")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        yield from sorted(str(file) for file in Path(folder).rglob("*.ttf"))
