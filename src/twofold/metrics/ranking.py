"""How well candidates are ranked: R@k, MRR, MAP, nDCG, the mean cosine, and milliseconds for a context."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from twofold.data.ranking import Question, questions
from twofold.data.ranks import KS, summary_of_gains
from twofold.decoders import Vectors
from twofold.metrics import HIGHER, LOWER, Evaluation, Report
from twofold.model import Ranker
from twofold.progress import Report as Progress

METRICS = {
    **dict.fromkeys(("mrr", "map", *(f"r@{k}" for k in KS), "ndcg@10", "cosine"), HIGHER),
    "milliseconds": LOWER,
}
TIMED = 100
"""How many contexts are ranked one at a time to tell how long one takes."""


@dataclass(frozen=True)
class Scored:
    """What a model makes of some questions."""

    scores: list[NDArray[np.float32]]
    """For each question the scores of its candidates."""
    cosines: NDArray[np.float32] | None
    """Between each context and its right response, the mean of several; a poly-encoder's context is what the response
    finds in it."""


def measure(evaluation: Evaluation) -> Report:
    """Rank every row's candidates; a pair's are its responses and `candidates` − 1 of other pairs drawn by seed."""
    model, timed = cast(Ranker, evaluation.model), evaluation.settings.get("timed", TIMED)
    asked = questions(model.reader, evaluation.rows, evaluation.settings.get("candidates", 10))
    scored = score_questions(model, asked, evaluation.progress)
    gains, places = [question.gains for question in asked], [question.place for question in asked]
    metrics = summary_of_gains(scored.scores, gains, places)
    if scored.cosines is not None:
        metrics["cosine"] = float(scored.cosines.mean())
    if timed:
        metrics["milliseconds"] = milliseconds(model, asked[:: max(1, len(asked) // timed)][:timed])
    sizes = sorted({len(question.candidates) for question in asked})
    table = [{"candidates": "-".join(map(str, dict.fromkeys([sizes[0], sizes[-1]]))), "rows": len(asked)}]
    return Report(metrics, len(asked), {"candidates": table})


def usable(evaluation: Evaluation) -> dict[str, bool]:
    """The metrics by which a training may judge: of few candidates a recall of all of them tells nothing."""
    model = cast(Ranker, evaluation.model)
    asked = questions(model.reader, evaluation.rows, evaluation.settings.get("candidates", 10))
    fewest = min((len(question.candidates) for question in asked), default=0)
    useless = {f"r@{k}" for k in KS if k >= fewest} | {"milliseconds"}
    if model.joined or model.head.several:
        useless.add("cosine")
    return {name: higher for name, higher in METRICS.items() if name not in useless}


@torch.no_grad()
def score_questions(model: Ranker, asked: Sequence[Question], progress: Progress | None = None) -> Scored:
    """The scores of each question's candidates; texts that come again are read once."""
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
    cosines = None if model.head.several else _cosines(model, asked, contexts, vectors.single, number)
    return Scored(scores, cosines)


def _cosines(
    model: Ranker, asked: Sequence[Question], contexts: Vectors, vectors: Tensor, number: Mapping[str, int]
) -> NDArray[np.float32]:
    """For each question the mean cosine between its context and its right candidates."""
    right = vectors[[number[question.candidates[place]] for question in asked for place in question.right]]
    counts = [len(question.right) for question in asked]
    if max(counts) > 1:
        contexts = contexts[torch.arange(len(asked)).repeat_interleave(torch.tensor(counts))]
    cosines = F.cosine_similarity(model.head.towards(contexts, right), right, dim=-1).cpu().numpy()
    starts = np.cumsum([0, *counts[:-1]])
    return np.asarray(np.add.reduceat(cosines, starts) / np.array(counts, np.float32), np.float32)


def milliseconds(model: Ranker, asked: Sequence[Question]) -> float:
    """The median time to rank for one context, its candidates' vectors computed before."""
    ready = [model.prepare(question.candidates) for question in asked]
    times = []
    for question, candidates in zip(asked, ready, strict=True):
        start = time.perf_counter()
        model.rank(question.context, candidates)
        times.append((time.perf_counter() - start) * 1000)
    return float(np.median(times))
