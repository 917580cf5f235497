"""How well the relevant texts of a whole corpus are found: nDCG@10, MRR, MAP and recall."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from twofold.data.candidates import Candidate
from twofold.data.files import Row
from twofold.errors import TwofoldError
from twofold.evaluation.report import Report
from twofold.model import Ranker
from twofold.progress import Report as Progress
from twofold.ranks import average_precision, ndcg, recall_at, reciprocal_rank

QUERIES = 64
"""How many queries are scored against the whole corpus at a time."""
DEPTH = 10


def measure(model: Ranker, queries: Sequence[Row], corpus: Sequence[Candidate], progress: Progress | None) -> Report:
    """Score every query, a row with `text` or `context` and `relevant` ids, against every text of the corpus."""
    if model.joined:
        raise TwofoldError("a cross-encoder cannot read a whole corpus for each query; judge it by rows of candidates")
    number = {str(one.id): place for place, one in enumerate(corpus)}
    if len(number) < len(corpus):
        raise TwofoldError("the corpus has an id that stands twice; ids must be unique")
    vectors = model.embed_candidates([one.text for one in corpus], progress)
    values: dict[str, list[float]] = {"ndcg@10": [], "mrr": [], "map": [], "r@1": [], "r@10": [], "r@100": []}
    for start in range(0, len(queries), QUERIES):
        block = queries[start : start + QUERIES]
        texts = [row.text("text") if "text" in row.values else model.reader.turns(row) for row in block]
        with torch.no_grad():
            scores = model.head.score(model.embed_contexts(texts), vectors).cpu().numpy()
        for row, own in zip(block, scores, strict=True):
            relevant = np.zeros(len(corpus), bool)
            relevant[[_place(row, one, number) for one in _relevant(row)]] = True
            values["ndcg@10"].append(ndcg(own, relevant, DEPTH, place=row.place))
            values["mrr"].append(reciprocal_rank(own, relevant, place=row.place))
            values["map"].append(average_precision(own, relevant, place=row.place))
            for k in (1, 10, 100):
                values[f"r@{k}"].append(recall_at(own, relevant, k, place=row.place))
    return Report({name: float(np.mean(found)) for name, found in values.items()}, len(queries))


def _relevant(row: Row) -> list[object]:
    found = row.values.get("relevant")
    if not isinstance(found, list) or not found:
        raise TwofoldError(f"{row.place}: 'relevant' must be a list of ids of the corpus, at least one")
    return found


def _place(row: Row, one: object, number: dict[str, int]) -> int:
    if str(one) not in number:
        raise TwofoldError(f"{row.place}: '{one}' is relevant here but not an id of the corpus")
    return number[str(one)]
