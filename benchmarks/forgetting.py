"""Catastrophic forgetting: trained on A, then on B fully, frozen or gradually, and A measured again.

A is clinc150 and B is wnut17: intents of requests, then names in posts, over the same encoder. The head of A is kept as
it was and put on the encoder that B left.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from _common import DATA, ROOT, cpu_minutes, need, save, train

import twofold
from twofold.data.files import read_rows

FIRST, SECOND = ("label_clinc", "clinc150/dev.tsv.gz"), ("tag_names", "wnut17/dev.conll.gz")
SHORT = ["train.epochs=3"]
"""The second task is learned for a shorter time than its recipe says: what is lost shows early."""
WAYS = {
    "full": [],
    "frozen": ["train.freeze=encoder"],
    "gradual": ["train.freeze=gradual"],
    "layer_decay": ["train.layer_decay=0.6"],
}


def measured(model: Any, dev: str) -> dict[str, float]:
    """The metrics on a dev part."""
    rows = [row.values for row in read_rows(str(DATA / dev))]
    metrics: dict[str, float] = twofold.evaluate(model, rows).metrics
    return metrics


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=ROOT / "runs", help="the folder of the trainings")
    runs = parser.parse_args().runs.absolute()
    for _, dev in (FIRST, SECOND):
        need(*dev.split("/"))
    train(FIRST[0], runs / FIRST[0])
    first: Any = twofold.load(runs / FIRST[0])
    before = measured(first, FIRST[1])["accuracy"]
    table: dict[str, Any] = {"first_task_alone": before}
    for name, changes in WAYS.items():
        folder = runs / f"forgetting_{name}"
        train(SECOND[0], folder, [f"encoder={runs / FIRST[0]}", *SHORT, *changes])
        second = measured(twofold.load(folder), SECOND[1])["f1"]
        again: Any = twofold.load(runs / FIRST[0])
        again.take_weights(folder)
        table[name] = {"first_task_after": measured(again, FIRST[1])["accuracy"], "second_task_f1": second}
        table[name]["cpu_minutes"] = cpu_minutes(folder)
        print(name, table[name], flush=True)
    save("forgetting", {"first": FIRST[0], "second": SECOND[0], "ways": table})


if __name__ == "__main__":
    main()
