"""The loss: what a training makes smaller."""

from __future__ import annotations

import torch

from twofold.metrics.judge import Judged
from twofold.metrics.report import Report

METRICS = ("loss",)


@torch.no_grad()
def measure(judged: Judged) -> Report:
    """The mean over everything that counts, whatever the batches."""
    model, total, count = judged.model, 0.0, 0
    was = model.training
    model.eval()
    try:
        for batch in model.batches(judged.rows, judged.decoder):
            loss = model.losses(batch)[judged.decoder]
            total, count = total + float(loss.sum), count + loss.count
    finally:
        model.train(was)
    found = {"loss": total / count} if count else {}  # training may have seen none of the labels of these rows
    return Report(found, len(judged.rows))
