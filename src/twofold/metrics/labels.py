"""One label for each row against the right one: accuracy, F1 and Matthews correlation."""

from __future__ import annotations

from typing import Any

import numpy as np

from twofold.data.labels import LabelField
from twofold.metrics.judge import Judged
from twofold.metrics.label_scores import label_scores
from twofold.metrics.report import Report
from twofold.model.config import TOLD
from twofold.types import Classes

METRICS = ("accuracy", "macro_f1", "micro_f1", "matthews")


def measure(judged: Judged) -> Report:
    """Let the model label every row, then compare; a label that it has never seen is one more that it misses."""
    field: LabelField | None = judged.model.targets.get(judged.decoder)
    if field is None:
        return _own(judged)
    assert isinstance(field.output, Classes)
    right = [name for row in judged.rows for name in field.names(row)]
    found = [prediction.output for prediction in judged.predictions()]
    return _report(found, right, list(dict.fromkeys([*field.output.names, *right])))


def _own(judged: Judged) -> Report:
    """How well it is told whether the second text of a pair is another's."""
    found: list[int] = []
    right: list[int] = []
    for batch in judged.model.batches(judged.rows, judged.decoder):
        found += [int(one.values.argmax()) for one in judged.model.answers(batch, judged.decoder)]
        right += batch.targets[judged.decoder].tokens[:, 0].tolist()
    return _report([TOLD[one] for one in found], [TOLD[one] for one in right], list(TOLD))


def _report(found: list[str], right: list[str], names: list[str]) -> Report:
    number = {name: place for place, name in enumerate(names)}
    scores = label_scores(
        np.array([number[name] for name in found]), np.array([number[name] for name in right]), len(names)
    )
    metrics = {"accuracy": scores.accuracy, "macro_f1": scores.macro_f1}
    metrics |= {"micro_f1": scores.micro_f1, "matthews": scores.matthews}
    each = scores.by_class
    table: list[dict[str, Any]] = [
        {
            "label": name,
            "precision": float(each.precision[place]),
            "recall": float(each.recall[place]),
            "f1": float(each.f1[place]),
            "rows": int(each.support[place]),
        }
        for place, name in enumerate(names)
        if each.support[place]
    ]
    return Report(metrics, len(right), {"labels": table})
