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
FORMATS = (".png", ".svg", ".pdf", ".jpg")


def draw_attention(looked: Looked, path: Path) -> None:
    """Write the picture to `path`; its ending says the format."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise TwofoldError("--plot needs `pip install twofold[plot]`") from None
    if path.suffix.lower() not in FORMATS:
        raise TwofoldError(f"{path}: a picture ends in one of {', '.join(FORMATS)}")
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
            try:
                figure.savefig(aside, dpi=150)
                aside.replace(path)
            finally:
                aside.unlink(missing_ok=True)


def fonts_for(text: str) -> tuple[list[str], set[str]]:
    """Font families that together have every character of the text, and the characters none of them has."""
    from matplotlib import font_manager

    families = [DEFAULT_FONT]
    missing = {letter for letter in text if not letter.isspace()} - _characters(font_manager.findfont(DEFAULT_FONT))
    # matplotlib's font of last resort has every character, as a box.
    known = {entry.fname for entry in font_manager.fontManager.ttflist if "last resort" not in entry.name.lower()}
    for file in (*_package_fonts(), *sorted(known)):
        if missing and (found := missing & _characters(file)):
            if file not in known:
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
