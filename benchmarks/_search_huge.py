"""An index of more candidates than fit into memory as floats: written in shards, mapped, searched, and checked."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from _search_data import Matrix, parts

from twofold.index.new_rows import NewRows
from twofold.index.quantized import principal_directions
from twofold.index.search import Query, search
from twofold.index.shards import FULL_SHARD, Shard, write_shard
from twofold.index.snapshot import MaskedShard

K, TOGETHER, BLOCK = 10, 32, 65_536


def measure(
    folder: Path, real: Matrix, count: int, stored: str, queries: Sequence[Query], checked: int
) -> dict[str, Any]:
    """Builds, searches and removes the index; the first `checked` answers are compared with those of all scores."""
    shutil.rmtree(folder, ignore_errors=True)
    start = time.process_time()
    shards = list(_built(folder, real, count, stored))
    build = time.process_time() - start
    try:
        _seconds(shards, queries[:1])  # compares all checksums
        alone = [_seconds(shards, [query]) for query in queries]
        together = min(_seconds(shards, queries[:TOGETHER]) for _ in range(2)) / len(queries[:TOGETHER])
        resident = _resident()
        wrong = sum(_is_wrong(shards, query) for query in queries[:checked])
    finally:
        size = sum(path.stat().st_size for path in folder.iterdir())
        shutil.rmtree(folder)
    return {
        "candidates": count,
        "stored": stored,
        "build_cpu_seconds_without_encoding": round(build, 1),
        "gigabytes_on_disk": round(size / 1e9, 2),
        "seconds_alone": {"median": round(statistics.median(alone), 3), "largest": round(max(alone), 3)},
        "seconds_each_of_32_together": round(together, 3),
        "resident_gigabytes": round(resident / 1e9, 2),
        "checked": checked,
        "wrong": wrong,
    }


def _built(folder: Path, real: Matrix, count: int, stored: str) -> Iterator[MaskedShard]:
    folder.mkdir(parents=True)
    directions = principal_directions(real[:: max(1, len(real) // 8192)])
    rows: list[NewRows] = []
    first = 1
    for part in parts(real, count):
        vectors = part.astype("float32" if stored == "int8" else stored, copy=False)
        rows.append(NewRows.single(np.arange(first, first + len(part)), vectors, directions, stored))
        first += len(part)
        if sum(map(len, rows)) + len(real) > FULL_SHARD or first > count:
            record = write_shard(folder / f"{first:010d}.safetensors", rows)
            rows = []
            yield MaskedShard(Shard(folder, record))


def _seconds(shards: Sequence[MaskedShard], queries: Sequence[Query]) -> float:
    some = [Query(query.head, query.contexts) for query in queries]
    start = time.thread_time()
    search(shards, some, K)
    return time.thread_time() - start


def _is_wrong(shards: Sequence[MaskedShard], query: Query) -> bool:
    best = np.empty(0, np.float32)
    for shard in (masked.shard for masked in shards):
        for start in range(0, len(shard), BLOCK):
            block = slice(start, min(start + BLOCK, len(shard)))
            best = np.sort(np.concatenate([best, query.score(shard.vectors(block))]))[-K:]
    [top] = search(shards, [Query(query.head, query.contexts)], K)
    return not np.allclose(np.sort(top.scores)[-K:], best, rtol=1e-5, atol=1e-5)


def _resident() -> int:
    """Bytes of this process in memory, mapped files included."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS")]
    return int(line.split()[1]) * 1024
