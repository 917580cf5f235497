"""Ranking of given candidates: R@k, MRR, MAP, nDCG, the mean cosine, and milliseconds for each context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from twofold.data.ranking import Question, questions
from twofold.data.ranks import KS, summary_of_gains
from twofold.data.top_k import best
from twofold.decoders import Vectors
from twofold.metrics import HIGHER, LOWER, Evaluation, Report
from twofold.model import Ranker
from twofold.model.candidates import cascade
from twofold.progress import Report as Progress

METRICS = {
    **dict.fromkeys(("mrr", "map", *(f"r@{k}" for k in KS), "ndcg@10", "cosine"), HIGHER),
    "milliseconds": LOWER,
}
TIMED = 100
"""Default number of contexts that are ranked one at a time to measure the time of one."""


@dataclass(frozen=True)
class Scored:
    """Scores of a model for some questions."""

    scores: list[NDArray[np.floating[Any]]]
    """Scores of the candidates of each question."""
    cosines: NDArray[np.float32] | None
    """Mean cosine of each context and its right responses; for a poly-encoder, of the context vector that the response
    attends to."""


def measure(evaluation: Evaluation) -> Report:
    """Ranks the candidates of every row; a pair gets `candidates` − 1 responses of other pairs, drawn by seed."""
    model, timed = cast(Ranker, evaluation.model), evaluation.settings.get("timed", TIMED)
    asked = questions(model.reader, evaluation.rows, evaluation.settings.get("candidates", 10))
    scored = score_questions(model, asked, evaluation.progress)
    contexts, candidates = [question.context for question in asked], [question.candidates for question in asked]
    scores = reranked(evaluation.then, contexts, candidates, scored.scores)
    gains, places = [question.gains for question in asked], [question.place for question in asked]
    metrics = summary_of_gains(scores, gains, places)
    if scored.cosines is not None and not evaluation.then:
        metrics["cosine"] = float(scored.cosines.mean())
    if timed:
        timed_questions = asked[:: max(1, len(asked) // timed)][:timed]
        metrics["milliseconds"] = milliseconds(model, timed_questions, evaluation.then)
    sizes = sorted({len(question.candidates) for question in asked})
    table = [{"candidates": "-".join(map(str, dict.fromkeys([sizes[0], sizes[-1]]))), "rows": len(asked)}]
    return Report(metrics, len(asked), {"candidates": table})


def usable(evaluation: Evaluation) -> dict[str, bool]:
    """Returns the metrics that can choose the best checkpoint; recall at the number of candidates is always 1."""
    model = cast(Ranker, evaluation.model)
    asked = questions(model.reader, evaluation.rows, evaluation.settings.get("candidates", 10))
    fewest = min((len(question.candidates) for question in asked), default=0)
    useless = {f"r@{k}" for k in KS if k >= fewest} | {"milliseconds"}
    if model.joined or model.head.several:
        useless.add("cosine")
    return {name: higher for name, higher in METRICS.items() if name not in useless}


@torch.no_grad()
def score_questions(model: Ranker, asked: Sequence[Question], progress: Progress | None = None) -> Scored:
    """Scores the candidates of each question; equal texts are encoded once."""
    if model.joined:
        pairs = [(question.context, text) for question in asked for text in question.candidates]
        scaled = None if progress is None else lambda done: progress(done * len(asked) // len(pairs))
        flat = model.score_pairs(pairs, scaled).cpu().numpy()
        return Scored(np.split(flat, np.cumsum([len(question.candidates) for question in asked])[:-1]), None)
    texts = list(dict.fromkeys(text for question in asked for text in question.candidates))
    number = {text: place for place, text in enumerate(texts)}
    contexts = model.embed_contexts([question.context for question in asked], progress)
    vectors = model.embed_candidates(texts)
    scores = []
    for row, question in enumerate(asked):
        chosen = vectors[[number[text] for text in question.candidates]]
        scores.append(model.head.score(contexts[row : row + 1], chosen)[0].cpu().numpy())
    known = not model.head.several and all(question.right for question in asked)
    return Scored(scores, _cosines(model, asked, contexts, vectors.single, number) if known else None)


def reranked(
    then: Sequence[tuple[Ranker, int]],
    contexts: Sequence[Any],
    candidates: Sequence[Sequence[Any]],
    scores: list[NDArray[np.floating[Any]]],
) -> list[NDArray[np.floating[Any]]]:
    """Re-ranks the best candidates of each context by the later stages of a cascade; the others stay behind them."""
    fewest = None
    for ranker, depth in then:
        fewest = depth if fewest is None else min(depth, fewest)
        first = [best(row, fewest) for row in scores]
        rows = zip(contexts, candidates, first, strict=True)
        asked = [
            Question(context, [texts[n] for n in chosen], [0.0] * len(chosen), "") for context, texts, chosen in rows
        ]
        again = score_questions(ranker, asked).scores
        scores = [_ahead(row, chosen, new) for row, chosen, new in zip(scores, first, again, strict=True)]
    return scores


def _ahead(
    scores: NDArray[np.floating[Any]], chosen: Sequence[int], new: NDArray[np.floating[Any]]
) -> NDArray[np.floating[Any]]:
    """Gives some candidates new scores, and shifts the others below all of these; their order and ties remain."""
    shifted = scores.astype(np.float64)
    shifted += float(new.min()) - 1 - float(scores.max())
    shifted[list(chosen)] = new
    return shifted


def _cosines(
    model: Ranker, asked: Sequence[Question], contexts: Vectors, vectors: Tensor, number: Mapping[str, int]
) -> NDArray[np.float32]:
    """Computes the mean cosine of each question's context and right candidates."""
    right = vectors[[number[question.candidates[place]] for question in asked for place in question.right]]
    counts = [len(question.right) for question in asked]
    if max(counts) > 1:
        contexts = contexts[torch.arange(len(asked)).repeat_interleave(torch.tensor(counts))]
    cosines = F.cosine_similarity(model.head.towards(contexts, right), right, dim=-1).cpu().numpy()
    starts = np.cumsum([0, *counts[:-1]])
    return np.asarray(np.add.reduceat(cosines, starts) / np.array(counts, np.float32), np.float32)


def milliseconds(model: Ranker, asked: Sequence[Question], then: Sequence[tuple[Ranker, int]] = ()) -> float:
    """Measures the median time to rank for one context; the first stage's candidates are encoded before."""
    ready = [model.prepare(question.candidates) for question in asked]
    times = []
    for question, candidates in zip(asked, ready, strict=True):
        first = partial(model.rank, question.context, candidates)
        times.append(cascade(first, len(candidates), then, question.context).milliseconds)
    return float(np.median(times))
