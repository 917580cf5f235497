"""Random vectors, reference scores in float64, and small rankers for tests of the index."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from tests import made
from tests.conftest import decoder, encoder
from tests.rankers import small_ranker
from twofold.data.candidates import Candidate
from twofold.data.passages import Split
from twofold.data.tokenizer import TextTokenizer
from twofold.decoders import RankingDecoder, Vectors, bi, poly
from twofold.index import shards
from twofold.index.quantized import QuantizedVectors
from twofold.index.search import Query, StoredVectors, exact_top_k
from twofold.index.top_k import TopK
from twofold.model import Ranker
from twofold.results import Hit
from twofold.types import HiddenSpec, Vocabulary

Floats = NDArray[np.float32]
Scores = NDArray[np.float64]
TEXTS = list(dict.fromkeys(row["source"] for row in made.numbers(900, seed=7)))
"""Some hundred different texts."""
HEADS = ["bi", "plain", "scaled", "multihead"]
CODES = ["collinear", "dispersed", "opposite", "masked"]
CLOSE = 1e-5


def head_of(kind: str, width: int) -> RankingDecoder:
    """A head whose parameters, biases included, are random."""
    torch.manual_seed(1)
    spec, vocabulary = HiddenSpec(states=width), Vocabulary(20, 400, 0, 1, 2, 3)
    config: Any = bi.Config() if kind == "bi" else poly.Config(attention=kind)  # type: ignore[arg-type]
    head: RankingDecoder = config.build(spec, vocabulary)
    for name, value in head.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(value, std=0.3)
    return head.eval()


def context_of(codes: str, draw: np.random.Generator, number: int, width: int, scale: float = 1.0) -> Vectors:
    """One context's vectors: as trained ones lie, in all directions, in pairs whose mean is zero, or few that count."""
    noise = draw.normal(size=(number, width)) / np.sqrt(width)
    match codes:
        case "collinear":
            vectors = draw.normal(size=width) / np.sqrt(width) + 0.16 * noise
        case "opposite":
            vectors = np.concatenate([noise[: number // 2], -noise[: number // 2]])
        case _:
            vectors = noise
    mask = torch.from_numpy(np.arange(len(vectors)) < 3)[None] if codes == "masked" else None
    return Vectors(torch.from_numpy((vectors * scale).astype(np.float32))[None], mask)


def candidates_of(kind: str, draw: np.random.Generator, rows: int, width: int) -> Floats:
    """Vectors of length about 20: in clusters, each several times, or of very different lengths, some of them zero."""
    centers = draw.normal(size=(rows // 50 + 1, width))
    vectors = centers[draw.integers(len(centers), size=rows)] + 0.7 * draw.normal(size=(rows, width))
    vectors *= 20 / np.linalg.norm(vectors, axis=1, keepdims=True)
    match kind:
        case "duplicates":
            vectors = vectors[draw.integers(rows // 40 + 1, size=rows)]
        case "lengths":
            vectors *= 10.0 ** draw.uniform(-4, 2, size=(rows, 1))
            vectors[draw.random(rows) < 0.05] = 0
    return vectors.astype(np.float32)


def scores_of(head: RankingDecoder, kind: str, context: Vectors, candidates: NDArray[Any]) -> Scores:
    """Σ_i softmax_i(β s_i)·s_i of every candidate, in float64."""
    wide = candidates.astype(np.float64)
    vectors = context.vectors[0].double()
    if kind == "multihead":
        with torch.no_grad():
            whole = (
                copy.deepcopy(head)
                .double()
                .score(Vectors(vectors[None], context.mask), Vectors(torch.from_numpy(wide)[:, None]))
            )
        return np.asarray(whole[0])
    if kind == "bi":
        return np.asarray(wide @ vectors[0].numpy())
    real = vectors if context.mask is None else vectors[context.mask[0]]
    dots = wide @ real.numpy().T
    logits = dots / np.sqrt(wide.shape[1]) if kind == "scaled" else dots
    weights = np.exp(logits - logits.max(1, keepdims=True))
    return np.asarray((weights / weights.sum(1, keepdims=True) * dots).sum(1))


def best_of(
    query: Query, vectors: Floats, k: int, out: NDArray[np.bool_] | None = None, floor: float = -np.inf
) -> TopK:
    """Result of a search among some vectors."""
    return exact_top_k(query, StoredVectors(QuantizedVectors.of(vectors), vectors.__getitem__, out), k, floor)


def check_best(top: TopK, truth: Scores, k: int) -> None:
    """The best k by `truth`, which is −inf where a row does not count; beyond them only what is level with the last."""
    order = np.argsort(-top.scores, kind="stable")
    keys, scores = top.keys[order], top.scores[order]
    counted = int(np.isfinite(truth).sum())
    assert len(set(keys.tolist())) == len(keys) >= min(k, counted)
    best = np.sort(truth)[::-1][: min(k, counted)]
    rounding = 1e-6 * float(np.abs(truth[np.isfinite(truth)]).max(initial=0.0))  # of a small sum of large products
    check_scores(truth[keys[: len(best)]], best, rounding)
    check_scores(scores, truth[keys], rounding)
    if len(keys) > k:
        check_scores(truth[keys[k:]], np.repeat(best[-1], len(keys) - k), rounding)


def check_scores(scores: NDArray[Any], right: NDArray[Any], rounding: float = 0.0) -> None:
    """Place by place within 1e-5, and what rounding may do."""
    wrong = np.abs(scores - right) > CLOSE * (1 + np.abs(right)) + rounding
    assert not wrong.any(), (int(wrong.sum()), scores[wrong][:3], right[wrong][:3])


def check_hits(hits: Sequence[Hit], truth: Mapping[Any, float], k: int, rounding: float = 0.0) -> None:
    """The best k of `truth`, scores by id, in an order that is free only among scores closer than 1e-5."""
    right = np.array(sorted(truth.values(), reverse=True)[:k])
    assert len(hits) == len(right)
    assert len({hit.id for hit in hits}) == len(hits)
    expected = np.array([truth[hit.id] for hit in hits])
    check_scores(expected, right, rounding)
    check_scores(np.array([hit.score for hit in hits]), expected, rounding)


def ranker_of(tokenizer: TextTokenizer, kind: str = "poly", seed: int = 0, **settings: Any) -> Ranker:
    """A small ranker with random weights, ready to read."""
    return small_ranker(tokenizer, encoder("transformer"), decoder(kind, **settings), seed).eval()


def rounding_of(ranker: Ranker) -> float:
    """By how much scores may differ because several vectors are stored as float16 unless told."""
    return 0.02 if ranker.head.several else 0.0


def truth_of(ranker: Ranker, context: str | list[str], texts: Mapping[Any, str]) -> dict[Any, float]:
    """The score of each text, by id, computed for all of them."""
    scores = ranker.score([context], ranker.prepare(list(texts.values())))[0]
    return dict(zip(texts, scores.tolist(), strict=True))


def document_truth(ranker: Ranker, context: str, documents: Mapping[Any, str], split: str) -> dict[Any, float]:
    """The score of each document's best passage, by id, computed for all of them."""
    splitter = ranker.candidates.splitter(Split.of(split))
    spans = splitter.spans([Candidate(text, 0) for text in documents.values()])
    passages = {
        (id, number): span.passage(text)
        for (id, text), places in zip(documents.items(), spans, strict=True)
        for number, span in enumerate(places)
    }
    best: dict[Any, float] = {}
    for (id, _), score in truth_of(ranker, context, passages).items():
        best[id] = max(best.get(id, -np.inf), score)
    return best


def make_shards_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a few rows make a shard, and merge a few shards into one."""
    monkeypatch.setattr("twofold.index.incoming.CHUNK_SIZE", 7)
    monkeypatch.setattr(shards, "MERGE_FACTOR", 3)
    monkeypatch.setattr(shards, "SMALL_SHARD", 4)


def give_vectors(
    ranker: Ranker, monkeypatch: pytest.MonkeyPatch, vectors: Mapping[str, Sequence[float]], context: Vectors
) -> None:
    """Let a ranker read every text as the vector given for it, and every context as the one given."""

    def embed_candidates(texts: Sequence[str], report: Any = None) -> Vectors:
        return Vectors(torch.tensor(np.array([vectors[text] for text in texts], np.float32))[:, None])

    def embed_contexts(contexts: Sequence[Any], report: Any = None) -> Vectors:
        several = len(contexts), *context.vectors.shape[1:]
        return Vectors(context.vectors.expand(several), context.mask)

    monkeypatch.setattr(ranker, "embed_candidates", embed_candidates)
    monkeypatch.setattr(ranker, "embed_contexts", embed_contexts)
