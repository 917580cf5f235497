"""Runs a model over rows and lets the decoder's metric families judge it."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

from twofold.data.files import Row
from twofold.data.picture_fields import PictureField
from twofold.errors import TwofoldError
from twofold.evaluation.report import Report
from twofold.generate.options import GenerateOptions
from twofold.model import Learner, Model, Ranker
from twofold.progress import Report as Progress
from twofold.types import Decoder


@dataclass(frozen=True)
class Judged:
    """What a metric family looks at."""

    model: Model
    rows: Sequence[Row]
    decoder: str
    options: GenerateOptions
    progress: Progress | None = None


def evaluate(
    model: Model | Ranker,
    rows: Sequence[Row],
    options: GenerateOptions | None = None,
    decoder: str | None = None,
    families: Sequence[str] | None = None,
    progress: Progress | None = None,
    **ranking: int,
) -> Report:
    """Judge one decoder of the model, the first unless named, by its own metric families or by the given ones.

    For a ranker, `candidates` and `timed` are those of `twofold.evaluation.ranking.measure`.
    """
    if not rows:
        raise TwofoldError("there is no example to judge the model by")
    if isinstance(model, Ranker):
        from twofold.evaluation.ranking import measure

        return measure(model, rows, progress=progress, **ranking)
    name = model.decoder_name(decoder)
    judged = Judged(model, rows, name, options or model.config.generate, progress)
    report = Report({}, len(rows))
    for family in families or families_of(model, name):
        measured: Report = _family(family).measure(judged)
        report.metrics.update(measured.metrics)
        report.tables.update(measured.tables)
    return report


def metric_names(model: Learner) -> list[str]:
    """The metrics by which the model's first decoder may be judged."""
    name = next(name for name, _ in model.get_submodule("decoders").named_children())
    return [metric for family in families_of(model, name) for metric in _family(family).METRICS]


def families_of(model: Learner, name: str) -> list[str]:
    """The metric families that judge a decoder; of a picture there are several captions that are right."""
    metrics = cast(Decoder, model.get_submodule(f"decoders.{name}")).metrics
    shown = isinstance(model, Model) and isinstance(model.source, PictureField)
    return ["captions" if shown and family == "text" else family for family in metrics]


def _family(name: str) -> Any:
    return importlib.import_module(f"twofold.evaluation.{name}")
