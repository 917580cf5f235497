"""Savings of a frozen encoder: time of a training step and peak of memory, beside a full step."""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from _common import need, save

from twofold.model import Model
from twofold.recipe import Recipe
from twofold.recipe.build import build_model
from twofold.training.freezing import Freezing
from twofold.training.optimizer import make_optimizer

WAYS = ("none", "encoder")
ROWS, WORDS = 64, 64


def learner(way: str, folder: Path) -> tuple[Model, torch.optim.Optimizer]:
    """The model of recipes/label_banking.yaml, ready to learn."""
    recipe = Recipe.load("label_banking", [f"train.freeze={way}"])
    torch.manual_seed(1)
    model = build_model(recipe, folder)
    optimizer = make_optimizer(model, recipe.train)
    Freezing(model, recipe.train).at(0.0)
    model.train()
    return model, optimizer


def step(model: Model, optimizer: torch.optim.Optimizer) -> float:
    """CPU seconds of one step over texts of as many tokens as are read."""
    examples = [{"text": f"{number} " + "card " * WORDS, "label": "age_limit"} for number in range(ROWS)]
    batch = model.batch(examples)
    start = time.process_time()
    model.loss(batch).backward()  # type: ignore[no-untyped-call]
    optimizer.step()
    optimizer.zero_grad()
    return time.process_time() - start


def peak() -> float:
    """The most memory that this process has held, in MiB."""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--memory", choices=WAYS, help="only tell the peak of memory of some steps of one way")
    options = parser.parse_args()
    need("banking77", "train.tsv.gz")
    torch.set_num_threads(1)
    with TemporaryDirectory() as folder:
        if options.memory:
            model, optimizer = learner(options.memory, Path(folder))
            gc.collect()
            Path("/proc/self/clear_refs").write_text("5")  # the peak is counted anew, loading left out
            before = peak()
            for _ in range(3):
                step(model, optimizer)
            print(json.dumps([before, peak()]))
            return
        learners = {way: learner(way, Path(folder) / way) for way in WAYS}
        seconds: dict[str, list[float]] = {way: [] for way in WAYS}
        for number in range(options.rounds + 1):
            for way in WAYS:
                taken = step(*learners[way])
                if number:  # the first warms up
                    seconds[way].append(taken)
    memory = {}
    for way in WAYS:
        command = [sys.executable, __file__, "--memory", way]
        memory[way] = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    share = statistics.median(b / a for a, b in zip(seconds["none"], seconds["encoder"], strict=True))
    medians = {way: statistics.median(seconds[way]) for way in WAYS}
    print(f"a frozen step takes {share:.2f} of a full one; {medians}; MiB before and at the peak: {memory}")
    content = {"rows": ROWS, "tokens": WORDS, "cpu_seconds": medians, "frozen_over_full": share, "memory_mib": memory}
    save("freezing", {"rounds": options.rounds, **content})


if __name__ == "__main__":
    main()
