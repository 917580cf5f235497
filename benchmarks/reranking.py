"""Zero-shot retrieval over scifact's train and dev queries: `default`, its best 50 re-ranked by `default-reranker`, and
`default-multilingual-e5`; the scores of pairs are kept, so that a run that ends early goes on."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _bootstrap import paired_bootstrap
from _common import DATA, need, processor_flags, save
from numpy.typing import NDArray

import twofold
from twofold.data.cache import cache_folder
from twofold.data.candidates import Candidate, read_candidates
from twofold.data.files import Row, read_rows
from twofold.data.ranks import metrics_of_gains
from twofold.data.top_k import best

DEPTH, QUERIES = 50, 10
"""Candidates that are re-ranked for a query, and queries that are scored at a time."""
FIRST, RERANKER, OTHER = "default", "default-reranker", "default-multilingual-e5"
METRICS = ("ndcg@10", "mrr", "r@10", "r@100")
Scores = NDArray[np.floating[Any]]


def main() -> None:
    torch.set_num_threads(1)
    corpus = list(read_candidates(str(need("scifact", "corpus.jsonl.gz"))))
    parts = [read_rows(str(DATA / "scifact" / f"{part}_queries.jsonl.gz")) for part in ("dev", "train")]
    queries = list(chain.from_iterable(parts))
    seconds: dict[str, float] = {}
    runs = {name: retrieved(name, corpus, queries, seconds) for name in (FIRST, OTHER)}
    cascade = f"{FIRST} --then {RERANKER}:{DEPTH}"
    runs[cascade] = reranked(runs[FIRST], corpus, queries, seconds)
    gains = [np.isin([str(text.id) for text in corpus], list(map(str, row.values["relevant"]))) for row in queries]
    values = {
        name: [
            metrics_of_gains(*row, (10, 100)) for row in zip(scores, gains, [row.place for row in queries], strict=True)
        ]
        for name, scores in runs.items()
    }
    means = {
        name: {metric: float(np.mean([row[metric] for row in rows])) for metric in METRICS}
        for name, rows in values.items()
    }
    ndcg = {name: [row["ndcg@10"] for row in rows] for name, rows in values.items()}
    gain = {name: vars(paired_bootstrap(ndcg[name], ndcg[FIRST])) for name in (cascade, OTHER)}
    print(json.dumps({"metrics": means, "ndcg@10 above default": gain}, indent=2))
    counts = {"queries": len(queries), "corpus": len(corpus), "depth": DEPTH, "flags": processor_flags()}
    sources = {known.name: known.place.source for known in twofold_models() if known.place}
    about = {**counts, "sources": {name: sources[name] for name in (FIRST, RERANKER, OTHER)}}
    save("reranking", {**about, "metrics": means, "ndcg@10_above_default": gain, "cpu_seconds": seconds})


def twofold_models() -> Sequence[Any]:
    from twofold.models import known_models

    return known_models()


def retrieved(
    name: str, corpus: Sequence[Candidate], queries: Sequence[Row], seconds: dict[str, float]
) -> list[Scores]:
    """Scores of all texts for each query, by a bi-encoder; they are kept."""
    path = kept_folder() / f"{name}.npy"
    if not path.exists():
        start = time.process_time()
        model = twofold.load(name)
        assert isinstance(model, twofold.Ranker)
        scores = model.score([str(row.values["text"]) for row in queries], model.prepare_given(corpus)).cpu().numpy()
        np.save(path, scores)
        path.with_suffix(".json").write_text(json.dumps(time.process_time() - start))
    seconds[name] = round(json.loads(path.with_suffix(".json").read_text()))
    return list(np.load(path))


def reranked(
    first: Sequence[Scores], corpus: Sequence[Candidate], queries: Sequence[Row], seconds: dict[str, float]
) -> list[Scores]:
    """Scores with the best `DEPTH` texts of each query ahead, in the order of the re-ranker."""
    path = kept_folder() / f"{RERANKER}.jsonl"
    done = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    chosen = [best(scores, DEPTH) for scores in first]
    model: Any = twofold.load(RERANKER) if len(done) * QUERIES < len(queries) else None
    while len(done) * QUERIES < len(queries):
        numbers = range(len(done) * QUERIES, min(len(queries), (len(done) + 1) * QUERIES))
        pairs = [(str(queries[n].values["text"]), corpus[text].text) for n in numbers for text in chosen[n]]
        start = time.process_time()
        scores = model.score_pairs(pairs).tolist()
        done.append({"seconds": time.process_time() - start, "scores": scores, "computing": model.computing})
        with path.open("a") as file:
            file.write(json.dumps(done[-1]) + "\n")
        print(f"{min(len(queries), len(done) * QUERIES)} of {len(queries)} queries re-ranked", flush=True)
    seconds[RERANKER] = round(sum(block["seconds"] for block in done))
    scores = np.reshape(list(chain.from_iterable(block["scores"] for block in done)), (len(queries), DEPTH))
    final = []
    for row, texts, new in zip(first, chosen, scores, strict=True):
        ahead = row - row.max() + new.min() - 1
        ahead[texts] = new
        final.append(ahead)
    return final


def kept_folder() -> Path:
    """Folder of the scores that are kept between runs."""
    folder = cache_folder() / "reranking"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


if __name__ == "__main__":
    main()
