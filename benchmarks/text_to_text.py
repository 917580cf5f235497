"""Trains the text → text recipes and judges them on the dev parts: the tables of docs/results.md.

A training that is in the folder of --runs already is resumed, so a finished one is only judged.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from _common import DATA, ROOT, cpu_minutes, need, save, train

import twofold
from twofold.data.files import read_rows

DEV = {
    "translate_rnn": "multi30k/dev.tsv.gz",
    "translate_attention_rnn": "multi30k/dev.tsv.gz",
    "translate": "multi30k/dev.tsv.gz",
    "translate_en_ko": "enko/dev.tsv.gz",
    "reply_ko": "chatbot_ko/dev.jsonl.gz",
}


def examples(file: str) -> list[dict[str, Any]]:
    """Rows as they are; of a ranking row the right candidate is the response."""
    rows = [dict(row.values) for row in read_rows(str(DATA / file))]
    return [{**row, "response": row["candidates"][row["label"]]} if "candidates" in row else row for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(DEV), help="recipes; all unless given")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs", help="the folder of the trainings")
    options = parser.parse_args()
    for name in options.names:
        need(DEV[name])
        train(name, options.runs / name)
        model = twofold.load(options.runs / name)
        report = twofold.evaluate(model, examples(DEV[name]))
        cpu = cpu_minutes(options.runs / name)
        size = sum(parameter.numel() for parameter in model.parameters())
        print(f"{name}: {report.metrics} in {cpu} CPU minutes", flush=True)
        measured = {"recipe": name, "dev": DEV[name], "parameters": size, "training_cpu_minutes": cpu}
        save(name, {**measured, "metrics": report.metrics, "examples": report.examples, **report.tables})


if __name__ == "__main__":
    main()
