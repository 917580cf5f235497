"""Runs a model over rows and lets the decoder's metric families judge it."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from twofold.data.files import Row
from twofold.data.image_fields import ImageField
from twofold.errors import TwofoldError
from twofold.generate.options import GenerateOptions
from twofold.metrics.report import Report
from twofold.model import Learner, Model, Ranker
from twofold.progress import Report as Progress
from twofold.results import Prediction
from twofold.types import Decoder


@dataclass(frozen=True)
class Judged:
    """What a metric family looks at."""

    model: Model
    rows: Sequence[Row]
    decoder: str
    options: GenerateOptions
    progress: Progress | None = None

    def predictions(self) -> list[Prediction]:
        """What the model makes of every row."""
        given = [self.model.source.taken(row) for row in self.rows]
        return self.model.predict(given, self.options, self.decoder, self.progress)


def evaluate(
    model: Model | Ranker,
    rows: Sequence[Row],
    options: GenerateOptions | None = None,
    decoder: str | None = None,
    families: Sequence[str] | None = None,
    progress: Progress | None = None,
    **ranking: int,
) -> Report:
    """Judge the model by the metric families of its decoder, or by the given ones among them.

    Of several decoders all are judged unless one is named: each metric then bears its decoder's name, and `loss` is the
    sum that a training minimizes. For a ranker, `candidates` and `timed` are those of `metrics.ranking.measure`.
    """
    if not rows:
        raise TwofoldError("there is no example to judge the model by")
    if isinstance(model, Ranker):
        from twofold.metrics.ranking import measure

        return measure(model, rows, progress=progress, **ranking)
    names = [model.decoder_name(decoder)] if decoder or len(model.decoders) == 1 else list(model.decoders)
    report = Report({}, len(rows))
    for name in names:
        judged = Judged(model, rows, name, options or model.config.generate, progress)
        before = f"{name}." if len(names) > 1 else ""
        for family in families_of(model, name):
            if families and family not in families:
                continue
            measured: Report = _family(family).measure(judged)
            report.metrics.update({before + metric: value for metric, value in measured.metrics.items()})
            report.tables.update({before + table: lines for table, lines in measured.tables.items()})
    if len(names) > 1 and all(f"{name}.loss" in report.metrics for name in names):
        losses = [report.metrics[f"{name}.loss"] * model.weights[name] for name in names]
        return replace(report, metrics={"loss": sum(losses), **report.metrics})
    return report


def metric_names(model: Learner) -> list[str]:
    """The metrics by which the model may be judged; of several decoders each under its name."""
    names = [name for name, _ in model.get_submodule("decoders").named_children()]
    found = {name: [one for family in families_of(model, name) for one in _family(family).METRICS] for name in names}
    if len(names) == 1:
        return found[names[0]]
    return ["loss", *(f"{name}.{metric}" for name in names for metric in found[name])]


def families_of(model: Learner, name: str) -> list[str]:
    """The metric families that judge a decoder; of an image there are several captions that are right."""
    metrics = cast(Decoder, model.get_submodule(f"decoders.{name}")).metrics
    shown = isinstance(model, Model) and isinstance(model.source, ImageField)
    return ["captions" if shown and family == "text" else family for family in metrics]


def _family(name: str) -> Any:
    return importlib.import_module(f"twofold.metrics.{name}")
