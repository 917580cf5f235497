"""Retrieval of the relevant texts from a whole corpus: nDCG@10, MRR, MAP and recall."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch

from twofold.data.candidates import Candidate
from twofold.data.files import Row
from twofold.data.label_columns import warn_of_unread_columns
from twofold.data.ranking import is_gain
from twofold.data.ranks import metrics_of_gains
from twofold.errors import TwofoldError
from twofold.metrics import HIGHER, Evaluation, Report
from twofold.metrics.ranking import reranked
from twofold.model import Ranker

METRICS = dict.fromkeys(("ndcg@10", "mrr", "map", "r@1", "r@10", "r@100"), HIGHER)
QUERIES = 64
"""Queries that are scored against the whole corpus at a time."""
SHOWN = 5
"""Maximum number of ids that an error names."""


@dataclass(frozen=True)
class Query:
    """Query with the texts of the corpus that are relevant to it."""

    context: Any
    gains: Mapping[int, float]
    """Gain (graded relevance, above 0) of each relevant text, by its position in the corpus."""
    place: str


def measure(evaluation: Evaluation) -> Report:
    """Scores each query, a row with `text` or `context` and `relevant` ids, with every text of the corpus."""
    model, corpus = cast(Ranker, evaluation.model), evaluation.corpus
    if model.joined:
        raise TwofoldError(
            "a cross-encoder cannot read a whole corpus for each query; evaluate it on rows with candidates"
        )
    asked = _checked(model, evaluation.rows, corpus)
    vectors = model.prepare_given(corpus, evaluation.progress).vectors
    assert vectors is not None
    texts = [document.read for document in corpus]
    metrics = []
    for start in range(0, len(asked), QUERIES):
        block = asked[start : start + QUERIES]
        contexts = [query.context for query in block]
        with torch.no_grad():
            scores = model.head.score(model.embed_contexts(contexts), vectors).cpu().numpy()
        final = reranked(evaluation.then, contexts, [texts] * len(block), list(scores))
        for query, query_scores in zip(block, final, strict=True):
            gains = np.zeros(len(corpus))
            gains[list(query.gains)] = list(query.gains.values())
            metrics.append(metrics_of_gains(query_scores, gains, query.place, (1, 10, 100)))
    return Report({name: float(np.mean([values[name] for values in metrics])) for name in METRICS}, len(asked))


def _checked(model: Ranker, queries: Sequence[Row], corpus: Sequence[Candidate]) -> list[Query]:
    """Checks all queries and the corpus before the model encodes anything, and returns the queries."""
    if not queries:
        raise TwofoldError("there are no queries to evaluate; give at least one")
    places: dict[str, int] = {}
    for number, document in enumerate(corpus):
        if (first := places.setdefault(str(document.id), number)) < number:
            twice = f"'{document.id}' at {corpus[first].place} and {document.place}"
            raise TwofoldError(f"the corpus has an id that stands twice; ids must be unique: {twice}")
    asked, unknown = [], []
    for row in queries:
        contexts = [row.text("text")] if "text" in row.values else model.reader.asked(row)
        gains = _relevant_gains(row)
        unknown += [(row.place, id) for id in gains if id not in places]
        relevant = {places[id]: gain for id, gain in gains.items() if id in places}
        asked += [Query(context, relevant, row.place) for context in contexts]
    if unknown:
        ids = list(dict.fromkeys(id for _, id in unknown))
        more = f"; {len(ids):,} ids are not: {_some(ids)}" if len(ids) > 1 else ""
        raise TwofoldError(f"{unknown[0][0]}: '{ids[0]}' is relevant here but not an id of the corpus{more}")
    read = ("text",) if "text" in queries[0].values else model.reader.columns
    warn_of_unread_columns(queries, read, "query")
    warn_of_unread_columns([Row(document.place, document.fields) for document in corpus], (), "document")
    if empty := [str(document.id) for document in corpus if not document.text.strip()]:
        counted = f"{len(empty):,} of {len(corpus):,} documents of the corpus are empty"
        warnings.warn(f"{counted}, with the ids {_some(empty)}; they are scored like any other", stacklevel=2)
    return asked


def _relevant_gains(row: Row) -> dict[str, float]:
    """Reads the gains of the ids in `relevant`: a list of ids, or a mapping to gains, where 0 is not relevant."""
    given = row.values.get("relevant")
    if isinstance(given, Mapping):
        if not all(map(is_gain, given.values())):
            raise TwofoldError(f"{row.place}: the gains in 'relevant' must be numbers from 0 up, 0 for not relevant")
        gains = {str(id): float(gain) for id, gain in given.items() if gain > 0}
        if not gains:
            raise TwofoldError(
                f"{row.place}: 'relevant' has no gain above 0; mark an id as relevant or remove the query"
            )
        return gains
    if not isinstance(given, list | tuple) or not given:
        told = "'relevant' must be a list of ids of the corpus, or a mapping of ids to gains, at least one"
        raise TwofoldError(f"{row.place}: {told}")
    for id in given:
        if isinstance(id, bool) or not isinstance(id, str | int):
            raise TwofoldError(f"{row.place}: 'relevant' holds {id!r:.60}; ids are texts or whole numbers")
    return {str(id): 1.0 for id in given}


def _some(ids: Sequence[str]) -> str:
    """Joins the first ids for an error message."""
    more = ", ..." if len(ids) > SHOWN else ""
    return ", ".join(f"'{id}'" for id in ids[:SHOWN]) + more
