"""Generated text against a reference: BLEU and chrF by sacrebleu, exact match, and BLEU by source length."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any

from twofold.metrics import HIGHER, Evaluation, Report

METRICS = {"bleu": HIGHER, "chrf": HIGHER, "exact_match": HIGHER}
WORDS = ((1, 8), (9, 12), (13, 16), (17, 20), (21, None))
"""Source lengths, in words, that are shown apart."""


def measure(evaluation: Evaluation) -> Report:
    """Let the model write every row, then compare."""
    references, written = evaluation.compared()
    sources = [" ".join(evaluation.model.config.input.row_texts(row)) for row in evaluation.rows]
    # What is no text has no length in words.
    table = by_length(written, references, [len(text.split()) for text in sources]) if any(sources) else []
    return Report(compare(written, references), len(written), {"bleu_by_length": table} if table else {})


def compare(written: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Corpus metrics; both sides are compared in Unicode's composed form."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    ours, theirs = ([unicodedata.normalize("NFC", text.strip()) for text in side] for side in (written, references))
    return {
        # force: sacrebleu warns of text that looks tokenized already, which is no concern of ours
        "bleu": float(BLEU(force=True).corpus_score(ours, [theirs]).score),
        "chrf": float(CHRF().corpus_score(ours, [theirs]).score),
        "exact_match": sum(text == reference for text, reference in zip(ours, theirs, strict=True)) / len(ours),
    }


def by_length(written: Sequence[str], references: Sequence[str], lengths: Sequence[int]) -> list[dict[str, Any]]:
    """BLEU for each range of source lengths that occurs."""
    table = []
    for low, high in WORDS:
        chosen = [number for number, length in enumerate(lengths) if low <= max(length, 1) <= (high or length)]
        if chosen:
            metrics = compare([written[number] for number in chosen], [references[number] for number in chosen])
            words = f"{low}-{high}" if high else f"{low}+"
            table.append({"words": words, "rows": len(chosen), "bleu": metrics["bleu"]})
    return table
