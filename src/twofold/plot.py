"""Draws where a decoder looked at its source and what it painted, in fonts that have every character shown."""

from __future__ import annotations

import contextlib
import importlib.util
import math
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL.Image import Image

from twofold import storage
from twofold.errors import TwofoldError
from twofold.model import Model
from twofold.outputs import Output
from twofold.results import AttentionMap, Mask, Prediction, Timeline

DEFAULT_FONT = "DejaVu Sans"
FORMATS = (".png", ".svg", ".pdf", ".jpg")
SPACE = "▁"
"""How a piece of text begins that begins a word."""
DRAWN = 1500
"""Pixels of a side beyond which an image is reduced before it is drawn: no figure shows more."""
SHEET = 20
"""The most images or sounds that are drawn."""


def draw(
    model: Model, predictions: Sequence[Prediction], path: Path, decoder: str | None = None, prefix: str | None = None
) -> None:
    """Several images or sounds, or one at which no decoder looked, with the answers; else where the decoder looked at
    the first input as it wrote, or the mask that it painted over it."""
    prediction, output = predictions[0], model.outputs[model.decoder_name(decoder)]
    image, mask = model.input.image(prediction.input), output.mask(prediction.output)
    if image is not None and (len(predictions) > 1 or (mask is None and not model.decoder(decoder).attends)):
        draw_sheet([_answered(model, output, answer) for answer in predictions[:SHEET]], path)
    elif image is not None and mask is not None:
        draw_mask(image, mask, path)
    elif not model.decoder(decoder).attends and (timelines := _timelines(model, output, predictions[:SHEET])):
        draw_timelines(timelines, path)
    else:
        # Its text, tokenized anew, may have other tokens than were generated.
        written = prediction.output if prediction.tokens is None else prediction.tokens
        looked = model.attention(prediction.input, written, decoder, prefix)
        if looked.timeline is not None:
            draw_over_time(looked.timeline, looked, path)
        elif image is None:
            draw_attention(looked, path)
        else:
            draw_glances(image, looked, path, model.input.box((image.height, image.width)))


@dataclass(frozen=True)
class Answered:
    """An image, and what a model made of it."""

    image: Image
    caption: str
    mask: Mask | None = None


def _answered(model: Model, output: Output[Any], prediction: Prediction) -> Answered:
    image, mask = model.input.image(prediction.input), output.mask(prediction.output)
    assert image is not None
    return Answered(_reduced(image), "" if mask else output.caption(prediction.output), mask)


def _timelines(model: Model, output: Output[Any], predictions: Sequence[Prediction]) -> list[tuple[str, Timeline]]:
    """What has a time, each with what the model made of it; none where the inputs have no time."""
    items = model.input.items([model.input.row(prediction.input, "input") for prediction in predictions])
    drawn = zip(predictions, map(model.input.timeline, items), strict=True)
    return [(output.caption(prediction.output), timeline) for prediction, timeline in drawn if timeline is not None]


def draw_timelines(timelines: Sequence[tuple[str, Timeline]], path: Path) -> None:
    """Sounds or series below each other, each with what the model made of it."""
    captions, drawn = zip(*timelines, strict=True)
    wide = min(4 + 1.5 * max(timeline.seconds for timeline in drawn), 12)
    with _figure(path, captions, wide, 1.6 * len(drawn) + 0.4) as canvas:
        places = canvas.figure.subplots(len(drawn), 1, squeeze=False)[:, 0]
        for axes, caption, timeline in zip(places, canvas.shown(captions), drawn, strict=True):
            axes.set_title(caption, fontsize=9)
            _draw_timeline(axes, timeline)
        places[-1].set_xlabel("seconds")


def _draw_timeline(axes: Any, timeline: Timeline) -> None:
    """The bands of a spectrogram, or the line of a single value over time."""
    values = timeline.values[:, :: _step(*timeline.values.shape)]
    if len(values) == 1:
        axes.plot(np.linspace(0, timeline.seconds, values.shape[1]), values[0], color="black", linewidth=1)
        return
    axes.imshow(values, cmap="magma", aspect="auto", origin="lower", extent=(0, timeline.seconds, 0, 1))
    axes.set_yticks([])


def draw_attention(looked: AttentionMap, path: Path) -> None:
    """Which pieces of a text were looked at as each piece was written."""
    source, written = looked.source, looked.written
    with _figure(path, [*source, *written], 1.5 + 0.45 * len(source), 1.5 + 0.35 * len(written)) as canvas:
        axes = canvas.figure.subplots()
        axes.imshow(looked.weights, cmap="Greys", vmin=0, vmax=1, aspect="auto")
        axes.xaxis.tick_top()
        axes.set_xticks(range(len(source)), canvas.shown(source), rotation=90)
        axes.set_yticks(range(len(written)), canvas.shown(written))


def draw_over_time(timeline: Timeline, looked: AttentionMap, path: Path) -> None:
    """What has a time, and below it when each piece was looked at as it was written."""
    written, seconds = looked.written, timeline.seconds
    with _figure(path, written, min(4 + 1.5 * seconds, 20), 3.0 + 0.3 * len(written)) as canvas:
        bands, steps = canvas.figure.subplots(2, 1, sharex=True, height_ratios=[2.5, 0.5 + 0.3 * len(written)])
        _draw_timeline(bands, timeline)
        extent = (0, seconds, len(written) - 0.5, -0.5)
        steps.imshow(looked.weights, cmap="Greys", vmin=0, aspect="auto", extent=extent, interpolation="nearest")
        steps.set_yticks(range(len(written)), canvas.shown(written))
        steps.set_xlabel("seconds")


def draw_glances(image: Image, looked: AttentionMap, path: Path, box: tuple[float, float, float, float]) -> None:
    """The image once for each word that was written, bright where it was looked at; `box` is what was read of it."""
    left, upper, right, lower = box
    whole, read = (0, image.width, image.height, 0), (left, right, lower, upper)
    words, glances = _by_word(looked)
    drawn, columns = _reduced(image), min(6, len(words))
    lines = math.ceil(len(words) / columns)
    with _figure(path, words, 2.0 * columns, (2.0 * _shape(image) + 0.35) * lines) as canvas:
        places = canvas.grid(lines, columns)
        for axes, word, weights in zip(places, canvas.shown(words), glances, strict=False):
            axes.set_title(word, fontsize=9)
            axes.imshow(drawn, extent=whole)
            strength = weights / max(weights.max(), 1e-9)
            axes.imshow(strength, cmap="inferno", alpha=0.6, extent=read, interpolation="bilinear", vmin=0, vmax=1)
            axes.axis(whole)


def draw_mask(image: Image, mask: Mask, path: Path) -> None:
    """The image, and the mask over it with the names of its classes."""
    with _figure(path, [], 8.0, 4.0 * _shape(image), [mask]) as canvas:
        places = canvas.grid(1, 2)
        for axes in places:
            axes.imshow(_reduced(image))
        _paint(places[1], mask)


def draw_sheet(answered: Sequence[Answered], path: Path) -> None:
    """Images beside each other: their masks over them, or what was written under them."""
    masks = [answer.mask for answer in answered if answer.mask is not None]
    texts = [textwrap.fill(answer.caption, 30) or "(nothing)" for answer in answered if answer.mask is None]
    columns = min(5, len(answered))
    lines = math.ceil(len(answered) / columns)
    high = 2.4 * max(_shape(answer.image) for answer in answered)
    high += 0.16 * max((2 + text.count("\n") for text in texts), default=0)
    with _figure(path, texts, 2.4 * columns, high * lines, masks) as canvas:
        for axes, answer in zip(places := canvas.grid(lines, columns), answered, strict=False):
            axes.imshow(answer.image)
        for axes, mask in zip(places, masks, strict=False):
            _paint(axes, mask)
        for axes, text in zip(places, canvas.shown(texts), strict=False):
            axes.set_title(text, fontsize=8, y=0, pad=-4, va="top")


def _paint(axes: Any, mask: Mask) -> None:
    step = _step(*mask.pixels.shape)
    axes.imshow(_hues(mask.names)[mask.pixels[::step, ::step]], alpha=0.6)


def _hues(names: Sequence[str]) -> Any:
    """A color for each class."""
    from matplotlib import colormaps

    count = len(names)
    shades = [*range(0, 20, 2), *range(1, 20, 2)]  # strong colors first: a pale one looks like its neighbour
    return colormaps["tab20"](shades[:count]) if count <= 20 else colormaps["gist_ncar"](np.linspace(0, 1, count))


@dataclass(frozen=True)
class _Canvas:
    figure: Any
    missing: set[str]

    def shown(self, texts: Iterable[str]) -> list[str]:
        return ["".join("?" if letter in self.missing else letter for letter in text) for text in texts]

    def grid(self, lines: int, columns: int) -> list[Any]:
        """Places for images beside each other."""
        places = list(self.figure.subplots(lines, columns, squeeze=False).flat)
        for axes in places:
            axes.axis("off")
        return places


@contextlib.contextmanager
def _figure(
    path: Path, texts: Sequence[str], wide: float, high: float, masks: Sequence[Mask] = ()
) -> Iterator[_Canvas]:
    """A figure in fonts that have every letter of the texts, written to `path` in the end; its ending says the format.

    masks: below its `high` inches the figure says which color is which of the classes that they show
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
        from matplotlib.patches import Patch
    except ImportError:
        raise TwofoldError("--plot needs `pip install 'twofold[plot]'`") from None
    if path.suffix.lower() not in FORMATS:
        raise TwofoldError(f"{path}: an image ends in one of {', '.join(FORMATS)}")
    seen = {name for mask in masks for name in mask.shares()}
    names = masks[0].names if masks else ()
    hues = {name: hue for name, hue in zip(names, _hues(names), strict=True) if name in seen}
    in_a_line = max(1, min(6, int(wide / (0.7 + 0.08 * max(map(len, hues), default=0)))))
    room = 0.3 + 0.2 * math.ceil(len(hues) / in_a_line) if hues else 0.0
    families, missing = fonts_for("".join([*texts, *hues]))
    if missing:
        warnings.warn(
            f"no font here has {' '.join(sorted(missing)[:10])}: shown as ?; `pip install 'twofold[plot]'` brings one "
            "for Korean, or install a font of your language",
            stacklevel=4,
        )
    with matplotlib.rc_context({"font.family": families, "text.parse_math": False}):
        figure = Figure(figsize=(wide, high + room), layout="constrained")
        canvas = _Canvas(figure, missing)
        yield canvas
        if hues:
            patches = [Patch(color=hue) for hue in hues.values()]
            figure.legend(patches, canvas.shown(hues), loc="outside lower center", ncols=in_a_line, fontsize=8)
        with storage.new_file(path) as file:
            figure.savefig(file, format=path.suffix[1:].lower(), dpi=150)


def _by_word(looked: AttentionMap) -> tuple[list[str], list[NDArray[np.float32]]]:
    """The words of what was written, the end left out, each with the mean of where its pieces looked."""
    words: list[str] = []
    glances: list[list[NDArray[np.float32]]] = []
    for piece, weights in zip(looked.written[:-1], looked.weights[:-1], strict=True):
        if not words or piece.startswith(SPACE):
            words.append("")
            glances.append([])
        words[-1] += piece.removeprefix(SPACE)
        glances[-1].append(weights)
    if not words:  # nothing was written
        return ["(nothing)"], [looked.weights[-1]]
    return words, [np.mean(some, 0) for some in glances]


def _shape(image: Image) -> float:
    """Height over width of what is drawn; a strip of pixels is drawn no longer than a figure can be."""
    return min(max(image.height / image.width, 0.2), 5.0)


def _step(height: int, width: int) -> int:
    """How many pixels beside each other are drawn as one, of an image and of its mask alike."""
    return max(1, max(height, width) // DRAWN)


def _reduced(image: Image) -> Image:
    step = _step(image.height, image.width)
    return image if step == 1 else image.reduce(step)


def fonts_for(text: str) -> tuple[list[str], set[str]]:
    """Font families that together have every character of the text, and the characters none of them has."""
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
