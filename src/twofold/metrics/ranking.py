"""How well candidates are ranked: R@k, MRR, MAP, nDCG, the mean cosine, and milliseconds for a context."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from twofold.data.files import Row
from twofold.data.ranking import RankingReader, candidates_of
from twofold.data.ranks import summary_of_gains
from twofold.errors import TwofoldError
from twofold.metrics.report import Report
from twofold.model import Candidates, Ranker
from twofold.progress import Report as Progress
from twofold.types import Contexts

METRICS = ("mrr", "map", "r@1", "r@2", "r@5", "r@10", "ndcg@10", "cosine", "milliseconds")
TIMED = 100
"""How many contexts are ranked one at a time to tell how long one takes."""


@dataclass(frozen=True)
class Question:
    """One context, its candidates, and which of them are right."""

    context: list[str]
    candidates: list[str]
    gains: list[float]
    """Of each candidate how relevant it is: 0 is wrong, above 0 is right."""
    place: str

    @property
    def right(self) -> list[int]:
        """The numbers of the right candidates."""
        return [number for number, gain in enumerate(self.gains) if gain > 0]


@dataclass(frozen=True)
class Scored:
    """What a model makes of some questions."""

    scores: list[NDArray[np.float32]]
    """For each question the scores of its candidates."""
    cosines: NDArray[np.float32] | None
    """Between each context and its right response, the mean of several; a poly-encoder's context is what the response
    finds in it."""


def measure(
    model: Ranker, rows: Sequence[Row], candidates: int = 10, timed: int = TIMED, progress: Progress | None = None
) -> Report:
    """Rank every row's candidates; a pair's are its responses and `candidates` − 1 of other pairs drawn by seed."""
    asked = questions(model.reader, rows, candidates)
    scored = score_questions(model, asked, progress)
    metrics = summary_of_gains(scored.scores, [one.gains for one in asked], [one.place for one in asked])
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
    pool = list(dict.fromkeys(text for row in whole if row is not None for text in _responses(row)))
    found = []
    for number, (row, pair) in enumerate(zip(rows, whole, strict=True)):
        if pair is None:
            texts, gains = candidates_of(row)
            found.append(Question(reader.turns(row), texts, gains, row.place))
            continue
        right = list(dict.fromkeys(_responses(pair)))
        drawn = np.random.default_rng([seed, number]).permutation(len(pool))[: candidates - 1 + len(right)]
        wrong = [pool[one] for one in drawn if pool[one] not in right][: candidates - 1]
        if len(wrong) < candidates - 1:
            usable = len(pool) - len(right) + 1
            fewer = f", or take fewer candidates: train.candidates={usable}, evaluate --among {usable}"
            raise TwofoldError(
                f"{row.place}: {candidates} candidates need as many different responses, not {usable}; "
                f"judge by more rows (data.held_out=N, data.dev=FILE){fewer if usable > 1 else ''}"
            )
        gains = [1.0] * len(right) + [0.0] * len(wrong)
        found.append(Question(pair.values["context"], [*right, *wrong], gains, row.place))
    return found


def _responses(pair: Row) -> list[str]:
    """All right responses of a pair."""
    return [str(text) for text in (pair.values["response"], *pair.values.get("others", ()))]


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
    return Scored(scores, _cosines(model, asked, contexts, vectors, number))


def _cosines(
    model: Ranker, asked: Sequence[Question], contexts: Contexts, vectors: Tensor, number: Mapping[str, int]
) -> NDArray[np.float32]:
    """For each question the mean cosine between its context and its right candidates."""
    right = vectors[[number[one.candidates[place]] for one in asked for place in one.right]]
    counts = [len(one.right) for one in asked]
    if max(counts) > 1:
        rows = torch.arange(len(asked)).repeat_interleave(torch.tensor(counts))
        mask = None if contexts.mask is None else contexts.mask[rows]
        contexts = Contexts(contexts.vectors[rows], mask)
    cosines = F.cosine_similarity(model.head.towards(contexts, right), right, dim=-1).cpu().numpy()
    starts = np.cumsum([0, *counts[:-1]])
    return np.asarray(np.add.reduceat(cosines, starts) / np.array(counts, np.float32), np.float32)


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
