"""Trains the recipes for labels, tags and trees and judges them on the dev parts: the tables of docs/results.md.

A training that is in the folder of --runs already is resumed, so a finished one is only judged.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from _bootstrap import paired_bootstrap
from _common import DATA, ROOT, cpu_minutes, need, save, train

import twofold
from twofold.data.files import Row, read_rows
from twofold.data.ranking import questions
from twofold.data.ranks import places, recall
from twofold.metrics.entities import tag_scores
from twofold.metrics.number import pearson, spearman

TEXTS = {
    "label_banking": "banking77/dev.tsv.gz",
    "label_clinc": "clinc150/dev.tsv.gz",
    "label_ko": "nsmc/dev.tsv.gz",
    "similarity": "stsb_en/dev.tsv.gz",
    "tag_names": "wnut17/dev.conll.gz",
    "tag_names_ko": "klue_ner/dev.conll.gz",
    "tag_words": "ud_en_ewt/dev.conllu.gz",
    "tag_morphemes_ko": "ud_ko_kaist/dev.conllu.gz",
    "parse": "ud_en_ewt/dev.conllu.gz",
    "parse_ko": "ud_ko_kaist/dev.conllu.gz",
    "intent_slots": "atis/dev.tsv.gz",
}
"""For each recipe over texts its dev part."""
PRETRAINED: dict[str, tuple[str, ...]] = {
    "scratch": (),
    "words": ("pretrain_words",),
    "words_again": ("pretrain_words", "pretrain_words"),
    "dialogue": ("pretrain_words", "pretrain_dialogue"),
}
"""Starts of the poly-encoder over our own Transformer: recipes, each of which continues the one before."""


def judge_text(name: str, runs: Path) -> None:
    """Train one recipe and measure it on dev, beside what needs no training."""
    need(*TEXTS[name].split("/"))
    train(name, runs / name)
    model = twofold.load(runs / name)
    rows = list(read_rows(str(DATA / TEXTS[name])))
    report = twofold.evaluate(model, [row.values for row in rows])
    beside = {"similarity": zero_shot, "tag_names": frequent_tags, "tag_names_ko": frequent_tags}
    content: dict[str, Any] = {"recipe": name, "dev": TEXTS[name], "training_cpu_minutes": cpu_minutes(runs / name)}
    content |= {"parameters": sum(parameter.numel() for parameter in model.parameters()), "examples": report.examples}
    content |= {"metrics": report.metrics}
    if name in beside:
        content["without_training"] = beside[name](TEXTS[name], rows)
    print(f"{name}: {content}", flush=True)
    save(f"transfer/{name}", {**content, **{key: table for key, table in report.tables.items() if len(table) < 50}})


def zero_shot(dev: str, rows: Sequence[Row]) -> dict[str, float]:
    """Correlation of the cosine of `default` with the similarity of sentence pairs."""
    model: Any = twofold.load("default")
    sides = [
        model.embed_candidates([str(row.values[column]) for row in rows]).single
        for column in ("sentence1", "sentence2")
    ]
    cosines = (sides[0] * sides[1]).sum(1).cpu().numpy()
    right = np.array([float(row.values["score"]) for row in rows])
    return {"pearson": pearson(cosines, right), "spearman": spearman(cosines, right)}


def frequent_tags(dev: str, rows: Sequence[Row]) -> dict[str, float]:
    """Entity F1 when each word gets its most frequent tag of the training part, and O where it is new."""
    counts: dict[str, Counter[str]] = {}
    for row in read_rows(str(DATA / dev.replace("dev", "train"))):
        for word, tag in zip(row.values["words"], row.values["tags"], strict=True):
            counts.setdefault(word, Counter())[tag] += 1
    likeliest = {word: tags.most_common(1)[0][0] for word, tags in counts.items()}
    predicted = [[likeliest.get(word, "O") for word in row.values["words"]] for row in rows]
    scores = tag_scores(predicted, [row.values["tags"] for row in rows])
    return {"f1": scores.entities.f1, "accuracy": scores.word_accuracy}


def judge_pretraining(runs: Path) -> None:
    """Poly-encoder from scratch and after each kind of pre-training: R@1, and the steps until it is as good."""
    from twofold.metrics.ranking import score_questions

    need("ubuntu_irc", "dev.jsonl.gz")
    table: dict[str, Any] = {}
    right: dict[str, Any] = {}
    for name, recipes in PRETRAINED.items():
        starts = [runs / "+".join(recipes[: number + 1]) for number in range(len(recipes))]
        for recipe, start, before in zip(recipes, starts, [None, *starts], strict=False):
            train(recipe, start, [f"encoder={before}"] if before else [])
        folder = runs / f"rank_own_{name}"
        train("rank_own", folder, [f"encoder={starts[-1]}"] if starts else [])
        model: Any = twofold.load(folder)
        asked = questions(model.reader, list(read_rows(str(DATA / "ubuntu_irc" / "dev.jsonl.gz"))))
        ranks = places(
            score_questions(model, asked).scores,
            [question.right[0] for question in asked],
            [question.place for question in asked],
        )
        right[name] = np.array([recall(place, 1) for place in ranks])
        curve = held_out(folder, "r@1")
        table[name] = {"r@1": float(right[name].mean()), "held_out": curve, "cpu_minutes": cpu_minutes(folder)}
        if starts:
            table[name]["pretraining_cpu_minutes"] = [cpu_minutes(start) for start in starts]
            interval = paired_bootstrap(right[name], right["scratch"])
            table[name]["over_scratch"] = [interval.difference, interval.low, interval.high]
        table[name]["steps_to_the_best_of_scratch"] = reached(curve, table["scratch"]["held_out"])
        print(table, flush=True)  # and saved each time: the next start takes half an hour
        save("transfer/pretraining", {"recipe": "rank_own", "examples": len(asked), "starts": table})


def held_out(folder: Path, metric: str) -> list[tuple[int, float]]:
    """Validation metric of a training, step by step."""
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [(line["step"], line[f"dev_{metric}"]) for line in lines if f"dev_{metric}" in line]


def reached(curve: list[tuple[int, float]], other: list[tuple[int, float]]) -> int | None:
    """After how many steps a training was as good as another at its best."""
    best = max(value for _, value in other)
    return next((step for step, value in curve if value >= best), None)


def judge_images(runs: Path) -> None:
    """Breeds of pets, then that encoder under a U-Net: frozen, gradually unfrozen, free, and beside from scratch."""
    need("oxford_pets", "images.zip")
    images, shapes = f"{DATA}/oxford_pets/images.zip/dev/images", f"{DATA}/oxford_pets/images.zip/dev"
    train("label_pets", runs / "label_pets")
    labels = twofold.load(runs / "label_pets")
    rows = list(labels.read(str(DATA / "oxford_pets" / "dev.tsv.gz"), images))
    breeds = twofold.evaluate(labels, [row.values for row in rows]).metrics
    starts = {"scratch": [], "frozen": ["train.freeze=encoder"], "gradual": ["train.freeze=gradual"], "free": []}
    table: dict[str, Any] = {}
    for name, changes in starts.items():
        folder = runs / f"segment_pets_{name}"
        begun = [] if name == "scratch" else [f"encoder={runs / 'label_pets'}"]
        train("segment_pets", folder, ["train.epochs=10", *begun, *changes])
        model = twofold.load(folder)
        metrics = twofold.evaluate(model, [row.values for row in model.read(shapes)]).metrics
        curve = held_out(folder, "miou")
        table[name] = {"metrics": metrics, "held_out": curve, "cpu_minutes": cpu_minutes(folder)}
        table[name]["steps_to_the_best_of_scratch"] = reached(curve, table["scratch"]["held_out"])
    print(breeds, table, flush=True)
    content = {"breeds": breeds, "breeds_cpu_minutes": cpu_minutes(runs / "label_pets"), "masks": table}
    save("transfer/images", {"epochs": 10, "examples": len(rows), **content})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    others = {"pretraining": judge_pretraining, "images": judge_images}
    parser.add_argument("names", nargs="*", choices=[*TEXTS, *others, []], help="rows of the tables; all unless given")
    parser.add_argument("--runs", type=Path, default=ROOT / "runs", help="the folder of the trainings")
    options = parser.parse_args()
    runs = options.runs.absolute()
    for name in options.names or [*TEXTS, *others]:
        if name in others:
            others[name](runs)
        else:
            judge_text(name, runs)


if __name__ == "__main__":
    main()
