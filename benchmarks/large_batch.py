"""Peak memory of a training step with 32 and with 1,024 rows, bi- and poly-64, each in a process of its own."""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
from typing import Any

import numpy as np
import torch
from _common import save

from twofold.config import structure
from twofold.decoders import DecoderConfig
from twofold.encoders import pretrained
from twofold.inputs import INPUT
from twofold.inputs.text import Config as TextConfig
from twofold.model import ModelConfig, Ranker, Task
from twofold.model.config import MAIN
from twofold.outputs import ranking
from twofold.training.config import TrainConfig
from twofold.training.gradient_caching import GradientCaching
from twofold.training.optimizer import make_optimizer
from twofold.types import Batch

CONTEXT, CANDIDATE = 100, 50
DECODERS: dict[str, dict[str, Any]] = {"bi": {"kind": "bi"}, "poly64": {"kind": "poly", "codes": 64}}
SMALL, LARGE = 32, 1024


def make_batch(model: Ranker, rows: int) -> Batch:
    """Rows as long as they may be, of made-up tokens."""
    draw = np.random.default_rng(1)
    contexts, candidates = (
        [draw.integers(1000, 30_000, length - 2) for _ in range(rows)] for length in (CONTEXT, CANDIDATE)
    )
    target = ranking.RankingTarget(
        tokens=torch.arange(rows),
        mask=torch.ones(rows, rows, dtype=torch.bool),
        negatives=[np.empty(0, np.int64)] * rows,
        drawn=None,
        scores=[np.empty(0, np.float32)] * rows,
        sizes=[rows],
        rank=0,
    )
    read = {INPUT: (model.contexts, contexts), ranking.CANDIDATE: (model.candidates, candidates)}
    inputs = {name: ranking.Unread(*side) for name, side in read.items()}
    return Batch(inputs, {MAIN: target})


def measure(name: str, rows: int) -> float:
    """The peak, in megabytes, of one step of this process."""
    torch.set_num_threads(1)
    encoder = pretrained.Config().settled()
    tokenizer = encoder.own_tokenizer()
    assert tokenizer is not None
    task = Task(structure(DECODERS[name], DecoderConfig), ranking.Config())
    contexts = TextConfig(column="context", max_tokens=CONTEXT, keep="tail")
    model = Ranker(ModelConfig(contexts, encoder, {MAIN: task}), {INPUT: tokenizer})
    model.train()
    config = TrainConfig()
    optimizer = make_optimizer(model, config)
    caching = GradientCaching(config.chunk_tokens, config.memory_tokens)
    caching.backward(model, make_batch(model, rows), 1.0 / rows)
    optimizer.step()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--single", nargs=2, metavar=("DECODER", "ROWS"), help="measure one of them in this process")
    options = parser.parse_args()
    if options.single:
        print(json.dumps(measure(options.single[0], int(options.single[1]))))
        return
    decoders = []
    for name in DECODERS:
        peaks = {}
        for rows in (SMALL, LARGE):
            command = [sys.executable, __file__, "--single", name, str(rows)]
            ran = subprocess.run(command, check=True, stdout=subprocess.PIPE)
            peaks[rows] = float(ran.stdout)
            print(f"{name}, {rows} rows: {peaks[rows]:,.0f} MB", flush=True)
        ratio = peaks[LARGE] / peaks[SMALL]
        print(f"{name}: {ratio:.2f} times the memory for {LARGE // SMALL} times the rows")
        decoders.append({"decoder": name, "megabytes": peaks, "ratio": round(ratio, 3)})
    save("large_batch", {"tokens": [CONTEXT, CANDIDATE], "decoders": decoders})


if __name__ == "__main__":
    main()
