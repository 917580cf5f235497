"""Generated text against a reference: BLEU and chrF by sacrebleu, exact match, and BLEU by source length."""

from __future__ import annotations

import unicodedata
import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from twofold.errors import TwofoldError, did_you_mean
from twofold.metrics import HIGHER, Evaluation, Report

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU

METRICS = {"bleu": HIGHER, "chrf": HIGHER, "exact_match": HIGHER}
WORDS = ((1, 8), (9, 12), (13, 16), (17, 20), (21, None))
"""Ranges of source lengths, in words, of the table of BLEU by length."""
AUTO = "auto"
"""Tokenizer setting: ko-mecab for Korean references where it is installed, else 13a."""
STANDARD, KOREAN = "13a", "ko-mecab"
"""Tokenizers of sacrebleu: for languages with spaces between words, and for Korean (morphemes)."""


def measure(evaluation: Evaluation) -> Report:
    """Generates a text for every row and compares it with the reference."""
    references, written = evaluation.compared()
    tokenize = tokenizer_for(references, evaluation.settings.get("tokenize", AUTO))
    sources = [" ".join(evaluation.model.config.input.row_texts(row)) for row in evaluation.rows]
    # Inputs that are not texts have no length in words.
    lengths = [len(text.split()) for text in sources]
    table = by_length(written, references, lengths, tokenize) if any(sources) else []
    metrics, signatures = compare(written, references, tokenize), signatures_of(tokenize)
    return Report(metrics, len(written), {"bleu_by_length": table} if table else {}, signatures)


def compare(written: Sequence[str], references: Sequence[str], tokenize: str = STANDARD) -> dict[str, float]:
    """Computes corpus metrics; both sides are compared in Unicode's composed form (NFC)."""
    from sacrebleu.metrics.chrf import CHRF

    ours, theirs = ([unicodedata.normalize("NFC", text.strip()) for text in side] for side in (written, references))
    return {
        "bleu": float(_bleu(tokenize).corpus_score(ours, [theirs]).score),
        "chrf": float(CHRF().corpus_score(ours, [theirs]).score),
        "exact_match": sum(text == reference for text, reference in zip(ours, theirs, strict=True)) / len(ours),
    }


def signatures_of(tokenize: str) -> dict[str, str]:
    """Returns sacrebleu's signatures of BLEU and chrF, with which papers report their values."""
    from sacrebleu.metrics.chrf import CHRF

    metrics = {"bleu": _bleu(tokenize), "chrf": CHRF()}
    for metric in metrics.values():
        metric.corpus_score([""], [[""]])  # the number of references becomes known
    return {name: str(metric.get_signature()) for name, metric in metrics.items()}


def by_length(
    written: Sequence[str], references: Sequence[str], lengths: Sequence[int], tokenize: str = STANDARD
) -> list[dict[str, Any]]:
    """Computes BLEU for each range of source lengths that occurs."""
    table = []
    for low, high in WORDS:
        chosen = [number for number, length in enumerate(lengths) if low <= max(length, 1) <= (high or length)]
        if chosen:
            metrics = compare(
                [written[number] for number in chosen], [references[number] for number in chosen], tokenize
            )
            words = f"{low}-{high}" if high else f"{low}+"
            table.append({"words": words, "rows": len(chosen), "bleu": metrics["bleu"]})
    return table


def tokenizer_for(references: Sequence[str], tokenize: str = AUTO) -> str:
    """Returns the name of sacrebleu's tokenizer for some references; `auto` chooses by their language."""
    if tokenize != AUTO:
        _bleu(tokenize)
        return tokenize
    letters = [letter for text in references for letter in unicodedata.normalize("NFC", text) if letter.isalpha()]
    if 2 * sum("가" <= letter <= "힣" for letter in letters) <= len(letters):
        return STANDARD
    try:
        _bleu(KOREAN)
    except TwofoldError:
        _say_standard()
        return STANDARD
    return KOREAN


def _bleu(tokenize: str) -> BLEU:
    """Makes sacrebleu's BLEU with a tokenizer; an unknown one, or one that is not installed, is an error."""
    from sacrebleu.metrics.bleu import BLEU

    if tokenize not in BLEU.TOKENIZERS:
        raise TwofoldError(
            f"tokenize: sacrebleu has no tokenizer '{tokenize}'; {did_you_mean(tokenize, BLEU.TOKENIZERS)}"
        )
    try:
        return BLEU(tokenize=tokenize, force=True)  # force: no warning of texts that look tokenized
    except (RuntimeError, ImportError) as error:
        language = (
            f"; pip install 'sacrebleu[{tokenize[:2]}]'" if "-" in tokenize else f" ({' '.join(str(error).split())})"
        )
        raise TwofoldError(f"tokenize: sacrebleu's tokenizer '{tokenize}' is not installed{language}") from None


@lru_cache(maxsize=1)
def _say_standard() -> None:
    """Warns once that Korean is compared word by word."""
    warnings.warn(
        f"BLEU of Korean is computed with sacrebleu's tokenizer {STANDARD}; {KOREAN}, which compares morphemes, needs "
        "`pip install 'sacrebleu[ko]'`",
        stacklevel=4,
    )
