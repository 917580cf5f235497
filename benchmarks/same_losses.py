"""Trains each recipe for a few steps in two checkouts and compares the losses they log, step by step.

A rebuilding must not change what is learned: run it with the checkout before and the checkout after. Each checkout is
run by its own `.venv`, in float32 and on one thread.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from _common import DATA, save

RECIPES = (
    "translate",
    "rank_poly",
    "rank_cross",
    "label_banking",
    "tag_names",
    "parse",
    "segment_pets",
    "caption_vit",
)
TOLERANCE = 1e-5


def losses(checkout: Path, recipe: str, steps: int, folder: Path) -> list[float]:
    """The loss of each step of a short training by the code of a checkout."""
    settings = {"max_steps": steps, "log_every": 1, "evaluate_every": 10**6, "precision": "float32", "best": "loss"}
    if recipe.startswith("rank_"):
        settings["best"] = "mrr"
    changes = [f"train.{name}={value}" for name, value in settings.items()]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TWOFOLD_CACHE": str(folder / "cache")}
    environment["TWOFOLD_DATA"] = str(DATA)
    command = [
        str(checkout / ".venv/bin/python"),
        "-m",
        "twofold",
        "train",
        recipe,
        *changes,
        "--out",
        str(folder / recipe),
    ]
    subprocess.run(command, check=True, cwd=checkout, env=environment)
    lines = map(json.loads, (folder / recipe / "log.jsonl").read_text(encoding="utf-8").splitlines())
    return [line["loss"] for line in lines if "loss" in line]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("before", type=Path, help="a checkout of the commit before, with its .venv")
    parser.add_argument("after", type=Path, help="a checkout of the commit after, with its .venv")
    parser.add_argument("--recipes", nargs="+", default=RECIPES)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument(
        "--known", type=Path, help="keep the losses of the first checkout here, and read them from here"
    )
    options = parser.parse_args()
    known = json.loads(options.known.read_text()) if options.known and options.known.exists() else {}
    compared = {}
    for recipe in options.recipes:
        if recipe not in known:
            with tempfile.TemporaryDirectory() as folder:
                known[recipe] = losses(options.before.resolve(), recipe, options.steps, Path(folder))
            if options.known:
                options.known.write_text(json.dumps(known))
        with tempfile.TemporaryDirectory() as folder:
            after = losses(options.after.resolve(), recipe, options.steps, Path(folder))
        apart = max(abs(loss - other) for loss, other in zip(known[recipe], after, strict=True))
        compared[recipe] = {"before": known[recipe], "after": after, "largest_difference": apart}
        print(f"{recipe}: {'same' if apart <= TOLERANCE else 'DIFFERENT'}, {apart:.2e}", flush=True)
    sys.argv[1:] = ["BEFORE", "AFTER"]  # the checkouts lie anywhere
    save("same_losses", {"steps": options.steps, "tolerance": TOLERANCE, "recipes": compared})
    sys.exit(any(result["largest_difference"] > TOLERANCE for result in compared.values()))


if __name__ == "__main__":
    main()
