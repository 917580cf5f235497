"""Fifty clients search one index while another process adds and removes candidates: no answer may be wrong.

Some candidates stay, others come and go. An answer is right if those that stay stand in it as they would alone, those
that come and go score what they must, and the order is that of the scores.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import random
import shutil
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from _common import ROOT, save
from _search_data import contexts, sentences

import twofold

K = 10


def change(folder: Path, texts: list[str], seconds: float, done: Any) -> None:
    """Add and remove a few at a time; at the end all of them are gone or there, as the last change said."""
    index, draw, there = twofold.open_index(folder), random.Random(1), set[int]()
    end = time.monotonic() + seconds
    changes = 0
    while time.monotonic() < end:
        some = draw.sample(range(len(texts)), 5)
        new, old = [number for number in some if number not in there], [number for number in some if number in there]
        if new:
            index.add([{"id": f"moving {number}", "text": texts[number]} for number in new])
        if old:
            index.remove([f"moving {number}" for number in old])
        there = (there | set(new)) - set(old)
        changes += 1
        if changes % 50 == 0:
            index.compact()
    done.put((changes, sorted(there)))


class Judge:
    """Knows every score beforehand."""

    def __init__(self, index: twofold.Index, asked: list[list[str]], moving: list[str]) -> None:
        self.alone = {number: index.search(asked[number], K) for number in range(len(asked))}
        scores = index.model.score(asked, index.model.prepare(moving)).numpy()
        self.moving = {
            (number, f"moving {n}"): scores[number, n] for number in range(len(asked)) for n in range(len(moving))
        }

    def wrong(self, number: int, hits: Any) -> bool:
        stay = [hit for hit in hits if not str(hit.id).startswith("moving")]
        expected = self.alone[number][: len(stay)]
        close = all(abs(a.score - b.score) < 1e-5 for a, b in zip(stay, expected, strict=True))
        moved = all(abs(self.moving[number, hit.id] - hit.score) < 1e-5 for hit in hits if hit not in stay)
        falling = all(a.score >= b.score - 1e-6 for a, b in itertools.pairwise(hits))
        return not (close and moved and falling and len(hits) == K and hits.exact)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--candidates", type=int, default=10_000)
    parser.add_argument("--runs", type=Path, default=ROOT / "runs", help="the folder of the index")
    options = parser.parse_args()
    folder = options.runs / "search_load_index"
    shutil.rmtree(folder, ignore_errors=True)
    texts = sentences(options.candidates + 200)
    stay, moving = texts[:-200], texts[-200:]
    twofold.build_index(folder, "default", stay, show=True).close()
    index, asked = twofold.open_index(folder), contexts(50)
    judge = Judge(index, asked, moving)
    times: list[float] = []
    wrong: list[int] = []
    failed: list[str] = []
    end = time.monotonic() + options.seconds

    def client(number: int) -> None:
        draw = random.Random(number)
        while time.monotonic() < end:
            chosen, start = draw.randrange(len(asked)), time.perf_counter()
            try:
                hits = index.search(asked[chosen], K)
            except Exception as error:
                failed.append(repr(error))
                return
            times.append((time.perf_counter() - start) * 1000)
            if judge.wrong(chosen, hits):
                wrong.append(chosen)

    spawned = multiprocessing.get_context("spawn")
    done = spawned.Queue()
    writer = spawned.Process(target=change, args=(folder, moving, options.seconds, done))
    writer.start()
    clients = [threading.Thread(target=client, args=(number,)) for number in range(options.clients)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()
    changes, there = done.get()
    writer.join()
    left = {f"moving {number}" for number in there}
    lost = len(stay) + len(left) - len(index)
    lost += sum(index.search(moving[number], 1)[0].id != f"moving {number}" for number in there)
    p50, p95, p99 = (round(float(value), 1) for value in np.percentile(times, [50, 95, 99]))
    result = {"clients": options.clients, "seconds": options.seconds, "candidates": len(stay), "answers": len(times)}
    result |= {"wrong": len(wrong), "failed": failed[:3], "changes": changes, "lost": lost}
    print(result | {"p50": p50, "p95": p95, "p99": p99})
    save("search_load", result | {"milliseconds": {"p50": p50, "p95": p95, "p99": p99}})
    if wrong or failed or lost:
        raise SystemExit("an answer was wrong, a client failed, or a candidate was lost")


if __name__ == "__main__":
    main()
