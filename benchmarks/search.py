"""Exact search of poly-encoders beside flat scans, and the forms of scoring that others use: ratios in one run.

The heads are trained here on the embedded default, whose weights stay as they are, so that one set of candidate vectors
serves all heads. Vectors beyond the real sentences are real ones plus noise as large as the median distance between
nearest neighbours, their length kept. Times are CPU times of one thread: medians of rounds, which all programs take in
turn, each with the same contexts one after another. `--huge 10000000` adds an index of so many candidates on the disk.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, cast

os.environ["OMP_NUM_THREADS"] = "1"  # before any of these is imported

import faiss
import numpy as np
import torch
from _common import ROOT, processor_flags, save
from _search_data import contexts, enlarged, read, trained
from _search_huge import measure

from twofold.decoders import RankingDecoder, Vectors
from twofold.index.quantized import QuantizedProjections, QuantizedVectors, principal_directions
from twofold.index.search import Query, StoredVectors, approximate_top_k, exact_top_k, search
from twofold.index.top_k import TopK

K = 10
ROUND, TOGETHER = 10, 32
"""Contexts that a program reads one after another before the next has its turn, and that are searched at once."""


def quantized_of(vectors: np.ndarray[Any, Any]) -> QuantizedVectors:
    """As an index keeps them."""
    count = len(vectors)
    whole = QuantizedVectors(np.empty(vectors.shape, np.int8), *(np.empty(count, np.float32) for _ in range(3)))
    for start in range(0, count, 65_536):
        part = QuantizedVectors.of(vectors[start : start + 65_536])
        for name, values in vars(part).items():
            getattr(whole, name)[start : start + 65_536] = values
    return whole


class Candidates:
    """Vectors in the form that each program reads."""

    def __init__(self, vectors: np.ndarray[Any, Any]) -> None:
        self.vectors, self.torch = vectors, torch.from_numpy(vectors)
        self.directions = principal_directions(vectors[:: max(1, len(vectors) // 8192)])
        self.stored = StoredVectors(quantized_of(vectors), self.rows, projections=self.projections())

    def projections(self) -> QuantizedProjections:
        """As an index keeps them."""
        starts = range(0, len(self.vectors), 65_536)
        parts = [QuantizedProjections.of(self.vectors[start : start + 65_536], self.directions) for start in starts]
        return QuantizedProjections(*(np.concatenate([vars(part)[name] for part in parts]) for name in vars(parts[0])))

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
        return faiss.knn(vectors, self.vectors, K, metric=faiss.METRIC_INNER_PRODUCT)  # without a copy of all vectors

    def product(self, query: Query) -> Any:
        """One matrix product, one softmax, every candidate scored."""
        head = cast(RankingDecoder, query.head)
        return torch.topk(head.score(query.contexts, Vectors(self.torch[:, None]))[0], K)

    def public(self, query: Query) -> Any:
        """A context vector for every candidate, a block at a time so that it fits into memory."""
        codes = query.contexts.vectors[0]
        parts = []
        for block in (self.torch[start : start + 10_000] for start in range(0, len(self.torch), 10_000)):
            weights = (block @ codes.T).softmax(1)
            parts.append(((weights @ codes) * block).sum(1))
        return torch.topk(torch.cat(parts), K)


class Place:
    """Candidates as one place of a search."""

    def __init__(self, stored: StoredVectors) -> None:
        self.stored = stored

    def top_k(self, query: Query, k: int, floor: float) -> TopK:
        return exact_top_k(query, self.stored, k, floor)


def milliseconds(run: Callable[[Any], Any], queries: Sequence[Any]) -> float:
    """CPU milliseconds for each query, one after another."""
    start = time.thread_time()
    for query in queries:
        run(query)
    return (time.thread_time() - start) * 1000 / len(queries)


def fresh(queries: Sequence[Query]) -> list[Query]:
    """Queries as they come from the model, of which nothing is computed yet."""
    return [Query(query.head, query.contexts) for query in queries]


def compare(candidates: Candidates, queries: list[Query], slow: int) -> dict[str, Any]:
    """Medians over the rounds; the slow programs read only the first few contexts of each."""
    times: dict[str, list[float]] = {}
    place = Place(candidates.stored)
    check = [_checked(candidates, query) for query in queries[:slow]]
    rounds = [queries[start : start + ROUND] for start in range(0, len(queries), ROUND)]
    few = max(1, slow // len(rounds))
    for some in rounds:
        codes = [query.contexts.vectors[0].numpy() for query in some]
        means = [part.mean(0) for part in codes]
        programs: dict[str, tuple[Callable[[Any], Any], Sequence[Any]]] = {
            "exact": (candidates.exact, some),
            "fast": (candidates.fast, some),
            "flat_numpy": (candidates.flat_numpy, means),
            "flat_torch": (candidates.flat_torch, means),
            "flat_faiss": (candidates.flat_faiss, [mean[None] for mean in means]),
            "tuned_flat_searches": (partial(candidates.flat_faiss, threshold=20), codes[:few]),
            "product_and_softmax": (candidates.product, some[:few]),
            "public_form": (candidates.public, some[:few]),
        }
        for name, (run, given) in programs.items():
            times.setdefault(name, []).append(milliseconds(run, given))
    together = queries[:TOGETHER]
    for _ in range(0 if together[0].bounds.wide else 3):  # dispersed codes share nothing
        times.setdefault("exact_alone", []).append(milliseconds(candidates.exact, together))
        start = time.thread_time()
        search([place], fresh(together), K)
        times.setdefault("exact_together", []).append((time.thread_time() - start) * 1000 / len(together))
    medians = {name: statistics.median(values) for name, values in times.items()}
    flat = min(medians[name] for name in medians if name.startswith("flat"))
    scan = min(medians[name] for name in ("tuned_flat_searches", "product_and_softmax"))
    return {
        "fast_recall": round(statistics.mean(recall for recall, _ in check), 4),
        "milliseconds": {name: round(value, 4) for name, value in medians.items()},
        "ratio_to_best_flat": {name: round(value / flat, 3) for name, value in medians.items()},
        "ratio_to_best_scan_by_products": round(medians["exact"] / scan, 3),
        **_shared(medians),
        "wrong": sum(wrong for _, wrong in check),
        "mean_cosine": round(float(np.mean([_collinear(query) for query in queries])), 3),
    }


def _shared(medians: dict[str, float]) -> dict[str, float]:
    if "exact_together" not in medians:
        return {}
    return {"ratio_of_32_together_to_alone": round(medians["exact_together"] / medians["exact_alone"], 3)}


def _checked(candidates: Candidates, query: Query) -> tuple[float, bool]:
    """Recall of the fast search, and True if the exact one is wrong."""
    hits, want = candidates.exact(query), candidates.product(query)
    recall = float(np.isin(want.indices.numpy(), candidates.fast(query).keys).mean())
    best = np.sort(hits.scores)[::-1][:K]
    return recall, not np.allclose(best, want.values.numpy(), rtol=1e-5, atol=1e-5)


def _collinear(query: Query) -> float:
    unit = torch.nn.functional.normalize(query.contexts.vectors[0], dim=-1)
    count = len(unit)
    return float(((unit @ unit.T).sum() - count) / max(1, count * (count - 1)))


def dispersed(query: Query, random: np.random.Generator) -> Query:
    """Vectors of the same number and lengths, in random directions."""
    vectors = query.contexts.vectors[0]
    drawn = torch.from_numpy(random.standard_normal(tuple(vectors.shape), dtype=np.float32))
    drawn = torch.nn.functional.normalize(drawn, dim=-1) * vectors.norm(dim=-1, keepdim=True)
    return Query(query.head, Vectors(drawn[None]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--real", type=int, default=100_000, help="how many real sentences are read")
    parser.add_argument("--sizes", type=int, nargs="*", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--codes", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--queries", type=int, default=60)
    parser.add_argument("--rows", type=int, default=1500, help="pairs that each head learns from")
    parser.add_argument("--huge", type=int, default=0, help="candidates of an index on the disk, such as 10000000")
    parser.add_argument("--stored", choices=["int8", "float16"], default="int8", help="numbers of that index")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs", help="the folder of heads and index")
    options = parser.parse_args()
    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    real, about = read(options.runs / f"search_index_{options.real}", options.real)
    asked = contexts(options.queries)
    random = np.random.default_rng(2)
    measured: list[dict[str, Any]] = []
    for codes in options.codes:
        ranker = trained(codes, options.runs, options.rows)
        queries = [Query(ranker.head, ranker.embed_contexts([context])) for context in asked]
        scale = float(ranker.embed_candidates(["any"]).vectors.norm())  # candidates are of this length
        for size in options.sizes:
            candidates = Candidates(enlarged(real * scale, size))
            slow = 20 if size <= 100_000 else 5
            for kind, some in (
                ("trained", queries),
                ("dispersed", [dispersed(query, random) for query in queries[:TOGETHER]]),
            ):
                line = {"codes": codes, "kind": kind, "candidates": size, "real": min(1.0, len(real) / size)}
                line |= compare(candidates, some, slow)
                print(line, flush=True)
                measured.append(line)
            del candidates
    about = {"k": K, "queries": len(asked), "processor": processor_flags(), **about}
    if measured:
        plot(measured, ROOT / "docs" / "search.svg")
        about |= {"measured": measured}
        save("search", about)
    if options.huge:
        folder = options.runs / "search_huge"
        about["huge"] = measure(folder, real * np.float32(scale), options.huge, options.stored, queries, 3)
        print(about["huge"], flush=True)
        save("search", about)


def plot(measured: list[dict[str, Any]], path: Path) -> None:
    """Time of a search by the number of candidates."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    shown = {"exact": "exact search", "product_and_softmax": "product and softmax", "public_form": "public form"}
    figure, axes = pyplot.subplots(figsize=(6, 4))
    for codes, style in ((16, "--"), (64, "-")):
        lines = [line for line in measured if line["codes"] == codes and line["kind"] == "trained"]
        if not lines:
            continue
        sizes = [line["candidates"] for line in lines]
        flat = [min(v for n, v in line["milliseconds"].items() if n.startswith("flat")) for line in lines]
        for name, label in shown.items():
            axes.plot(
                sizes, [line["milliseconds"][name] for line in lines], style, marker="o", label=f"{label}, {codes}"
            )
    axes.plot(sizes, flat, "k:", marker="o", label="flat scan of a bi-encoder")
    axes.set(xscale="log", yscale="log", xlabel="candidates", ylabel="milliseconds of one core")
    axes.legend(fontsize=7)
    figure.savefig(path, metadata={"Creator": None, "Date": None})


if __name__ == "__main__":
    main()
