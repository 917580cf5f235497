"""Late interaction beside bi- and poly-encoder on ubuntu_irc: R@1, time, and what the index keeps of a candidate.

A training that is in the folder of --runs already is resumed, so a finished one is only judged.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from _common import DATA, ROOT, cpu_minutes, need, processor_flags, save, train

from twofold.api import load_ranker
from twofold.data.files import read_rows
from twofold.data.ranking import Question, questions
from twofold.data.ranks import places, summary
from twofold.decoders import Vectors
from twofold.index import Index, scan
from twofold.index.quantized import QuantizedVectors, widened
from twofold.metrics.ranking import milliseconds, score_questions
from twofold.model import Ranker
from twofold.model.config import MAIN

RECIPES = {"bi": "rank_bi", "poly16": "rank_poly", "late": "rank_late"}
DATA_SET = "ubuntu_irc"
POOLED = (None, 16, 8)
"""The most vectors that are kept of a candidate; None is all."""
CANDIDATES, CONTEXTS, ROUNDS = 10_000, 50, 5


@dataclass
class Case:
    """A model, and how its candidates are stored."""

    model: Ranker
    stored: str
    index: Index
    metrics: dict[str, float]


def pooled(model: Ranker, most: int | None) -> Ranker:
    """Copies a ranker with at most so many vectors for each candidate."""
    task = model.config.tasks[MAIN]
    decoder: Any = replace(task.decoder, max_vectors=most)  # type: ignore[call-arg]
    config = replace(model.config, tasks={MAIN: replace(task, decoder=decoder)})
    other = Ranker(config, model.tokenizers)
    other.load_state_dict(model.state_dict())
    return other.eval()


def rounded(kept: Vectors, stored: str) -> Vectors:
    """Vectors as an index stores them."""
    flat = kept.present.numpy()
    if stored == "int8":
        quantized = QuantizedVectors.of(flat)
        flat = widened(quantized.integers, quantized.steps)
    vectors = kept.vectors.clone()
    vectors[torch.ones(vectors.shape[:2]).bool() if kept.mask is None else kept.mask] = torch.from_numpy(
        flat.astype("float32" if stored == "int8" else stored).astype(np.float32)
    )
    return Vectors(vectors, kept.mask)


def judged(model: Ranker, ways: Sequence[str], asked: Sequence[Question]) -> Iterator[dict[str, float]]:
    """Metrics over the whole dev part for each way to store the candidates; everything is read once."""
    contexts = model.embed_contexts([each.context for each in asked])
    kept = model.embed_candidates(list(dict.fromkeys(text for each in asked for text in each.candidates)))
    for stored in ways:
        candidates = rounded(kept, stored)
        with (
            patch.object(model, "embed_contexts", lambda *_: contexts),
            patch.object(model, "embed_candidates", lambda *_, read=candidates: read),
        ):
            scored = score_questions(model, asked)
        yield summary(places(scored.scores, [each.right[0] for each in asked], [each.place for each in asked]))


def cases_of(models: dict[str, Ranker], texts: Sequence[str], folder: Path) -> dict[str, Case]:
    """Every model with an index of the texts for each way to store them."""
    rows = list(read_rows(str(need(DATA_SET, "dev.jsonl.gz"))))
    cases = {}
    for name, model in models.items():
        asked = questions(model.reader, rows)
        ways = ("float16", "int8") if model.head.several else ("float32", "float16")
        for stored, metrics in zip(ways, judged(model, ways, asked), strict=True):
            index = Index.build(folder / f"{name}_{stored}", model, list(texts), stored)
            case = Case(model, stored, index, metrics)
            print(name, stored, case.metrics, flush=True)
            cases[f"{name}, {stored}"] = case
    return cases


def timed(cases: dict[str, Case]) -> dict[str, dict[str, float]]:
    """Milliseconds for one context, reading it included: all cases in turn, medians of the rounds."""
    rows = list(read_rows(str(need(DATA_SET, "dev.jsonl.gz"))))[:CONTEXTS]
    times: dict[str, dict[str, list[float]]] = {name: {} for name in cases}
    for _ in range(ROUNDS):
        for name, case in cases.items():
            asked = questions(case.model.reader, rows)
            taken = {
                "reading the context": read(case.model, asked),
                "10 candidates": milliseconds(case.model, asked),
                f"{CANDIDATES:,} candidates": searched(case.index, asked),
            }
            if case.stored == "int8":
                with patch.object(scan, "integers_pay", lambda _: False):
                    taken[f"{CANDIDATES:,} candidates, without bounds"] = searched(case.index, asked)
            for what, value in taken.items():
                times[name].setdefault(what, []).append(value)
    return {
        name: {what: round(statistics.median(values), 2) for what, values in measured.items()}
        for name, measured in times.items()
    }


def read(model: Ranker, asked: Sequence[Question]) -> float:
    """The median time to read one context, which is part of the other times."""
    times = []
    for question in asked:
        start = time.perf_counter()
        model.embed_contexts([question.context])
        times.append((time.perf_counter() - start) * 1000)
    return statistics.median(times)


def searched(index: Index, asked: Sequence[Question]) -> float:
    """The median time of an exact search for one context."""
    answers = [index.search(question.context, 10) for question in asked]
    assert all(hits.exact for hits in answers)
    return statistics.median(hits.milliseconds for hits in answers)


def trained(kind: str, runs: Path, changes: Sequence[str]) -> dict[str, Any]:
    """Train a model, or go on; says how long that took where it is known."""
    folder = runs / f"late_{kind}"
    known = (folder / "cpu_seconds.json").exists() or not (folder / "log.jsonl").exists()
    train(
        RECIPES[kind],
        folder,
        [f"data.train={DATA / DATA_SET / 'train_pairs.jsonl.gz'}", "train.min_steps=null", *changes],
    )
    return {"recipe": RECIPES[kind], "training_cpu_minutes": cpu_minutes(folder) if known else None}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=ROOT / "runs", help="the folder of the trainings")
    parser.add_argument("--changes", nargs="*", default=[], help="settings of the trainings, such as data.rows=500")
    parser.add_argument("--kinds", nargs="+", choices=RECIPES, default=[*RECIPES], help="which of the rankers")
    options = parser.parse_args()
    print("processor:", *processor_flags(), flush=True)
    runs = options.runs.absolute()
    about = {kind: trained(kind, runs, options.changes) for kind in options.kinds}
    torch.set_num_threads(1)
    models = {kind: load_ranker(runs / f"late_{kind}") for kind in options.kinds}
    late = models.pop("late")
    models |= {"late" if most is None else f"late, at most {most}": pooled(late, most) for most in POOLED}
    pairs = read_rows(str(need(DATA_SET, "train_pairs.jsonl.gz")))
    texts = list(dict.fromkeys(str(row.values["response"]) for row in pairs))[:CANDIDATES]
    with tempfile.TemporaryDirectory() as folder:
        cases = cases_of(models, texts, Path(folder))
        times, table = timed(cases), {}
        for name, case in cases.items():
            info = case.index.info()
            table[name] = {
                "metrics": {metric: round(value, 4) for metric, value in case.metrics.items()},
                "milliseconds": times[name],
                "bytes_per_candidate": info["bytes_per_candidate"],
                "vectors_per_candidate": round(info["vectors"] / info["candidates"], 2),
            }
            print(f"{name:28} {table[name]}", flush=True)
            case.index.close()
    size = {"candidates": CANDIDATES, "contexts": CONTEXTS, "rounds": ROUNDS}
    save("late", {"processor": processor_flags(), "data": DATA_SET, **size, "trainings": about, "rows": table})


if __name__ == "__main__":
    main()
