"""Scoring candidates with a poly-encoder: memory and CPU time beside the public form, which makes a vector for each."""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time

import torch
from _common import save
from torch import Tensor

from twofold.decoders import Vectors, poly
from twofold.types import HiddenSpec, Vocabulary

WIDTH, ROUNDS = 384, 7


def naive(vectors: Tensor, candidates: Tensor) -> Tensor:
    """The form of the public toolkits: each candidate attends over the codes, the result meets the candidate."""
    weights = (candidates @ vectors.T).softmax(-1)  # (candidates, codes)
    attended = weights @ vectors  # (candidates, width)
    return (attended * candidates).sum(-1)


def measure(form: str, codes: int, count: int) -> dict[str, float]:
    """Milliseconds of CPU time, and megabytes above what the candidates themselves take."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    vocabulary = Vocabulary(8, 8, 0, 1, 2, 3)
    head = poly.Config(codes=codes).build(HiddenSpec(states=WIDTH), vocabulary)
    vectors, candidates = torch.randn(1, codes, WIDTH), torch.randn(count, WIDTH)
    with torch.no_grad():
        head.score(Vectors(vectors), Vectors(candidates[:10, None]))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        times = []
        for _ in range(ROUNDS):
            start = time.process_time()
            naive(vectors[0], candidates) if form == "naive" else head.score(
                Vectors(vectors), Vectors(candidates[:, None])
            )
            times.append((time.process_time() - start) * 1000)
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return {"milliseconds": statistics.median(times), "megabytes": peak}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--single", nargs=3, metavar=("FORM", "CODES", "CANDIDATES"), help="measure one in this process"
    )
    options = parser.parse_args()
    if options.single:
        form, codes, count = options.single
        print(json.dumps(measure(form, int(codes), int(count))))
        return
    forms = []
    for codes in (16, 64):
        for count in (1_000, 100_000):
            both = {}
            for form in ("naive", "twofold"):
                command = [sys.executable, __file__, "--single", form, str(codes), str(count)]
                both[form] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
            faster = both["naive"]["milliseconds"] / both["twofold"]["milliseconds"]
            print(f"m {codes}, {count:,} candidates: {both}, {faster:.2f} times as fast", flush=True)
            forms.append({"codes": codes, "candidates": count, **both, "times_as_fast": round(faster, 2)})
    save("scoring", {"width": WIDTH, "forms": forms})


if __name__ == "__main__":
    main()
