"""How well the relevant texts of a whole corpus are found: nDCG@10, MRR, MAP and recall."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray

from twofold.data.candidates import Candidate
from twofold.data.files import Row
from twofold.data.ranks import average_precision, ndcg, recall_at, reciprocal_rank
from twofold.data.relevance import is_gain, unread_columns, warn_of_unread
from twofold.errors import TwofoldError
from twofold.metrics import HIGHER, Evaluation, Report
from twofold.model import Ranker

METRICS = dict.fromkeys(("ndcg@10", "mrr", "map", "r@1", "r@10", "r@100"), HIGHER)
QUERIES = 64
"""How many queries are scored against the whole corpus at a time."""
DEPTH = 10
SHOWN = 5
"""How many ids a line names."""


@dataclass(frozen=True)
class Query:
    """One query, and which texts of the corpus are relevant to it."""

    text: str | list[str]
    gains: Mapping[int, float]
    """Of the relevant texts, by their places in the corpus: how relevant they are, above 0."""
    place: str


def measure(evaluation: Evaluation) -> Report:
    """Score every query, a row with `text` or `context` and `relevant` ids, against every text of the corpus."""
    model, queries, corpus = cast(Ranker, evaluation.model), evaluation.rows, evaluation.corpus
    if model.joined:
        raise TwofoldError("a cross-encoder cannot read a whole corpus for each query; judge it by rows of candidates")
    asked = checked(model, queries, corpus)
    vectors = model.embed_candidates([document.text for document in corpus], evaluation.progress)
    values: dict[str, list[float]] = {name: [] for name in METRICS}
    for start in range(0, len(asked), QUERIES):
        block = asked[start : start + QUERIES]
        with torch.no_grad():
            scores = model.head.score(model.embed_contexts([one.text for one in block]), vectors).cpu().numpy()
        for query, own in zip(block, scores, strict=True):
            gains = _gains(query, len(corpus))
            relevant = gains > 0
            values["ndcg@10"].append(ndcg(own, gains, DEPTH, place=query.place))
            values["mrr"].append(reciprocal_rank(own, relevant, place=query.place))
            values["map"].append(average_precision(own, relevant, place=query.place))
            for k in (1, 10, 100):
                values[f"r@{k}"].append(recall_at(own, relevant, k, place=query.place))
    return Report({name: float(np.mean(found)) for name, found in values.items()}, len(asked))


def checked(model: Ranker, queries: Sequence[Row], corpus: Sequence[Candidate]) -> list[Query]:
    """The queries, once all of them and the corpus can be used; nothing is read by the model for it."""
    if not queries:
        raise TwofoldError("there is no query to judge the model by")
    places = {str(one.id): number for number, one in enumerate(corpus)}
    if len(places) < len(corpus):
        raise TwofoldError(f"the corpus has an id that stands twice; ids must be unique: {_first_twice(corpus)}")
    asked, unknown = [], []
    for row in queries:
        text = row.text("text") if "text" in row.values else model.reader.turns(row)
        gains = relevant_gains(row)
        unknown += [(row.place, id) for id in gains if id not in places]
        asked.append(Query(text, {places[id]: gain for id, gain in gains.items() if id in places}, row.place))
    if unknown:
        raise TwofoldError(_unknown(unknown))
    _warn_of_columns(model, queries, corpus)
    _warn_of_empty(corpus)
    return asked


def relevant_gains(row: Row) -> dict[str, float]:
    """What is relevant to a query, by id: a list of ids, or a mapping to gains, of which 0 means not relevant."""
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


def _gains(query: Query, count: int) -> NDArray[np.float64]:
    gains = np.zeros(count)
    gains[list(query.gains)] = list(query.gains.values())
    return gains


def _unknown(unknown: Sequence[tuple[str, str]]) -> str:
    place, id = unknown[0]
    line = f"{place}: '{id}' is relevant here but not an id of the corpus"
    ids = list(dict.fromkeys(id for _, id in unknown))
    return line if len(ids) == 1 else f"{line}; {len(ids):,} ids are not: {_some(ids)}"


def _first_twice(corpus: Sequence[Candidate]) -> str:
    seen: dict[str, Candidate] = {}
    twice = next(one for one in corpus if seen.setdefault(str(one.id), one) is not one)
    return f"'{twice.id}' at {seen[str(twice.id)].place} and {twice.place}"


def _warn_of_empty(corpus: Sequence[Candidate]) -> None:
    empty = [str(one.id) for one in corpus if not one.text.strip()]
    if empty:
        counted = f"{len(empty):,} of {len(corpus):,} documents of the corpus are empty"
        warnings.warn(f"{counted}, with the ids {_some(empty)}; they are scored like any other", stacklevel=2)


def _warn_of_columns(model: Ranker, queries: Sequence[Row], corpus: Sequence[Candidate]) -> None:
    """Name columns that look like labels and are not read."""
    read = ("text",) if "text" in queries[0].values else (model.reader.context, model.reader.preface)
    found = [(row.place, names) for row in queries if (names := unread_columns(row, "query", read))]
    if found:
        warn_of_unread(found[0][0], [name for _, names in found for name in names], "query", len(found))
    found = [(one.place, names) for one in corpus if (names := unread_columns(Row(one.place, one.fields), "document"))]
    if found:
        warn_of_unread(found[0][0], [name for _, names in found for name in names], "document", len(found))


def _some(ids: Sequence[str]) -> str:
    more = ", ..." if len(ids) > SHOWN else ""
    return ", ".join(f"'{id}'" for id in ids[:SHOWN]) + more
