"""Zero-shot `default` over the scifact corpus beside sentence-transformers with the same weights, in one run."""

from __future__ import annotations

import time

import numpy as np
import torch
from _common import DATA, need, save
from sentence_transformers import SentenceTransformer

import twofold
from twofold.data.candidates import read_candidates
from twofold.data.files import read_rows
from twofold.data.named_models import folder_of
from twofold.data.ranks import ndcg
from twofold.metrics import evaluate


def main() -> None:
    need("scifact", "corpus.jsonl.gz")
    torch.set_num_threads(1)
    corpus = list(read_candidates(str(DATA / "scifact" / "corpus.jsonl.gz")))
    queries = list(read_rows(str(DATA / "scifact" / "dev_queries.jsonl.gz")))
    start = time.process_time()
    ours = evaluate(twofold.load("default"), queries, corpus=corpus).metrics
    seconds = time.process_time() - start
    start = time.process_time()
    theirs = SentenceTransformer(folder_of("default"))
    documents = theirs.encode([candidate.text for candidate in corpus], normalize_embeddings=True)
    asked = theirs.encode([str(row.values["text"]) for row in queries], normalize_embeddings=True)
    number = {str(candidate.id): place for place, candidate in enumerate(corpus)}
    values = []
    for row, scores in zip(queries, np.asarray(asked) @ np.asarray(documents).T, strict=True):
        relevant = np.zeros(len(corpus), bool)
        relevant[[number[str(id)] for id in row.values["relevant"]]] = True
        values.append(ndcg(scores, relevant, 10))
    other = time.process_time() - start
    means = {"twofold": ours["ndcg@10"], "sentence_transformers": float(np.mean(values))}
    print(f"nDCG@10: {means}; CPU seconds {seconds:.0f} against {other:.0f}")
    speeds = {"cpu_seconds": {"twofold": round(seconds), "sentence_transformers": round(other)}}
    save("retrieval", {"queries": len(queries), "corpus": len(corpus), "ndcg@10": means, "metrics": ours, **speeds})


if __name__ == "__main__":
    main()
