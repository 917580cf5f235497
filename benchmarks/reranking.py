"""Zero-shot retrieval over scifact's train and dev queries: `default`, its best 50 re-ranked by `default-reranker`, and
`default-multilingual-e5`. Vectors and scores are kept in the cache folder, so that a run that ends early goes on."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from _bootstrap import paired_bootstrap
from _common import DATA, need, processor_flags, save
from numpy.typing import NDArray

import twofold
from twofold.data.cache import cache_folder
from twofold.data.candidates import Candidate, read_candidates
from twofold.data.files import read_rows
from twofold.data.named_models import find_model
from twofold.data.ranks import metrics_of_gains
from twofold.data.top_k import best

DEPTH = 50
"""Candidates that are re-ranked for a query."""
QUERIES, TEXTS = 5, 200
"""Queries that are re-ranked, and texts that are encoded, between two times that something is kept."""
FIRST, RERANKER, OTHER = "default", "default-reranker", "default-multilingual-e5"
CASCADE = f"{FIRST} --then {RERANKER}:{DEPTH}"
METRICS = ("ndcg@10", "mrr", "r@10", "r@100")
Scores = NDArray[np.floating[Any]]


class Kept:
    """Blocks of numbers of one model in the cache folder, with their CPU time and how they were computed."""

    def __init__(self, name: str) -> None:
        self.name, self.folder = name, cache_folder() / "reranking" / name
        self.folder.mkdir(parents=True, exist_ok=True)
        self.model: Any = None

    def block(self, number: int, compute: Any) -> NDArray[Any]:
        """Returns a block, computed by `compute(model)` unless it is there."""
        path = self.folder / f"{number:05}.npy"
        if not path.exists():
            self.model = self.model or twofold.load(self.name, runtime="torch")
            start = time.process_time()
            np.save(path.with_suffix(".new.npy"), compute(self.model))
            about = {"seconds": time.process_time() - start, **self.model.computing}
            path.with_suffix(".json").write_text(json.dumps(about))
            path.with_suffix(".new.npy").rename(path)
            print(f"{self.name}: block {number + 1}", flush=True)
        return np.asarray(np.load(path))

    def about(self) -> dict[str, Any]:
        """CPU seconds of all blocks, the source of the weights, runtime and precision."""
        blocks = [json.loads(path.read_text()) for path in sorted(self.folder.glob("*.json"))]
        place = find_model(self.name)
        assert place is not None
        how = {name: blocks[0][name] for name in ("runtime", "precision")}
        return {"cpu_seconds": round(sum(block["seconds"] for block in blocks)), "source": place.source, **how}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--queries", type=int, help="only the first so many queries, those of dev first")
    asked = parser.parse_args().queries
    torch.set_num_threads(1)
    corpus = list(read_candidates(str(need("scifact", "corpus.jsonl.gz"))))
    parts = [read_rows(str(DATA / "scifact" / f"{part}_queries.jsonl.gz")) for part in ("dev", "train")]
    rows = list(chain.from_iterable(parts))[:asked]
    texts = [str(row.values["text"]) for row in rows]
    kept = {name: Kept(name) for name in (FIRST, OTHER, RERANKER)}
    runs = {name: retrieved(kept[name], corpus, texts) for name in (FIRST, OTHER)}
    runs[CASCADE] = reranked(kept[RERANKER], runs[FIRST], corpus, texts)
    ids = [str(candidate.id) for candidate in corpus]
    places = [row.place for row in rows]
    gains = [np.isin(ids, list(map(str, row.values["relevant"]))) for row in rows]
    values = {
        name: [metrics_of_gains(*given, (10, 100)) for given in zip(scores, gains, places, strict=True)]
        for name, scores in runs.items()
    }
    means = {name: {metric: mean(found, metric) for metric in METRICS} for name, found in values.items()}
    ndcg = {name: [query["ndcg@10"] for query in found] for name, found in values.items()}
    above = {name: vars(paired_bootstrap(ndcg[name], ndcg[FIRST])) for name in (CASCADE, OTHER)}
    counts = {"queries": len(rows), "corpus": len(corpus), "depth": DEPTH, "flags": processor_flags()}
    measured = {**counts, "metrics": means, "ndcg@10_above_default": above}
    print(json.dumps(measured, indent=2))
    save("reranking", {**measured, "models": {name: model.about() for name, model in kept.items()}})


def mean(queries: Sequence[dict[str, float]], metric: str) -> float:
    return float(np.mean([query[metric] for query in queries]))


def retrieved(kept: Kept, corpus: Sequence[Candidate], queries: Sequence[str]) -> list[Scores]:
    """Scores of all texts of the corpus for each query, by a bi-encoder."""
    blocks = []
    for number, start in enumerate(range(0, len(corpus), TEXTS)):
        texts = [candidate.text for candidate in corpus[start : start + TEXTS]]
        blocks.append(kept.block(number, lambda model, texts=texts: model.encode(texts)))
    asked = kept.block(99_999 - len(queries), lambda model: model.encode_query(list(queries)))
    return list(asked @ np.concatenate(blocks).T)


def reranked(kept: Kept, first: Sequence[Scores], corpus: Sequence[Candidate], queries: Sequence[str]) -> list[Scores]:
    """Scores with the best `DEPTH` texts of each query ahead, in the order of the re-ranker."""
    chosen, blocks = [best(scores, DEPTH) for scores in first], []
    for number, start in enumerate(range(0, len(queries), QUERIES)):
        block = range(start, min(len(queries), start + QUERIES))
        pairs = [(queries[row], corpus[text].text) for row in block for text in chosen[row]]
        blocks.append(kept.block(number, lambda model, pairs=pairs: model.score_pairs(pairs).numpy()))
    again = np.concatenate(blocks).reshape(len(queries), DEPTH)
    return [ahead(*row) for row in zip(first, chosen, again, strict=True)]


def ahead(scores: Scores, chosen: Sequence[int], again: Scores) -> Scores:
    """Gives some texts their new scores, and shifts the others below all of these."""
    shifted = scores.astype(np.float64) - float(scores.max()) + float(again.min()) - 1
    shifted[list(chosen)] = again
    return shifted


if __name__ == "__main__":
    main()
