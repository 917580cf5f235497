"""Real sentences and contexts, trained heads, and more vectors than there are sentences, to measure a search on."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from _common import ROOT, need

import twofold
from twofold.api import load_ranker
from twofold.cli.stdlib_docs import pairs, standard_library_docs
from twofold.data.files import read_rows
from twofold.index.catalog import Catalog
from twofold.index.shards import SHARD_FOLDER, Shard
from twofold.model.ranker import Ranker

Matrix = np.ndarray[Any, Any]
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


def enlarged(vectors: Matrix, count: int) -> Matrix:
    """Real vectors, then real ones with noise."""
    if count <= len(vectors):
        return vectors[:count]
    result = np.empty((count, vectors.shape[1]), np.float32)
    start = 0
    for part in parts(vectors, count):
        result[start : start + len(part)] = part
        start += len(part)
    return result


def parts(vectors: Matrix, count: int) -> Iterator[Matrix]:
    """`count` vectors, as many at a time as are real: these, then real ones with noise."""
    random = np.random.default_rng(1)
    sample = vectors[random.choice(len(vectors), 200, replace=False)]
    nearest = [np.sort(np.linalg.norm(vectors - vector, axis=1))[1] for vector in sample]
    size = float(np.median(nearest)) / np.sqrt(vectors.shape[1])
    yield vectors[:count]
    for start in range(len(vectors), count, len(vectors)):
        some = vectors[: count - start]
        noisy = some + size * random.standard_normal(some.shape, dtype=np.float32)
        yield noisy * (np.linalg.norm(some, axis=1, keepdims=True) / np.linalg.norm(noisy, axis=1, keepdims=True))


def read(folder: Path, count: int) -> tuple[Matrix, dict[str, Any]]:
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
