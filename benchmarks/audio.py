"""Trains the recipes that read sounds and judges them on the dev parts, and on a speaker who was left out.

A training that is in the folder of --runs already is resumed, so a finished one is only judged.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path
from typing import Any

from _common import DATA, RESULTS, ROOT, cpu_minutes, need, save, train

import twofold
from twofold.model import Model

SOUNDS = str(DATA / "fsdd" / "audio.zip")
PARTS = {"label_digits": "", "transcribe_numbers": "numbers_"}
"""Beginnings of the tables' names of each recipe."""
SPEAKERS = ("george", "jackson", "lucas", "nicolas", "yweweler")


def judged(recipe: str, folder: Path, table: Path, changes: list[str]) -> dict[str, Any]:
    """Cost of a training, and its metrics over all rows of a table and over those of each speaker."""
    train(recipe, folder, changes)
    model: Model = twofold.load(folder)
    rows = list(model.read(str(table), SOUNDS))
    speakers = sorted({str(row.values["speaker"]) for row in rows})
    measured: dict[str, Any] = {"recipe": recipe, "training_cpu_minutes": cpu_minutes(folder), "examples": len(rows)}
    measured |= {"parameters": sum(value.numel() for value in model.parameters())}
    metric = "accuracy" if recipe == "label_digits" else "exact_match"
    measured["metrics"] = twofold.evaluate(model, [row.values for row in rows]).metrics
    for speaker in speakers:
        report = twofold.evaluate(model, [row.values for row in rows if row.values["speaker"] == speaker])
        measured[f"{metric}_of_{speaker}"] = report.metrics[metric]
    print(f"{folder.name}: {measured}", flush=True)
    return measured


def part(recipe: str, without: str, folder: Path) -> tuple[Path, Path]:
    """The rows of all speakers but one, to learn from, and those of that one, as tables."""
    with gzip.open(need("fsdd", f"{PARTS[recipe]}train.tsv.gz"), "rt", encoding="utf-8") as file:
        head, *lines = file
    tables = []
    for name, left in (("seen", False), ("unseen", True)):
        path = folder / f"{recipe}_{name}_{without}.tsv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join([head, *(line for line in lines if line.rstrip().endswith(f"\t{without}") == left)]))
        tables.append(path)
    return tables[0], tables[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    names = [*PARTS, *(f"{recipe}_without_{speaker}" for recipe in PARTS for speaker in SPEAKERS)]
    parser.add_argument("names", nargs="*", choices=[[], *names], help="some of these; else the first two, and lucas")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs", help="the folder of the trainings")
    options = parser.parse_args()
    runs, path = options.runs.absolute(), RESULTS / "audio.json"
    for name in options.names or [*PARTS, "label_digits_without_lucas"]:
        recipe = next(recipe for recipe in PARTS if name.startswith(recipe))
        table, changes, speaker = need("fsdd", f"{PARTS[recipe]}dev.tsv.gz"), [], name.partition("_without_")[2]
        if recipe == "transcribe_numbers":
            changes = [f"start={runs / 'label_digits'}"]
        if speaker:
            seen, table = part(recipe, speaker, runs)
            changes += [f"data.train={seen}", "train.epochs=16"]
        measured = judged(recipe, runs / name, table, changes)
        earlier = json.loads(path.read_text(encoding="utf-8"))["runs"] if path.exists() else {}
        save("audio", {"runs": {**earlier, name: measured}})


if __name__ == "__main__":
    main()
