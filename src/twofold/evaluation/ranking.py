"""How well candidates are ranked: R@k, MRR, MAP, nDCG, the mean cosine, and milliseconds for a context."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from twofold.data.files import Row
from twofold.data.ranking import RankingReader, candidates_of
from twofold.errors import TwofoldError
from twofold.evaluation.report import Report
from twofold.model import Candidates, Ranker
from twofold.progress import Report as Progress
from twofold.ranks import places, summary

METRICS = ("mrr", "map", "r@1", "r@2", "r@5", "r@10", "ndcg@10", "cosine", "milliseconds")
TIMED = 100
"""How many contexts are ranked one at a time to tell how long one takes."""


@dataclass(frozen=True)
class Question:
    """One context, its candidates, and which of them is right."""

    context: list[str]
    candidates: list[str]
    right: int
    place: str


@dataclass(frozen=True)
class Scored:
    """What a model makes of some questions."""

    scores: list[NDArray[np.float32]]
    """For each question the scores of its candidates."""
    cosines: NDArray[np.float32] | None
    """Between each context and its right response; a poly-encoder's context is what the response finds in it."""


def measure(
    model: Ranker, rows: Sequence[Row], candidates: int = 10, timed: int = TIMED, progress: Progress | None = None
) -> Report:
    """Rank every row's candidates; a pair's are its response and those of `candidates` − 1 others drawn by seed."""
    asked = questions(model.reader, rows, candidates)
    scored = score_questions(model, asked, progress)
    metrics = summary(places(scored.scores, [one.right for one in asked], [one.place for one in asked]))
    if scored.cosines is not None:
        metrics["cosine"] = float(scored.cosines.mean())
    if timed:
        metrics["milliseconds"] = milliseconds(model, asked[:: max(1, len(asked) // timed)][:timed])
    sizes = {len(one.candidates) for one in asked}
    table = [{"candidates": "-".join(map(str, sorted({min(sizes), max(sizes)}))), "rows": len(asked)}]
    return Report(metrics, len(asked), {"candidates": table})


def questions(reader: RankingReader, rows: Sequence[Row], candidates: int = 10, seed: int = 1) -> list[Question]:
    """Rows of candidates as they are; pairs among responses of other pairs that are not the same text."""
    whole = [reader.row(row) if row.values.get("candidates") is None else None for row in rows]
    pool = list(dict.fromkeys(str(row.values["response"]) for row in whole if row is not None))
    found = []
    for number, (row, pair) in enumerate(zip(rows, whole, strict=True)):
        if pair is None:
            texts, right = candidates_of(row)
            found.append(Question(reader.turns(row), texts, right, row.place))
            continue
        response = str(pair.values["response"])
        if len(pool) < candidates:
            fewer = f", or take fewer candidates: train.candidates={len(pool)}, evaluate --among {len(pool)}"
            raise TwofoldError(
                f"{row.place}: {candidates} candidates need as many different responses, not {len(pool)}; "
                f"judge by more rows (data.held_out=N, data.dev=FILE){fewer if len(pool) > 1 else ''}"
            )
        draw = np.random.default_rng([seed, number]).permutation(len(pool))[:candidates]
        others = [pool[one] for one in draw if pool[one] != response][: candidates - 1]
        found.append(Question(pair.values["context"], [response, *others], 0, row.place))
    return found


@torch.no_grad()
def score_questions(model: Ranker, asked: Sequence[Question], progress: Progress | None = None) -> Scored:
    """The scores of each question's candidates; texts that come again are read once."""
    if model.joined:
        pairs = [(one.context, text) for one in asked for text in one.candidates]
        flat = model.score_pairs(pairs, _scaled(progress, len(pairs), len(asked))).cpu().numpy()
        return Scored(np.split(flat, np.cumsum([len(one.candidates) for one in asked])[:-1]), None)
    texts = list(dict.fromkeys(text for one in asked for text in one.candidates))
    number = {text: place for place, text in enumerate(texts)}
    contexts = model.embed_contexts([one.context for one in asked], progress)
    vectors = model.embed_candidates(texts)
    scores = []
    for row, one in enumerate(asked):
        chosen = vectors[[number[text] for text in one.candidates]]
        scores.append(model.head.score(contexts.rows(row, row + 1), chosen)[0].cpu().numpy())
    right = vectors[[number[one.candidates[one.right]] for one in asked]]
    cosines = F.cosine_similarity(model.head.towards(contexts, right), right, dim=-1)
    return Scored(scores, cosines.cpu().numpy())


def milliseconds(model: Ranker, asked: Sequence[Question]) -> float:
    """The median time to rank for one context, its candidates' vectors computed before."""
    ready: list[Candidates] = [model.prepare(one.candidates) for one in asked]
    times = []
    for one, candidates in zip(asked, ready, strict=True):
        start = time.perf_counter()
        model.rank(one.context, candidates)
        times.append((time.perf_counter() - start) * 1000)
    return float(np.median(times))


def _scaled(progress: Progress | None, of: int, to: int) -> Progress | None:
    return None if progress is None else lambda done: progress(done * to // of)
