"""Models in the formats of other programs: ONNX, OpenVINO, CTranslate2 and sentence-transformers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from twofold import storage
from twofold.config import unstructure
from twofold.data.files import Row
from twofold.errors import TwofoldError, did_you_mean
from twofold.exporting import card, int8
from twofold.exporting.graphs import plain
from twofold.exporting.job import Job
from twofold.exporting.parity import Parity
from twofold.model import Model

FORMATS = ("onnx", "openvino", "ctranslate2", "sentence-transformers")
"""Formats; each is a file of this package."""


@dataclass(frozen=True)
class Exported:
    """Result of an export."""

    out: Path
    parity: Parity


def export(
    model: Model,
    out: str | Path,
    to: str = "onnx",
    training: Path | None = None,
    quantize: bool = False,
    rows: Sequence[Row] = (),
) -> Exported:
    """Writes a model to a new folder `out` in another format, with its certificate and card, or nothing at all.

    training: folder of the training that made the model, whose data and results the card names
    quantize: store weights in int8; `rows` must not rank worse for it
    """
    out = Path(out)
    if to not in FORMATS:
        raise TwofoldError(f"--to {to}: {did_you_mean(to, FORMATS)}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise TwofoldError(f"{out}: is there already; choose another folder")
    refuse_own_parts(own_kinds(unstructure(model.config)))
    writer: Any = import_module(f"twofold.exporting.{to.replace('-', '_')}")
    if missing := [package for package in writer.NEEDS if find_spec(package) is None]:
        raise TwofoldError(f"--to {to} needs {', '.join(missing)}: {writer.EXTRA}")
    if quantize and not writer.MAY_BE_INT8:
        raise TwofoldError(f"--int8 is for --to onnx, not for {to}; leave it out")
    if quantize:
        int8.check(model, bool(rows))
    job = Job(model, to, training, quantize, rows)
    with plain(model), storage.new_folder(out) as aside:
        parity: Parity = writer.write(job, aside)
        parity.write(aside)
        card.write(job, parity, writer.example(model), aside)
    return Exported(out, parity)


def own_kinds(settings: Any, name: str = "") -> Iterator[str]:
    """Yields the kinds in settings that are a user's own."""
    if isinstance(settings, dict):
        for key, value in settings.items():
            yield from own_kinds(value, key)
    elif isinstance(settings, list):
        for value in settings:
            yield from own_kinds(value, name)
    elif name == "kind" and "." in str(settings):
        yield str(settings)


def refuse_own_parts(kinds: Iterator[str]) -> None:
    """Refuses a model with parts of the user's own, which nobody knows elsewhere."""
    for kind in kinds:
        raise TwofoldError(f"the part '{kind}' is the user's own, which other programs do not know; it is not exported")
