"""Encoding sentences beside sentence-transformers: sentences per CPU second of each runtime, measured in turn.

The model is all-MiniLM-L6-v2, the sentences are real ones of about 40 tokens. sentence-transformers' own ONNX and
OpenVINO backends are measured where optimum is installed.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from _common import need, processor_flags, save
from numpy.typing import NDArray

import twofold
from twofold import runtime
from twofold.data.files import read_rows
from twofold.data.named_models import DEFAULT, folder_of

Encode = Callable[[list[str]], NDArray[Any]]
SENTENCES, ROUNDS, SINGLE = 600, 5, 20
BATCHES = (16, 32, 64, 128)
WAYS = {
    "torch, float32": ("torch", "float32"),
    "torch, bfloat16": ("torch", "bfloat16"),
    "onnxruntime, float32": ("onnxruntime", "float32"),
    "openvino, float32": ("openvino", "float32"),
    "openvino, bfloat16": ("openvino", "bfloat16"),
}


def sentences(count: int) -> list[str]:
    """Different sentences of scifact's abstracts."""
    texts: dict[str, None] = {}
    for row in read_rows(str(need("scifact", "corpus.jsonl.gz"))):
        for sentence in str(row.values["text"]).split(". "):
            if 60 < len(sentence) < 400:
                texts.setdefault(sentence)
        if len(texts) >= 20 * count:
            break
    return list(texts)[:: len(texts) // count][:count]


def theirs(batch: int, backend: str = "torch") -> Encode:
    """sentence-transformers' encode with a batch size."""
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(folder_of(DEFAULT), device="cpu", backend=backend)  # type: ignore[arg-type]
    model.max_seq_length = 256
    return lambda texts: np.asarray(model.encode(texts, batch_size=batch, show_progress_bar=False))


def ours(how: str, precision: str) -> Encode:
    """Our encode by one runtime."""
    model = twofold.load(DEFAULT, runtime=how, precision=precision)
    return lambda texts: model.encode(texts)


def ways() -> dict[str, Encode]:
    """Everything that can be measured here, by name."""
    found: dict[str, Encode] = {}
    for batch in BATCHES:
        found[f"sentence-transformers, batch {batch}"] = theirs(batch)
    for backend in ("onnx", "openvino"):
        if find_spec("optimum") is None:
            print(f"sentence-transformers' backend {backend}: optimum is not installed", flush=True)
        else:
            found[f"sentence-transformers, {backend}"] = theirs(32, backend)
    for name, (how, precision) in WAYS.items():
        if runtime.is_installed(how):
            found[name] = ours(how, precision)
    return found


def timed(found: dict[str, Encode], texts: list[str]) -> tuple[dict[str, float], dict[str, float]]:
    """Sentences per CPU second, and CPU milliseconds of one sentence: medians of rounds taken in turn."""
    many: dict[str, list[float]] = {name: [] for name in found}
    single: dict[str, list[float]] = {name: [] for name in found}
    for encode in found.values():
        encode(texts[:64])
    for _ in range(ROUNDS):
        for name, encode in found.items():
            start = time.process_time()
            encode(texts)
            many[name].append(len(texts) / (time.process_time() - start))
            start = time.process_time()
            for text in texts[:SINGLE]:
                encode([text])
            single[name].append(1000 * (time.process_time() - start) / SINGLE)
    return tuple({name: statistics.median(values) for name, values in part.items()} for part in (many, single))  # type: ignore[return-value]


def recall(precision: str) -> float:
    """R@1 on the dev part of ubuntu_irc."""
    model = twofold.load(DEFAULT, precision=precision)
    report = twofold.evaluate(model, str(need("ubuntu_irc", "dev.jsonl.gz")), timed=0)
    return report.metrics["r@1"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sentences", type=int, default=SENTENCES)
    options = parser.parse_args()
    print("processor:", *processor_flags(), flush=True)
    texts, found = sentences(options.sentences), ways()
    expected = next(iter(found.values()))(texts)
    rows: dict[str, dict[str, Any]] = {name: {} for name in found}
    for name, encode in found.items():
        vectors = encode(texts)
        cosine = (vectors * expected).sum(1) / np.linalg.norm(vectors, axis=1) / np.linalg.norm(expected, axis=1)
        rows[name] |= {
            "largest_difference": float(np.abs(vectors - expected).max()),
            "least_cosine": round(float(cosine.min()), 6),
        }
    for threads in (1, 2):
        torch.set_num_threads(threads)
        many, single = timed(found, texts)
        best = max(value for name, value in many.items() if name.startswith("sentence-transformers"))
        default = many["sentence-transformers, batch 32"]
        for name in found:
            rows[name][f"{threads} threads"] = {
                "sentences_per_cpu_second": round(many[name], 1),
                "times_their_default": round(many[name] / default, 2),
                "times_their_best": round(many[name] / best, 2),
                "one_sentence_cpu_milliseconds": round(single[name], 2),
            }
            print(f"{name:36} {threads} threads {rows[name][f'{threads} threads']}", flush=True)
    scores = {precision: round(recall(precision), 4) for precision in ("float32", "bfloat16")}
    print("ubuntu_irc R@1:", scores, flush=True)
    save("encoding", {"processor": processor_flags(), "sentences": len(texts), "rows": rows, "ubuntu_irc_r@1": scores})


if __name__ == "__main__":
    main()
