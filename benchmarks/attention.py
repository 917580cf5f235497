"""Full, window and linear attention: CPU time and memory of an encoder by the length of the text."""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

import torch
from _common import save

from twofold.config import structure
from twofold.encoders import EncoderConfig
from twofold.inputs import INPUT
from twofold.inputs.text import Tokens
from twofold.types import Batch, Vocabulary

KINDS, LENGTHS = ("full", "window", "linear"), (512, 2048, 8192)
TOKENS = 8192
"""Tokens of a batch: one long text, or several shorter ones."""


def measure(kind: str, length: int) -> dict[str, float]:
    """CPU seconds of reading a batch and of a training step, and megabytes that the step takes at its peak."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    settings = {"kind": "transformer", "width": 128, "layers": 2, "heads": 4, "attention": kind, "window": 128}
    vocabulary = Vocabulary(1000, length, 0, 1, 2, 3)
    encoder = structure(settings, EncoderConfig).build(vocabulary, frozenset({"states"})).train()
    tokens = torch.randint(4, 1000, (TOKENS // length, length))
    batch = Batch({INPUT: Tokens(tokens, torch.ones_like(tokens, dtype=torch.bool))})
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    with torch.no_grad():
        encoder(batch)
    read = time.process_time()
    encoder(batch).need("states").square().mean().backward()  # type: ignore[no-untyped-call]
    step = time.process_time()
    peak = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    return {"read_seconds": read - start, "step_seconds": step - read, "megabytes": peak}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--single", nargs=2, metavar=("KIND", "LENGTH"), help="measure one in this process")
    options = parser.parse_args()
    if options.single:
        print(json.dumps(measure(options.single[0], int(options.single[1]))))
        return
    rows = []
    for length in LENGTHS:
        for kind in KINDS:
            command = [sys.executable, __file__, "--single", kind, str(length)]
            measured = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            rows.append(
                {"attention": kind, "length": length, **{key: round(value, 2) for key, value in measured.items()}}
            )
            print(rows[-1], file=sys.stderr)
    save("attention", {"tokens": TOKENS, "width": 128, "layers": 2, "heads": 4, "window": 128, "measured": rows})


if __name__ == "__main__":
    main()
