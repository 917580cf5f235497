"""Scores and rankings: `rank`, `rank_many`, `similarity`, and the scores and vectors that they are made of."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from twofold.data.candidates import Candidate, Text, with_ids
from twofold.data.memory import list_in_memory
from twofold.data.top_k import as_k, best
from twofold.decoders import Vectors
from twofold.errors import TwofoldError, as_list
from twofold.model.candidates import Candidates, as_pairs, different, encoded_once
from twofold.model.representation import CANDIDATES, CONTEXTS, PAIRS
from twofold.model.vectors import finite, keep_items
from twofold.progress import Report
from twofold.results import Hit, Hits

if TYPE_CHECKING:
    from twofold.model.ranker import Ranker


def rank(ranker: Ranker, context: Any, candidates: Iterable[Any] | Candidates, k: int = 10) -> Hits:
    """Ranks candidates for a context: the k best, best first; equal scores keep the order of the candidates.

    context: text, or a list with the turns of a dialogue, oldest first; or whatever else the model reads
    candidates: texts, or rows with `text`, `id` and further fields: dicts, a `datasets.Dataset` or a DataFrame; or what
        `prepare` returned
    """
    start = time.perf_counter()
    chosen = candidates if isinstance(candidates, Candidates) else ranker.prepare(candidates)
    if not len(chosen):
        raise TwofoldError("there are no candidates to rank; give at least one")
    k = as_k(k)
    scored = ranker.score([ranker.check_context(context)], chosen)[0].cpu()
    scored = scored[chosen.first]  # a product of matrices may differ in the last digit from column to column
    scores, likely = scored.numpy(), ranker.head.probabilities(scored)
    hits = [
        Hit(
            chosen.texts[number],
            float(scores[number]),
            chosen.ids[number],
            probability=None if likely is None else float(likely[number]),
        )
        for number in best(scores, k)
    ]
    return Hits(hits, True, (time.perf_counter() - start) * 1000)


def rank_many(
    ranker: Ranker, contexts: Iterable[Any], candidates: Iterable[Any] | Candidates, k: int = 10
) -> list[Hits]:
    """Ranks the candidates for each context; the candidates are encoded once for all contexts."""
    chosen = candidates if isinstance(candidates, Candidates) else ranker.prepare(candidates)
    return [ranker.rank(context, chosen, k) for context in ranker.as_contexts(contexts)]


def similarity(ranker: Ranker, queries: Any, texts: Any) -> NDArray[np.float32]:
    """Scores each query with each text, as the model's decoder does: (queries, texts)."""
    asked = [queries] if ranker.contexts.is_single(queries) else queries
    others = [texts] if ranker.candidates.is_single(texts) else texts
    return ranker.score(asked, others).cpu().numpy()


def prepare(
    ranker: Ranker, texts: Iterable[Any], ids: Iterable[Any] | None = None, report: Report | None = None
) -> Candidates:
    """Encodes candidates once for many calls of `rank`.

    texts: texts, or rows with `text` and `id`: dicts, a `datasets.Dataset` or a DataFrame; images as paths, Pillow
        images, arrays or rows
    ids: ids of the candidates; by default their own, or their positions in the list, from 0
    """
    given = with_ids(list(ranker.candidates.candidates(list_in_memory(texts, "texts"), blank=True)), ids)
    return ranker.prepare_given(given, report)


def prepare_given(ranker: Ranker, given: Sequence[Candidate], report: Report | None = None) -> Candidates:
    """Encodes candidates that were read from a file or a list."""
    texts = [candidate.text for candidate in given]
    vectors = None
    if given and ranker.reads_alone:
        items = ranker.candidates.items_of([candidate.read for candidate in given])
        vectors = ranker.keep_candidates(items, report)
    return Candidates(texts, [candidate.id for candidate in given], vectors)


@torch.no_grad()
def score(ranker: Ranker, contexts: Iterable[Any], candidates: Iterable[Any] | Candidates) -> Tensor:
    """Scores each context with each candidate: (contexts, candidates)."""
    asked = ranker.as_contexts(contexts)
    chosen = candidates if isinstance(candidates, Candidates) else ranker.prepare(candidates)
    if not asked or not len(chosen):
        raise TwofoldError(f"there are no {'candidates' if asked else 'contexts'} to score; give at least one")
    with ranker.evaluating():
        parts = []
        if chosen.vectors is not None:
            parts.append(ranker.head.score(ranker.embed_contexts(asked), chosen.vectors))
        if ranker.joined:
            parts.append(
                torch.stack([_joint_pairs(ranker, [(text, other) for other in chosen.texts]) for text in asked])
            )
        return finite("scores", parts[0] if len(parts) == 1 else parts[0] + parts[1])


@torch.no_grad()
def score_pairs(ranker: Ranker, pairs: Iterable[tuple[Text, str]], report: Report | None = None) -> Tensor:
    """Scores each context with the candidate of the same pair: (pairs,)."""
    pairs = as_pairs(pairs)
    if not ranker.joined:
        return finite("scores", _compare_pairs(ranker, pairs, report))
    joint = _joint_pairs(ranker, pairs, report)
    return finite("scores", joint + _compare_pairs(ranker, pairs) if ranker.reads_alone else joint)


def embed_candidates(ranker: Ranker, texts: Iterable[Any], report: Report | None = None) -> Vectors:
    """Encodes candidates to the vectors that the decoder scores."""
    return ranker.keep_candidates(candidate_items(ranker, texts), report)


def candidate_items(ranker: Ranker, texts: Iterable[Any]) -> list[Any]:
    """Items of candidates, such as the token ids of texts."""
    given = ranker.candidates.candidates(list_in_memory(texts, "texts"), blank=True)
    return ranker.candidates.items_of([candidate.read for candidate in given])


def embed_contexts(ranker: Ranker, contexts: Iterable[Any], report: Report | None = None) -> Vectors:
    """Encodes contexts to the vectors that the decoder scores."""
    return ranker.keep_contexts(ranker.contexts.items_of(ranker.as_contexts(contexts)), report)


def keep_candidates(ranker: Ranker, items: Sequence[Any], report: Report | None = None) -> Vectors:
    """Encodes candidates that are items of their input."""
    return keep_items(ranker, CANDIDATES, items, report)


def keep_contexts(ranker: Ranker, items: Sequence[Any], report: Report | None = None) -> Vectors:
    """Encodes contexts that are items of their input."""
    return keep_items(ranker, CONTEXTS, items, report)


def as_contexts(ranker: Ranker, contexts: Any) -> list[Any]:
    """Checks a list of contexts; a bare string is an error."""
    given = enumerate(as_list(contexts, "contexts"))
    return [ranker.contexts.accepted(context, f"contexts[{number}]") for number, context in given]


def check_context(ranker: Ranker, context: Any) -> Any:
    """Checks a single context; an empty one is an error."""
    return ranker.contexts.accepted(context, "the context", filled=True)


def _joint_pairs(ranker: Ranker, pairs: Sequence[tuple[Text, str]], report: Report | None = None) -> Tensor:
    """Scores pairs that are read as one text each: (pairs,)."""
    first = encoded_once(ranker.contexts, [context for context, _ in pairs])
    second = encoded_once(ranker.candidates, [text for _, text in pairs])
    return keep_items(ranker, PAIRS, list(zip(first, second, strict=True)), report).vectors


def _compare_pairs(ranker: Ranker, pairs: Sequence[tuple[Text, str]], report: Report | None = None) -> Tensor:
    """Scores pairs by vectors of the two texts encoded apart: (pairs,)."""
    asked, of_pair = different([context for context, _ in pairs])
    place = {text: number for number, text in enumerate(dict.fromkeys(text for _, text in pairs))}
    contexts, vectors = ranker.embed_contexts(asked, report), ranker.embed_candidates(list(place))
    places = zip(of_pair, (place[text] for _, text in pairs), strict=True)
    return torch.stack(
        [ranker.head.score(contexts[row : row + 1], vectors[text : text + 1])[0, 0] for row, text in places]
    )
