"""Loss that training minimizes."""

from __future__ import annotations

import torch

from twofold.metrics import LOWER, Evaluation, Report

METRICS = {"loss": LOWER}


@torch.no_grad()
def measure(evaluation: Evaluation) -> Report:
    """Measures the mean loss over all rows, whatever the batches."""
    model, total, count = evaluation.model, 0.0, 0
    with model.evaluating():
        for batch in model.batches(evaluation.rows, evaluation.decoder):
            loss = model.losses(batch)[evaluation.decoder]
            total, count = total + float(loss.sum), count + loss.count
    # Training may have seen none of the labels of these rows.
    return Report({"loss": total / count} if count else {}, len(evaluation.rows))
