"""Trains rankers and judges them on the dev parts: the ranking table of docs/results.md, one JSON file for each row.

A training that is in the folder of --runs already is resumed, so a finished one is only judged.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _bootstrap import paired_bootstrap
from _common import DATA, RESULTS, ROOT, cpu_minutes, need, save, train

from twofold.api import load_ranker
from twofold.data.files import Row, read_rows
from twofold.data.ranking import questions
from twofold.data.ranks import places, recall, summary
from twofold.metrics.ranking import milliseconds, score_questions
from twofold.model import Ranker

SETS = ("ubuntu_irc", "sgd", "personachat", "chatbot_ko")
RECIPES = {"bi": "rank_bi", "poly16": "rank_poly", "poly64": "rank_poly", "cross": "rank_cross"}
ROUNDS = 5
"""Number of timings of each model, in turn with the others."""
KINDS = {"ubuntu_irc": [*RECIPES], "sgd": [*RECIPES], "personachat": ["bi", "poly16", "cross"]}
CROSS = {
    "ubuntu_irc": ("poly64", ["decoder.compare.codes=64"]),
    "sgd": ("bi", ["decoder.compare={kind: bi}", "data.skip=8000", "data.rows=2000"]),
    "personachat": ("poly16", ["data.skip=8000", "data.rows=2400"]),
}
"""To whose score the cross-encoder adds, with whose weights it begins, and what else differs from its recipe."""
JUDGED = {"personachat_cross": 1000}
"""Number of first rows of dev that are judged if all would take an hour: 20 candidates for each context."""
KOREAN = {"scratch": "rank_ko", "multilingual": "rank_ko_pretrained"}


def changes(data: str, kind: str, runs: Path) -> list[str]:
    """Changes of the recipe."""
    made = [f"data.train={DATA / data / 'train_pairs.jsonl.gz'}", "train.min_steps=null"]
    if data == "personachat":  # what a speaker says of themselves stands before the turns
        made += ["input.preface=persona", "input.max_tokens=160"]
    if data != "ubuntu_irc" and kind != "cross":  # chosen on rows held out of sgd
        made += ["data.rows=8000", "train.learning_rate=4e-4"]
        made += ["train.learning_rate_multipliers={decoders.main.codes: 10}"] if kind.startswith("poly") else []
    if kind.endswith("64"):
        made.append("decoder.codes=64")
    if kind == "cross":
        other, settings = CROSS[data]
        made += [f"start={runs / f'{data}_{other}'}", *settings]
    return made


def rows_of_table(runs: Path) -> dict[str, tuple[str, str, list[str]]]:
    """For each row its data set, its recipe and what differs from it."""
    table: dict[str, tuple[str, str, list[str]]] = {}
    for data, kinds in KINDS.items():
        for kind in kinds:
            table[f"{data}_{kind}"] = (data, RECIPES[kind], changes(data, kind, runs))
    for start, recipe in KOREAN.items():
        for seed in (1, 2, 3) if start == "multilingual" else (1,):
            ending, drawn = ("", []) if seed == 1 else (f"_seed{seed}", [f"train.seed={seed}"])
            pooling = ", pooling: summary" if start == "multilingual" else ""
            bi = [f"decoder={{kind: bi{pooling}}}", "train.learning_rate_multipliers={}"]
            table[f"chatbot_ko_{start}_bi{ending}"] = ("chatbot_ko", recipe, [*bi, *drawn])
            table[f"chatbot_ko_{start}_poly16{ending}"] = ("chatbot_ko", recipe, drawn)
    return table


def judge(name: str, model: Ranker, data: str, about: dict[str, Any]) -> None:
    """Metrics over the whole dev part; which rows were right stays with them, for paired comparisons."""
    asked = questions(model.reader, dev_rows(data))[: JUDGED.get(name)]
    scored = score_questions(model, asked)
    ranks = places(scored.scores, [question.right[0] for question in asked], [question.place for question in asked])
    metrics = summary(ranks)
    if scored.cosines is not None:
        metrics["cosine"] = float(scored.cosines.mean())
    metrics["milliseconds"] = milliseconds(model, asked[:: len(asked) // 100][:100])
    print(f"{name}: {metrics}", flush=True)
    candidates = sorted({len(question.candidates) for question in asked})
    right = " ".join(f"{recall(place, 1):.4g}" for place in ranks)
    content = {"data": data, **about, "metrics": metrics, "examples": len(asked), "candidates": candidates}
    save(f"ranking/{name}", {**content, "right": right})


def time_all(table: dict[str, tuple[str, str, list[str]]], runs: Path) -> None:
    """Milliseconds for one context with ten or twenty candidates, model by model in turn, medians of the rounds."""
    torch.set_num_threads(1)
    times: dict[str, list[float]] = {name: [] for name in table if (runs / name / "model").is_dir()}
    models = {name: load_ranker(runs / name) for name in times}
    asked = {name: questions(model.reader, dev_rows(table[name][0]))[:50] for name, model in models.items()}
    for _ in range(ROUNDS):
        for name, model in models.items():
            times[name].append(milliseconds(model, asked[name]))
    medians = {name: round(statistics.median(values), 2) for name, values in times.items()}
    print(medians, flush=True)
    save("ranking_milliseconds", {"rounds": ROUNDS, "contexts": 50, "milliseconds": medians})


def dev_rows(data: str) -> list[Row]:
    """The whole dev part of a data set."""
    return list(read_rows(str(DATA / data / "dev.jsonl.gz")))


def compare() -> None:
    """Comparisons of the rankers on each data set: R@1 by a paired bootstrap over the rows of dev."""
    results = {path.stem: json.loads(path.read_text()) for path in sorted((RESULTS / "ranking").glob("*.json"))}
    lines = []
    for first, second in itertools.combinations(results, 2):
        if results[first]["data"] == results[second]["data"]:
            ours, theirs = (np.array(results[name]["right"].split(), float) for name in (second, first))
            rows = min(len(ours), len(theirs))
            interval = paired_bootstrap(ours[:rows], theirs[:rows])
            ahead = second if interval.low > 0 else first if interval.high < 0 else None
            shown = [round(value, 4) for value in (interval.difference, interval.low, interval.high)]
            line = {"of": second, "to": first, "rows": rows, "difference": shown[0], "interval": shown[1:]}
            lines.append({**line, "ahead": ahead})
    save("ranking_compared", {"metric": "r@1", "confidence": 0.95, "pairs": lines})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="rows such as sgd_poly16, zero_shot or milliseconds; all unless given")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs", help="the folder of the trainings")
    options = parser.parse_args()
    table = rows_of_table(options.runs.absolute())
    if unknown := set(options.names) - {*table, "zero_shot", "milliseconds"}:
        sys.exit(f"no row {', '.join(unknown)}; there are {', '.join(table)}, zero_shot and milliseconds")
    for name in options.names or [*table, "zero_shot", "milliseconds"]:
        if name == "milliseconds":
            time_all(table, options.runs)
            continue
        if name == "zero_shot":
            for data in SETS:
                start = "default-multilingual" if data == "chatbot_ko" else "default"
                judge(f"{data}_zero_shot", load_ranker(start), data, {"model": start})
            continue
        data, recipe, changed = table[name]
        need(data, "dev.jsonl.gz")
        train(recipe, options.runs / name, changed)
        model = load_ranker(options.runs / name)
        log = [json.loads(line) for line in (options.runs / name / "log.jsonl").read_text().splitlines()]
        seen = round(log[0]["rows"] * max(line.get("epoch", 0) for line in log))
        size = sum(parameter.numel() for parameter in model.parameters())
        about = {
            "recipe": recipe,
            "changes": [change for change in changed if not change.startswith(("data.train", "start"))],
            "parameters": size,
        }
        about |= {"training_cpu_minutes": cpu_minutes(options.runs / name), "pairs_seen": seen}
        judge(name, model, data, about)
    compare()


if __name__ == "__main__":
    main()
