"""Captions against all captions that people gave: BLEU-1 to 4, CIDEr and ROUGE-L."""

from __future__ import annotations

from twofold.data.image_fields import CaptionField
from twofold.metrics.caption_scores import bleu, cider, rouge_l
from twofold.metrics.judge import Judged
from twofold.metrics.report import Report

METRICS = ("bleu1", "bleu2", "bleu3", "bleu4", "cider", "rouge_l")


def measure(judged: Judged) -> Report:
    """Let the model describe every image, then compare."""
    field: CaptionField = judged.model.targets[judged.decoder]
    references = [field.texts(row) for row in judged.rows]
    written = [prediction.output for prediction in judged.predictions()]
    metrics = {
        **bleu(written, references),
        "cider": cider(written, references),
        "rouge_l": rouge_l(written, references),
    }
    return Report(metrics, len(written))
