"""Images found by descriptions and back: trains `retrieve_images` and judges it among the 1,000 images of dev."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from _common import DATA, ROOT, cpu_minutes, need, save, train
from numpy.typing import NDArray

from twofold.api import load_ranker
from twofold.data.ranks import metrics_of_gains

CAPTIONS = 5
KS = (1, 10)


def recall(scores: NDArray[np.float32], right: NDArray[np.bool_]) -> dict[str, float]:
    """R@k over the rows of (questions, candidates): of several right candidates, whether the best one is found."""
    rows = []
    for number, (row, gains) in enumerate(zip(scores, right, strict=True)):
        best = np.flatnonzero(gains)[row[gains].argmax()]
        alone = np.zeros(len(row))
        alone[best] = 1
        rest = ~gains | (np.arange(len(row)) == best)  # the other right ones are nobody's competitors
        rows.append(metrics_of_gains(row[rest], alone[rest], f"question {number}", KS))
    return {f"r@{k}": round(float(np.mean([metrics[f"r@{k}"] for metrics in rows])), 4) for k in KS}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=ROOT / "runs", help="the folder of the trainings")
    options = parser.parse_args()
    table, folder = need("flickr8k", "dev.tsv.gz"), options.runs / "retrieve_images"
    train("retrieve_images", folder)
    model = load_ranker(folder)
    rows = list(model.read(str(table), str(DATA / "flickr8k" / "images.zip" / "images")))
    captions = [str(row.values[f"caption{number}"]) for row in rows for number in range(CAPTIONS)]
    scores = model.score(captions, [row.values["image"] for row in rows]).cpu().numpy()  # (captions, images)
    owners = np.arange(len(captions)) // CAPTIONS
    right = owners[:, None] == np.arange(len(rows))
    first = slice(0, None, CAPTIONS)
    measured = {
        "text to image": {"questions": len(captions), "among": len(rows), **recall(scores, right)},
        "image to text": {"questions": len(rows), "among": len(rows), **recall(scores[first].T, right[first].T)},
        "image to any of five texts": {"questions": len(rows), "among": len(captions), **recall(scores.T, right.T)},
    }
    for name, metrics in measured.items():
        print(name, metrics)
    about = {
        "recipe": "retrieve_images",
        "training_cpu_minutes": cpu_minutes(folder),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "chance": {f"r@{k}": k / len(rows) for k in KS},
    }
    save("retrieve_images", {**about, **measured})


if __name__ == "__main__":
    main()
