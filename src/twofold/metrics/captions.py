"""Captions against several references each: BLEU, CIDEr-D and ROUGE-L as the COCO caption evaluation has them."""

from __future__ import annotations

import math
import operator
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import cast

import numpy as np

from twofold.metrics import HIGHER, Evaluation, Report
from twofold.outputs.captions import CaptionsOutput

METRICS = dict.fromkeys(("bleu1", "bleu2", "bleu3", "bleu4", "cider", "rouge_l"), HIGHER)
SIZES = (1, 2, 3, 4)
"""Lengths of the n-grams of BLEU and CIDEr-D."""
SIGMA = 6.0
"""CIDEr-D: standard deviation of the Gaussian penalty on differences in length."""
BETA = 1.2
"""ROUGE-L: weight of recall relative to precision (the β of the F-measure)."""

Words = list[str]
Gram = tuple[str, ...]
_ENDING = re.compile(r"(?<=\w)(n't|'(?:s|d|m|re|ve|ll))\b")
_WORD = re.compile(r"'(?:s|d|m|re|ve|ll)\b|[^\W_]+(?:[-'/][^\W_]+|(?<=\d)[.,:]\d+)*")


def measure(evaluation: Evaluation) -> Report:
    """Generates a caption for every row and compares it with the references."""
    output = cast(CaptionsOutput, evaluation.output)
    references = [output.texts(row) for row in evaluation.rows]
    written = [prediction.output for prediction in evaluation.predictions()]
    scores = {"cider": cider(written, references), "rouge_l": rouge_l(written, references)}
    return Report({**bleu(written, references), **scores}, len(written))


def words(text: str) -> list[str]:
    """Words that are compared: lower case, composed Unicode (NFC), without punctuation.

    COCO splits by the Penn Treebank tokenizer, which needs Java; this is a regular expression close to it. The endings
    'll, 's, n't and the like are words of their own; hyphens, slashes and apostrophes within a word, and the points of
    numbers, stay. Of 35,000 captions of Flickr8k all but 40 split the same: signs such as # and &, and the points of
    abbreviations, are dropped here. Any language that is written with spaces, such as Korean, splits at them.
    """
    plain = unicodedata.normalize("NFC", text.lower()).replace("’", "'")
    return _WORD.findall(_ENDING.sub(r" \1", plain))


def bleu(written: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """Corpus BLEU, from 0 to 100 and not smoothed: "bleu1" by words alone, up to "bleu4" by 1- to 4-grams.

    The reference length is that of the closest reference, or the shorter of two equally close ones. BLEU is 0 if no
    n-gram of some order matches, if no caption is long enough for it, or if all captions are empty.
    """
    ours, theirs = _split(written, references)
    length, asked = sum(map(len, ours)), 0
    for caption, right in zip(ours, theirs, strict=True):
        asked += min((abs(len(reference) - len(caption)), len(reference)) for reference in right)[1]
    penalty = math.exp(min(0.0, 1 - asked / length)) if length else 0.0
    scores, product = {}, 1.0
    for size in SIZES:
        matched = total = 0
        for caption, right in zip(ours, theirs, strict=True):
            grams = _grams(caption, size)
            matched += (grams & reduce(operator.or_, (_grams(reference, size) for reference in right))).total()
            total += grams.total()
        product *= matched / total if total else 0.0
        scores[f"bleu{size}"] = 100 * penalty * product ** (1 / size)
    return scores


def cider(written: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Mean CIDEr-D of the set, from 0 to 10; n-gram rarity (IDF) is counted over the given references.

    An n-gram that occurs in a reference of every image has weight 0, so a set of one image scores 0. An empty caption
    scores 0 too.
    """
    ours, theirs = _split(written, references)
    scores, rarest = np.zeros(len(ours)), math.log(len(ours))
    for size in SIZES:
        grams = [[_grams(reference, size) for reference in right] for right in theirs]
        images = Counter(gram for right in grams for gram in set().union(*right))
        rarity = {gram: rarest - math.log(number) for gram, number in images.items()}
        for place, (caption, right) in enumerate(zip(ours, grams, strict=True)):
            vector = _weighted(_grams(caption, size), rarity, rarest)
            for reference, counts in zip(theirs[place], right, strict=True):
                alike = _alike(vector, _weighted(counts, rarity, rarest))
                scores[place] += alike * _near(caption, reference) / len(right)
    return float(10 * scores.mean() / len(SIZES))


def rouge_l(written: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Mean ROUGE-L of the set, from 0 to 1: the best precision and the best recall over the references.

    Both are those of the longest common subsequence. An empty caption scores 0, and so does an empty reference.
    """
    ours, theirs = _split(written, references)
    scores = []
    for caption, right in zip(ours, theirs, strict=True):
        common = [_common(caption, reference) for reference in right]
        precision = max(common) / max(len(caption), 1)
        recall = max(number / max(len(reference), 1) for number, reference in zip(common, right, strict=True))
        under = recall + BETA**2 * precision
        scores.append((1 + BETA**2) * precision * recall / under if under else 0.0)
    return float(np.mean(scores))


def _split(written: Sequence[str], references: Sequence[Sequence[str]]) -> tuple[list[Words], list[list[Words]]]:
    """Splits both sides into words; an image without a caption or a reference is an error."""
    if not len(written) or len(written) != len(references):
        raise ValueError(f"{len(written)} captions and references of {len(references)} images: need as many, and any")
    for number, right in enumerate(references, 1):
        # A text is a sequence of texts too: each letter would be a reference.
        if isinstance(right, str) or not len(right):
            raise ValueError(f"image {number}: its references must be a list of at least one text, not {right!r}")
    return list(map(words, written)), [list(map(words, right)) for right in references]


def _grams(tokens: Sequence[str], size: int) -> Counter[Gram]:
    return Counter(zip(*(tokens[start:] for start in range(size)), strict=False))


def _weighted(grams: Mapping[Gram, int], rarity: Mapping[Gram, float], unseen: float) -> dict[Gram, float]:
    return {gram: number * rarity.get(gram, unseen) for gram, number in grams.items()}


def _alike(caption: Mapping[Gram, float], reference: Mapping[Gram, float]) -> float:
    """Cosine of two weighted counts, clipped: repeating an n-gram beyond the reference gains nothing."""
    product = sum(
        min(weight, reference[gram]) * reference[gram] for gram, weight in caption.items() if gram in reference
    )
    return product / (_norm(caption.values()) * _norm(reference.values())) if product else 0.0


def _norm(weights: Iterable[float]) -> float:
    return math.sqrt(sum(weight * weight for weight in weights))


def _near(caption: Sequence[str], reference: Sequence[str]) -> float:
    # COCO counts the pairs of words and not the words, so that no word and one word are as long.
    apart = max(len(caption) - 1, 0) - max(len(reference) - 1, 0)
    return math.exp(-(apart**2) / (2 * SIGMA**2))


def _common(caption: Sequence[str], reference: Sequence[str]) -> int:
    """Length of the longest common subsequence."""
    before = [0] * (len(reference) + 1)
    for word in caption:
        row = [0]
        for place, other_word in enumerate(reference):
            row.append(before[place] + 1 if word == other_word else max(row[place], before[place + 1]))
        before = row
    return before[-1]
