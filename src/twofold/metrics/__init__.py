"""How good a model is: one metric family a file, which declares its metrics and whether a higher value is better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from twofold.config import part_module
from twofold.data.candidates import Candidate
from twofold.data.files import Row
from twofold.errors import TwofoldError
from twofold.generate.search import GenerateOptions
from twofold.model import Model
from twofold.outputs import Output
from twofold.progress import Report as Progress
from twofold.results import Prediction
from twofold.types import Classes

RETRIEVAL = "retrieval"
"""The family that judges a ranker by a whole corpus."""
HIGHER, LOWER = True, False
"""Which values of a metric are better."""


@dataclass(frozen=True)
class Report:
    """Metrics by name, over how many examples, and tables that go with them."""

    metrics: dict[str, float]
    examples: int
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)


@dataclass(frozen=True)
class Evaluation:
    """What a metric family looks at: rows with their right answers, and one decoder of a model."""

    model: Model
    rows: Sequence[Row]
    decoder: str
    options: GenerateOptions
    progress: Progress | None = None
    settings: Mapping[str, int] = field(default_factory=dict)
    """Further settings of a family, such as the number of `candidates` that a ranker chooses from."""
    corpus: Sequence[Candidate] = ()
    """Rankers: all texts among which those that are relevant to a query are looked for."""

    @property
    def output(self) -> Output[Any]:
        """What the decoder writes."""
        return self.model.outputs[self.decoder]

    @property
    def classes(self) -> Classes:
        """What the decoder tells apart."""
        assert isinstance(self.output.spec, Classes)
        return self.output.spec

    def compared(self) -> tuple[list[Any], list[Any]]:
        """The right answers of all rows, and the model's."""
        right = [self.output.gold(row) for row in self.rows]
        return right, [prediction.output for prediction in self.predictions()]

    def predictions(self, rows: Sequence[Row] | None = None) -> list[Prediction]:
        """What the model makes of every row, or of some."""
        given = [self.model.input.value(row) for row in (self.rows if rows is None else rows)]
        return self.model.predict(given, self.options, self.decoder, self.progress if rows is None else None)


class Family(Protocol):
    """The module of a metric family."""

    METRICS: Mapping[str, bool]
    """Its metrics, and whether a higher value is better."""

    def measure(self, evaluation: Evaluation) -> Report: ...


def evaluate(
    model: Model,
    rows: Sequence[Row],
    options: GenerateOptions | None = None,
    decoder: str | None = None,
    families: Sequence[str] | None = None,
    progress: Progress | None = None,
    corpus: Sequence[Candidate] = (),
    **settings: int,
) -> Report:
    """Judge the model by the metric families of its output, or by the given ones among them.

    Of several decoders all are judged unless one is named: each metric then bears its decoder's name, and `loss` is the
    sum that a training minimizes. For a ranker, `candidates` and `timed` are settings of the family `ranking`; with a
    `corpus` it is judged by what it finds there.
    """
    if not rows:
        raise TwofoldError("there is no example to judge the model by")
    names = [model.decoder_name(decoder)] if decoder or len(model.decoders) == 1 else list(model.decoders)
    metrics: dict[str, float] = {}
    tables: dict[str, list[dict[str, Any]]] = {}
    examples = len(rows)
    for name in names:
        evaluation = Evaluation(model, rows, name, options or model.config.generate, progress, settings, corpus)
        before = f"{name}." if len(names) > 1 else ""
        for kind in (RETRIEVAL,) if corpus else families_of(model, name):
            if families and kind not in families:
                continue
            measured = family(kind).measure(evaluation)
            metrics |= {before + metric: value for metric, value in measured.metrics.items()}
            tables |= {before + table: lines for table, lines in measured.tables.items()}
            examples = measured.examples
    if len(names) > 1 and all(f"{name}.loss" in metrics for name in names):
        metrics = {"loss": sum(metrics[f"{name}.loss"] * model.weights[name] for name in names), **metrics}
    return Report(metrics, examples, tables)


def metric_directions(model: Model, rows: Sequence[Row] = (), **settings: int) -> dict[str, bool]:
    """The metrics by which the model may be judged, and whether higher is better; of several decoders by name.

    rows: those by which it will be judged, if that is known, which may not allow for all metrics of a family
    """
    directions: dict[str, bool] = {} if len(model.decoders) == 1 else {"loss": LOWER}
    for name in model.decoders:
        evaluation = Evaluation(model, rows, name, model.config.generate, settings=settings)
        before = f"{name}." if len(model.decoders) > 1 else ""
        for kind in families_of(model, name):
            module = family(kind)
            usable = getattr(module, "usable", None)
            metrics = usable(evaluation) if usable and rows else module.METRICS
            directions |= {before + metric: better for metric, better in metrics.items()}
    return directions


def families_of(model: Model, name: str) -> tuple[str, ...]:
    """The metric families that judge a decoder: those of its output, and those that its settings add."""
    return (*model.outputs[name].metrics, *model.config.tasks[name].output.metrics)


def family(kind: str) -> Family:
    """A metric family by its name: a file of this folder, a module with a dot in its name, or a file `./mine.py`."""
    module: Any = part_module("metrics", kind)
    if not hasattr(module, "METRICS") or not hasattr(module, "measure"):
        raise TwofoldError(f"the metrics '{kind}' have no METRICS and measure(evaluation)")
    return cast(Family, module)
