"""Loss and perplexity: how surprised the model is by the right answer."""

from __future__ import annotations

import math

import torch

from twofold.evaluation.judge import Judged
from twofold.evaluation.report import Report

METRICS = ("loss", "perplexity")
ROWS = 64


@torch.no_grad()
def measure(judged: Judged) -> Report:
    """The mean over everything that counts, whatever the batches."""
    model, total, count = judged.model, 0.0, 0
    was = model.training
    model.eval()
    try:
        rows = sorted(judged.rows, key=lambda row: len(str(row.values.get(model.source.column))))
        for start in range(0, len(rows), ROWS):
            loss = model.losses(model.batch_of(rows[start : start + ROWS]))[judged.decoder]
            total, count = total + float(loss.sum), count + loss.count
    finally:
        model.train(was)
    mean = total / count
    return Report({"loss": mean, "perplexity": math.exp(min(mean, 700.0))}, len(rows))
