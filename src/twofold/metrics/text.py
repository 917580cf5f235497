"""Generated text against a reference: BLEU and chrF by sacrebleu, exact match, and BLEU by source length."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import Any

from twofold.data.files import Row
from twofold.metrics.judge import Judged
from twofold.metrics.report import Report

METRICS = ("bleu", "chrf", "exact_match")
WORDS = ((1, 8), (9, 12), (13, 16), (17, 20), (21, None))
"""Source lengths, in words, that are shown apart."""


def measure(judged: Judged) -> Report:
    """Let the model write every row, then compare."""
    sources = [row.text(judged.model.source.column) for row in judged.rows]
    references = [_text(row, judged.model.targets[judged.decoder].column) for row in judged.rows]
    predictions = judged.model.predict(sources, judged.options, judged.decoder, judged.progress)
    written = [prediction.output for prediction in predictions]
    lengths = [len(" ".join([source] if isinstance(source, str) else source).split()) for source in sources]
    return Report(
        compare(written, references), len(written), {"bleu_by_length": by_length(written, references, lengths)}
    )


def compare(written: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Corpus metrics; both sides are compared in Unicode's composed form."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF

    ours, theirs = _composed(written), _composed(references)
    exact = sum(one == other for one, other in zip(ours, theirs, strict=True)) / len(ours)
    # force: sacrebleu warns of text that looks tokenized already, which is no concern of ours
    bleu, chrf = BLEU(force=True), CHRF()
    return {
        "bleu": float(bleu.corpus_score(ours, [theirs]).score),
        "chrf": float(chrf.corpus_score(ours, [theirs]).score),
        "exact_match": exact,
    }


def by_length(written: Sequence[str], references: Sequence[str], lengths: Sequence[int]) -> list[dict[str, Any]]:
    """BLEU for each range of source lengths that occurs."""
    table = []
    for low, high in WORDS:
        chosen = [number for number, length in enumerate(lengths) if low <= max(length, 1) <= (high or length)]
        if chosen:
            metrics = compare([written[number] for number in chosen], [references[number] for number in chosen])
            table.append(
                {"words": f"{low}-{high}" if high else f"{low}+", "rows": len(chosen), "bleu": metrics["bleu"]}
            )
    return table


def _text(row: Row, column: str) -> str:
    value = row.text(column)
    return value if isinstance(value, str) else " ".join(value)


def _composed(texts: Sequence[str]) -> list[str]:
    return [unicodedata.normalize("NFC", text.strip()) for text in texts]
