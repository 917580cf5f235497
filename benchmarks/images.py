"""Trains the recipes that read images and judges them on the dev parts: the tables of docs/results.md.

A training that is in the folder of --runs already is resumed, so a finished one is only judged.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from _common import DATA, ROOT, cpu_minutes, need, save, train
from numpy.typing import NDArray

import twofold
from twofold.data.files import Row
from twofold.data.images import read_images
from twofold.metrics.captions import bleu, cider, rouge_l
from twofold.model import Model

SEEN = {
    "segment_street": ("segment_street", "camvid/images.zip/dev", []),
    "segment_street_no_skips": ("segment_street", "camvid/images.zip/dev", ["decoder.skips=false"]),
    "segment_pets": ("segment_pets", "oxford_pets/images.zip/dev", []),
    "caption": ("caption", "flickr8k/dev.tsv.gz", []),
    "caption_vit": ("caption_vit", "flickr8k/dev.tsv.gz", []),
}
"""For each row of the table its recipe, its dev part, and what differs from the recipe."""
FLICKR = str(DATA / "flickr8k" / "images.zip" / "images")
CAPTIONS = tuple(f"caption{number}" for number in range(5))
BINS = 4
"""Into how many levels each color is cut for a histogram."""


def judge(name: str, runs: Path) -> None:
    """Train one row of the table and measure it on dev."""
    recipe, dev, changes = SEEN[name]
    need(*dev.split(".zip/")[0].split("/")[:1])
    train(recipe, runs / name, changes)
    model: Model = twofold.load(runs / name)
    rows = list(model.read(str(DATA / dev), FLICKR if recipe.startswith("caption") else None))
    report = twofold.evaluate(model, [row.values for row in rows])
    measured: dict[str, Any] = {"recipe": recipe, "changes": changes, "dev": dev}
    measured |= {"parameters": sum(parameter.numel() for parameter in model.parameters())}
    measured |= {"training_cpu_minutes": cpu_minutes(runs / name), "metrics": report.metrics}
    if recipe.startswith("caption"):
        measured["cider_of_shuffled_images"] = shuffled(model, rows)
    print(f"{name}: {measured}", flush=True)
    save(f"images/{name}", {**measured, "examples": report.examples, **report.tables})


def shuffled(model: Model, rows: Sequence[Row]) -> float:
    """CIDEr when every image gets the captions of another: what is left needs no look at the image."""
    order = np.random.default_rng(1).permutation(len(rows))
    moved = [{**rows[number].values, "image": row.values["image"]} for number, row in zip(order, rows, strict=True)]
    return twofold.evaluate(model, moved).metrics["cider"]


def baselines() -> None:
    """Captions that need no model: the most frequent one, and that of the training image of the nearest colors."""
    train_rows, dev_rows = (
        list(read_images(str(need("flickr8k", f"{part}.tsv.gz")), FLICKR, "image")) for part in ("train", "dev")
    )
    references = [[str(row.values[column]) for column in CAPTIONS] for row in dev_rows]
    counted = Counter(str(row.values[column]).lower() for row in train_rows for column in CAPTIONS)
    frequent = [counted.most_common(1)[0][0]] * len(dev_rows)
    known = np.stack([histogram(row) for row in train_rows])
    nearest = [int(np.abs(known - histogram(row)).sum(1).argmin()) for row in dev_rows]
    copied = [str(train_rows[number].values[CAPTIONS[0]]) for number in nearest]
    scores = {}
    for name, written in (("most_frequent_caption", frequent), ("nearest_colors", copied)):
        others = {"cider": cider(written, references), "rouge_l": rouge_l(written, references)}
        scores[name] = {**bleu(written, references), **others}
        print(f"{name}: {scores[name]}", flush=True)
    save("images/caption_baselines", {"dev": "flickr8k/dev.tsv.gz", **scores, "examples": len(dev_rows)})


def histogram(row: Row) -> NDArray[np.float64]:
    """The share of the pixels in each of the cells that the colors are cut into."""
    pixels = np.asarray(row.values["image"].image()) // (256 // BINS)
    cells = pixels @ np.array([BINS * BINS, BINS, 1])
    shares: NDArray[np.float64] = np.bincount(cells.ravel(), minlength=BINS**3) / cells.size
    return shares


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="rows such as segment_street, or baselines; all unless given")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs", help="the folder of the trainings")
    options = parser.parse_args()
    for name in options.names or [*SEEN, "baselines"]:
        if name == "baselines":
            baselines()
        else:
            judge(name, options.runs.absolute())


if __name__ == "__main__":
    main()
