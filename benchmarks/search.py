"""Exact search of poly-encoders beside flat scans, and the forms of scoring that others use: ratios in one run.

The heads are trained here on the embedded default, whose weights stay as they are, so that one set of candidate vectors
serves all heads. Vectors beyond the real sentences are real ones plus noise as large as the median distance between
nearest neighbours, their length kept. Times are CPU times of one thread.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"  # before any of these is imported

import faiss
import numpy as np
import torch
from _common import ROOT, need, save

import twofold
from twofold.api import load_ranker
from twofold.cli.stdlib_docs import pairs, standard_library_docs
from twofold.data.files import read_rows
from twofold.decoders import Vectors
from twofold.index.catalog import Catalog
from twofold.index.quantized import QuantizedProjections, QuantizedVectors, principal_directions
from twofold.index.search import Query, StoredVectors, approximate_top_k, exact_top_k
from twofold.index.shards import SHARD_FOLDER, Shard
from twofold.index.top_k import TopK
from twofold.model.ranker import Ranker

K = 10
TEXTS = {
    "ubuntu_irc/train_pairs.jsonl.gz": "response",
    "sgd/train_pairs.jsonl.gz": "response",
    "personachat/train_pairs.jsonl.gz": "response",
    "dailydialogpp/train_pairs.jsonl.gz": "response",
    "multi30k/train.tsv.gz": "en",
    "clinc150/train.tsv.gz": "text",
    "banking77/train.tsv.gz": "text",
}


def sentences(limit: int) -> list[str]:
    """Different real sentences: what the standard library says about itself, then the data sets in turn."""
    texts = dict.fromkeys(str(pair["response"]) for pair in pairs(standard_library_docs()))
    readers: list[Iterator[str]] = [_column(file, name) for file, name in TEXTS.items()]
    for text in itertools.chain.from_iterable(itertools.zip_longest(*readers)):
        if len(texts) >= limit:
            break
        if text and text.strip():
            texts[text] = None
    return list(texts)[:limit]


def _column(file: str, name: str) -> Iterator[str]:
    return (str(row.values[name]) for row in read_rows(str(need(*file.split("/")))))


def trained(codes: int, runs: Path, rows: int) -> Ranker:
    """A poly-encoder on the embedded default; only its head learns."""
    folder = runs / f"search_poly{codes}"
    changes = [
        f"data.rows={rows}",
        "train.min_steps=null",
        f"decoder.codes={codes}",
        "train.learning_rate_multipliers={encoder: 0, decoders.main.codes: 10}",
    ]
    command = [sys.executable, "-m", "twofold", "train", "rank_poly", *changes, "--out", str(folder), "--resume"]
    subprocess.run(command, check=True, cwd=ROOT)
    return load_ranker(folder)


def enlarged(vectors: np.ndarray[Any, Any], count: int) -> np.ndarray[Any, Any]:
    """Real vectors, then real ones with noise."""
    if count <= len(vectors):
        return vectors[:count]
    random = np.random.default_rng(1)
    sample = vectors[random.choice(len(vectors), 1000, replace=False)]
    nearest = [np.sort(np.linalg.norm(vectors - vector, axis=1))[1] for vector in sample[:200]]
    size = float(np.median(nearest)) / np.sqrt(vectors.shape[1])
    result = np.empty((count, vectors.shape[1]), np.float32)
    result[: len(vectors)] = vectors
    for start in range(len(vectors), count, len(vectors)):
        some = vectors[: count - start]
        noisy = some + size * random.standard_normal(some.shape, dtype=np.float32)
        lengths = np.linalg.norm(some, axis=1, keepdims=True) / np.linalg.norm(noisy, axis=1, keepdims=True)
        result[start : start + len(some)] = noisy * lengths
    return result


def quantized_of(vectors: np.ndarray[Any, Any]) -> QuantizedVectors:
    """As an index keeps them."""
    parts = [QuantizedVectors.of(vectors[start : start + 65_536]) for start in range(0, len(vectors), 65_536)]
    return QuantizedVectors(
        *(np.concatenate(values) for values in zip(*(vars(part).values() for part in parts), strict=True))
    )


class Candidates:
    """The same vectors as each program wants them."""

    def __init__(self, vectors: np.ndarray[Any, Any]) -> None:
        self.vectors, self.torch = vectors, torch.from_numpy(vectors)
        self.directions = principal_directions(vectors[:: max(1, len(vectors) // 8192)])
        self.stored = StoredVectors(
            quantized_of(vectors), self.rows, projections=QuantizedProjections.of(vectors, self.directions)
        )
        self.faiss = faiss.IndexFlatIP(vectors.shape[1])
        self.faiss.add(vectors)

    def rows(self, rows: Any) -> Any:
        """Reads vectors as a shard does."""
        return self.vectors[rows] if isinstance(rows, slice) else self.vectors.take(rows, 0)

    def exact(self, query: Query) -> TopK:
        """All that comes after the model has read the context."""
        return exact_top_k(Query(query.head, query.contexts), self.stored, K)

    def fast(self, query: Query) -> TopK:
        return approximate_top_k(Query(query.head, query.contexts, self.directions), self.stored, K)

    def flat_numpy(self, vector: np.ndarray[Any, Any]) -> Any:
        scores = self.vectors @ vector
        return np.argpartition(scores, len(scores) - K)[len(scores) - K :]

    def flat_torch(self, vector: np.ndarray[Any, Any]) -> Any:
        return torch.topk(self.torch @ torch.from_numpy(vector), K)

    def flat_faiss(self, vectors: np.ndarray[Any, Any], threshold: int = 128_000) -> Any:
        faiss.cvar.distance_compute_blas_threshold = threshold
        return self.faiss.search(vectors, K)

    def product(self, query: Query) -> Any:
        """One matrix product, one softmax, every candidate scored."""
        return torch.topk(query.head.score(query.contexts, Vectors(self.torch[:, None]))[0], K)

    def public(self, query: Query) -> Any:
        """A context vector for every candidate, a block at a time so that it fits into memory."""
        codes = query.contexts.vectors[0]
        parts = []
        for block in (self.torch[start : start + 10_000] for start in range(0, len(self.torch), 10_000)):
            weights = (block @ codes.T).softmax(1)
            parts.append(((weights @ codes) * block).sum(1))
        return torch.topk(torch.cat(parts), K)


def milliseconds(run: Callable[[], Any]) -> float:
    start = time.thread_time()
    run()
    return (time.thread_time() - start) * 1000


def compare(candidates: Candidates, queries: list[Query], slow: int) -> dict[str, Any]:
    """Medians over the queries, all programs in turn on each; the slow ones on the first few only."""
    times: dict[str, list[float]] = {}
    recalls: list[float] = []
    wrong = 0
    for number, query in enumerate(queries):
        codes = query.contexts.vectors[0].numpy()
        mean = codes.mean(0)
        programs: dict[str, Callable[[], Any]] = {
            "exact": partial(candidates.exact, query),
            "fast": partial(candidates.fast, query),
            "flat_numpy": partial(candidates.flat_numpy, mean),
            "flat_torch": partial(candidates.flat_torch, mean),
            "flat_faiss": partial(candidates.flat_faiss, mean[None]),
        }
        if number < slow:
            programs["tuned_flat_searches"] = partial(candidates.flat_faiss, codes, 20)
            programs["product_and_softmax"] = partial(candidates.product, query)
            programs["public_form"] = partial(candidates.public, query)
            hits, want = candidates.exact(query), candidates.product(query)
            recalls.append(float(np.isin(want.indices.numpy(), candidates.fast(query).keys).mean()))
            best = np.sort(hits.scores)[::-1][:K]
            wrong += not np.allclose(best, want.values.numpy(), rtol=1e-5, atol=1e-5)
        for name, run in programs.items():
            times.setdefault(name, []).append(milliseconds(run))
    medians = {name: statistics.median(values) for name, values in times.items()}
    flat = min(medians[name] for name in medians if name.startswith("flat"))
    ratios = {name: round(value / flat, 3) for name, value in medians.items()}
    cosines = np.mean([_collinear(query) for query in queries])
    return {
        "fast_recall": round(statistics.mean(recalls), 4),
        "milliseconds": medians,
        "ratio_to_best_flat": ratios,
        "wrong": wrong,
        "mean_cosine": round(float(cosines), 3),
    }


def _collinear(query: Query) -> float:
    unit = torch.nn.functional.normalize(query.contexts.vectors[0], dim=-1)
    count = len(unit)
    return float(((unit @ unit.T).sum() - count) / max(1, count * (count - 1)))


def dispersed(query: Query, random: np.random.Generator) -> Query:
    """The same number of vectors of the same lengths, in random directions."""
    vectors = query.contexts.vectors[0]
    drawn = torch.from_numpy(random.standard_normal(tuple(vectors.shape), dtype=np.float32))
    drawn = torch.nn.functional.normalize(drawn, dim=-1) * vectors.norm(dim=-1, keepdim=True)
    return Query(query.head, Vectors(drawn[None]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--real", type=int, default=100_000, help="how many real sentences are read")
    parser.add_argument("--sizes", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--queries", type=int, default=60)
    parser.add_argument("--rows", type=int, default=1500, help="pairs that each head learns from")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs", help="the folder of heads and index")
    options = parser.parse_args()
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    real, about = read(options.runs / f"search_index_{options.real}", options.real)
    asked = contexts(options.queries)
    random = np.random.default_rng(2)
    measured: list[dict[str, Any]] = []
    for codes in (16, 64):
        ranker = trained(codes, options.runs, options.rows)
        queries = [Query(ranker.head, ranker.embed_contexts([context])) for context in asked]
        scale = float(ranker.embed_candidates(["any"]).vectors.norm())  # candidates are of this length
        for size in options.sizes:
            candidates = Candidates(enlarged(real * scale, size))
            slow = 20 if size <= 100_000 else 5
            for kind, some in (
                ("trained", queries),
                ("dispersed", [dispersed(query, random) for query in queries[:slow]]),
            ):
                line = {"codes": codes, "kind": kind, "candidates": size, "real": min(1.0, len(real) / size)}
                line |= compare(candidates, some, slow)
                print(line, flush=True)
                measured.append(line)
            del candidates
    plot(measured, ROOT / "docs" / "search.svg")
    save("search", {"k": K, "queries": len(asked), **about, "measured": measured})


def read(folder: Path, count: int) -> tuple[np.ndarray[Any, Any], dict[str, Any]]:
    """The vectors of real sentences, read into an index, and what that took; one that is there already is taken."""
    notes = folder.with_suffix(".json")
    if not notes.exists():
        start = time.process_time()
        twofold.build_index(folder, "default", sentences(count), show=True).close()
        notes.write_text(json.dumps({"build_sentences_per_cpu_second": count / (time.process_time() - start)}))
    info = twofold.open_index(folder).info()
    per_million = {name: round(size / info["candidates"]) for name, size in info["bytes"].items()}  # bytes → megabytes
    shards = [Shard(folder / SHARD_FOLDER, record) for record in Catalog(folder).shards()]
    vectors = np.concatenate([shard.vectors(np.arange(len(shard))) for shard in shards])
    return vectors, {**json.loads(notes.read_text()), "real": len(vectors), "disk_megabytes_per_million": per_million}


def contexts(count: int) -> list[list[str]]:
    """Real contexts, from two data sets in turn."""
    rows = [read_rows(str(need(name, "dev.jsonl.gz"))) for name in ("ubuntu_irc", "sgd")]
    some = itertools.islice(itertools.chain.from_iterable(zip(*rows, strict=False)), count)
    return [list(row.values["context"]) for row in some]


def plot(measured: list[dict[str, Any]], path: Path) -> None:
    """How the time of a search grows with the number of candidates."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    shown = {"exact": "exact search", "product_and_softmax": "product and softmax", "public_form": "public form"}
    figure, axes = pyplot.subplots(figsize=(6, 4))
    for codes, style in ((16, "--"), (64, "-")):
        lines = [line for line in measured if line["codes"] == codes and line["kind"] == "trained"]
        sizes = [line["candidates"] for line in lines]
        for name, label in shown.items():
            axes.plot(
                sizes, [line["milliseconds"][name] for line in lines], style, marker="o", label=f"{label}, {codes}"
            )
    flat = [min(v for n, v in line["milliseconds"].items() if n.startswith("flat")) for line in lines]
    axes.plot(sizes, flat, "k:", marker="o", label="flat scan of a bi-encoder")
    axes.set(xscale="log", yscale="log", xlabel="candidates", ylabel="milliseconds of one core")
    axes.legend(fontsize=7)
    figure.savefig(path, metadata={"Creator": None, "Date": None})


if __name__ == "__main__":
    main()
