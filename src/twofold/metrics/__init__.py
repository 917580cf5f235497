"""Metrics: each family is one file, which declares its metrics and whether higher is better."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar, cast

from twofold.config import part_module
from twofold.data.candidates import Candidate
from twofold.data.files import Row
from twofold.errors import TwofoldError
from twofold.generate.search import GenerateOptions
from twofold.model import Model, Ranker
from twofold.outputs import Output
from twofold.progress import Report as Progress
from twofold.results import Prediction
from twofold.results.shown import screen
from twofold.tables import cell
from twofold.types import Classes

RETRIEVAL = "retrieval"
"""Name of the family that evaluates a ranker by retrieval from a corpus."""
HIGHER, LOWER = True, False
"""Direction of a metric: values that are better."""
Value = TypeVar("Value")


@dataclass(frozen=True)
class Report:
    """Result of an evaluation."""

    metrics: dict[str, float]
    examples: int
    """Number of rows that were evaluated."""
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Further results by name: rows of tables, such as BLEU by source length."""
    signatures: dict[str, str] = field(default_factory=dict)
    """Signatures of metrics by name, such as sacrebleu's, which name every choice that a value depends on."""

    def __repr__(self) -> str:
        parts = [(name, cell(value)) for name, value in self.metrics.items()]
        parts += [(name, f"table of {len(rows):,} rows") for name, rows in self.tables.items()]
        return screen(f"Report of {self.examples:,} rows", parts)


@dataclass(frozen=True)
class Evaluation:
    """Input of a metric family: rows with their right answers, and one decoder of a model."""

    model: Model
    rows: Sequence[Row]
    decoder: str
    options: GenerateOptions
    progress: Progress | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Further settings of families, such as the number of `candidates` that a ranker chooses from."""
    corpus: Sequence[Candidate] = ()
    """Rankers: texts that are searched for those relevant to each query."""
    then: Sequence[tuple[Ranker, int]] = ()
    """Rankers: later stages of a cascade, each with the number of candidates that it re-ranks."""

    @property
    def output(self) -> Output[Any]:
        """Output of the decoder."""
        return self.model.outputs[self.decoder]

    @property
    def classes(self) -> Classes:
        """Classes of the decoder."""
        assert isinstance(self.output.spec, Classes)
        return self.output.spec

    def compared(self) -> tuple[list[Any], list[Any]]:
        """Returns the right answers of all rows, and the model's answers."""
        right = [self.output.gold(row) for row in self.rows]
        return right, [prediction.output for prediction in self.predictions()]

    def predictions(self, rows: Sequence[Row] | None = None) -> list[Prediction]:
        """Predicts the answers of the given rows, or of all rows."""
        given = [self.model.input.value(row) for row in (self.rows if rows is None else rows)]
        return self.model.predict(given, self.options, self.decoder, self.progress if rows is None else None)


class Family(Protocol):
    """Module of a metric family."""

    METRICS: Mapping[str, bool]
    """Names of the metrics; true where higher is better."""

    def measure(self, evaluation: Evaluation) -> Report: ...


def evaluate(
    model: Model,
    rows: Sequence[Row],
    options: GenerateOptions | None = None,
    decoder: str | None = None,
    families: Sequence[str] | None = None,
    progress: Progress | None = None,
    corpus: Sequence[Candidate] = (),
    then: Sequence[tuple[Ranker, int]] = (),
    **settings: Any,
) -> Report:
    """Evaluates a model by the metric families of its outputs, or by those of them in `families`.

    Without a `decoder`, all decoders are evaluated. If there are several, metric names begin with the decoder's name,
    and `loss` is the weighted sum that training minimizes. With a `corpus`, a ranker is evaluated by retrieval from it.

    settings: settings of the families: `candidates` and `timed` of `ranking`, `tokenize` of `text`
    """
    if not rows:
        raise TwofoldError("there are no examples to evaluate; give at least one")
    names = [model.decoder_name(decoder)] if decoder or len(model.decoders) == 1 else list(model.decoders)
    options = options or model.config.generate
    whole = Report({}, len(rows))
    for name in names:
        evaluation = Evaluation(model, rows, name, options, progress, settings, corpus, then)
        for kind in (RETRIEVAL,) if corpus else families_of(model, name):
            if not families or kind in families:
                whole = _joined(whole, family(kind).measure(evaluation), f"{name}." if len(names) > 1 else "")
    metrics = whole.metrics
    if len(names) > 1 and all(f"{name}.loss" in metrics for name in names):
        metrics = {"loss": sum(metrics[f"{name}.loss"] * model.weights[name] for name in names), **metrics}
    return replace(whole, metrics=metrics)


def _joined(whole: Report, part: Report, prefix: str) -> Report:
    """Adds the report of one family, whose names get the prefix."""

    def named(values: dict[str, Value]) -> dict[str, Value]:
        return {prefix + name: value for name, value in values.items()}

    return Report(
        {**whole.metrics, **named(part.metrics)},
        part.examples,
        {**whole.tables, **named(part.tables)},
        {**whole.signatures, **named(part.signatures)},
    )


def metric_directions(model: Model, rows: Sequence[Row] = (), **settings: Any) -> dict[str, bool]:
    """Returns the names of a model's metrics; true where higher is better.

    rows: rows of the evaluation, if they are known; some metrics are left out where the rows do not suit them
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
    """Returns the metric families of a decoder: those of its output, and those that its settings add."""
    return (*model.outputs[name].metrics, *model.config.tasks[name].output.metrics)


def family(kind: str) -> Family:
    """Imports a metric family: a file of this folder, a module with a dot in its name, or a file `./mine.py`."""
    module: Any = part_module("metrics", kind)
    if not hasattr(module, "METRICS") or not hasattr(module, "measure"):
        raise TwofoldError(f"the metrics '{kind}' have no METRICS and measure(evaluation)")
    return cast(Family, module)
