"""Loss and perplexity: how surprised the model is by the right answer."""

from __future__ import annotations

import math

import torch

from twofold.evaluation.judge import Judged
from twofold.evaluation.report import Report

METRICS = ("loss", "perplexity")


@torch.no_grad()
def measure(judged: Judged) -> Report:
    """The mean over everything that counts, whatever the batches."""
    model, total, count = judged.model, 0.0, 0
    was = model.training
    model.eval()
    try:
        for batch in model.batches(judged.rows):
            loss = model.losses(batch)[judged.decoder]
            total, count = total + float(loss.sum), count + loss.count
    finally:
        model.train(was)
    mean = total / max(count, 1)
    return Report({"loss": mean, "perplexity": math.exp(min(mean, 700.0))}, len(judged.rows))
