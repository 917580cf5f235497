"""Attacks: kills at calls that change files, flipped bits, hostile inputs; and what a change of an index costs.

Counts what became of each attack, for the table in docs/reliability.md; the tests run short forms of the same.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import os
import shutil
import statistics
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _common import save

from tests import made
from tests.attacks.cases import GROUPS
from tests.attacks.cases.stage import build_stage
from tests.attacks.flips import changed_index, flip_all, summed
from tests.attacks.inputs import GOOD as ANSWERED
from tests.attacks.inputs import attack as attack_inputs
from tests.attacks.kills import kill_builds, kill_changes, kill_trainings, losses_of
from tests.attacks.victim import Victims
from tests.conftest import small_recipe, write_jsonl
from tests.index.common import TEXTS, ranker_of
from twofold.data.tokenizer import TextTokenizer, TokenizerConfig
from twofold.index import Index
from twofold.index.catalog import Catalog
from twofold.model import Model, Ranker
from twofold.recipe import Recipe, train

GOOD = {"whole", "not killed", "right", "named", *ANSWERED}


def recipe_in(folder: Path, **settings: Any) -> dict[str, Any]:
    rows = write_jsonl(folder / "numbers.jsonl", made.numbers(60, seed=1))
    return small_recipe(rows, data={"held_out": 10, "train": rows}, train={"batch_tokens": 300, **settings})


def flip_index(folder: Path, model: Ranker, count: int) -> Counter[str]:
    def answer(copy: Path) -> Any:
        with Index(copy, model) as index:
            hits = [*index.search("one", 100), *index.search("seven hundred", 5, 'lang = "en"')]
            return [(hit.id, hit.text, hit.score, dict(hit.fields)) for hit in hits], len(index)

    return summed(flip_all(changed_index(folder, model), answer, count, folder / "copy"))


def flip_training(folder: Path, model: Ranker, count: int) -> Counter[str]:
    recipe = recipe_in(folder, max_steps=4, evaluate_every=2, save_every=2)
    longer = Recipe.of({**recipe, "train": {**recipe["train"], "max_steps": 5}})
    train(Recipe.of(recipe), folder / "run")

    def answer(copy: Path) -> Any:
        predictions = Model.from_pretrained(copy).predict(["seven hundred", "삼백"])
        train(longer, copy, resume=True)
        return [(prediction.output, prediction.score) for prediction in predictions], losses_of(copy)

    return summed(flip_all(folder / "run", answer, count, folder / "copy"))


def flip_cache(folder: Path, model: Ranker, count: int) -> Counter[str]:
    recipe = Recipe.of(recipe_in(folder, max_steps=3))
    os.environ["TWOFOLD_CACHE"] = str(folder / "whole")
    train(recipe, folder / "run")

    def answer(copy: Path) -> Any:
        os.environ["TWOFOLD_CACHE"] = str(copy)
        shutil.rmtree(folder / "again", ignore_errors=True)
        train(recipe, folder / "again")
        return losses_of(folder / "again")

    return summed(flip_all(folder / "whole", answer, count, folder / "copy"))


def hostile_inputs(folder: Path) -> Counter[str]:
    pairs = made.numbers(300, seed=1) + made.reverse(100, seed=1)
    texts = [text for pair in pairs for text in pair.values()]
    stage = build_stage(folder / "stage", TextTokenizer.train(texts, TokenizerConfig(size=100)))
    outcomes: Counter[str] = Counter()
    for number, cases in enumerate(GROUPS.values()):
        (folder / str(number)).mkdir()
        outcomes += attack_inputs(cases, folder / str(number), stage)
    return outcomes


def cost(folder: Path, model: Ranker, times: int) -> dict[str, Any]:
    """Milliseconds of a change of one candidate: now, and as it was, synced into the log and not into the main file."""
    rows = [{"id": number, "text": TEXTS[number % len(TEXTS)]} for number in range(5000)]
    index = Index.build(folder / "cost", model, rows)
    checkpoint, measured = Catalog.checkpoint, dict[str, dict[str, list[float]]]()

    def only_synced(catalog: Catalog) -> None:
        with (catalog.path.parent / "index.sqlite-wal").open("rb") as log:
            os.fsync(log.fileno())

    changes: dict[str, Callable[[int], Any]] = {
        "add": lambda number: index.add([{"id": f"x{number}", "text": "one"}]),
        "update": lambda number: index.update([{"id": f"x{number}", "text": "two"}]),
        "remove": lambda number: index.remove([f"x{number}"]),
    }
    for number in range(times):
        for name, how in (("before", only_synced), ("now", checkpoint)):
            Catalog.checkpoint = how  # type: ignore[method-assign, assignment]
            for kind, change in changes.items():
                start = time.perf_counter()
                change(number)
                measured.setdefault(kind, {}).setdefault(name, []).append((time.perf_counter() - start) * 1000)
    Catalog.checkpoint = checkpoint  # type: ignore[method-assign]
    medians = {
        kind: {name: statistics.median(values) for name, values in both.items()} for kind, both in measured.items()
    }
    return {
        kind: {
            **{name: round(value, 2) for name, value in both.items()},
            "ratio": round(both["now"] / both["before"], 2),
        }
        for kind, both in medians.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=1000, help="at most so many calls of each kind of work")
    parser.add_argument("--flips", type=int, default=100, help="so many bits of each kind of file")
    parser.add_argument("--times", type=int, default=100, help="so many changes to measure what one costs")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    model = ranker_of(TextTokenizer.train(TEXTS, TokenizerConfig(size=300)))
    outcomes: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary, contextlib.redirect_stderr(io.StringIO()):
        folder = Path(temporary)
        os.environ["TWOFOLD_CACHE"] = str(folder / "cache")
        model.save_pretrained(folder / "victims" / "model")
        victims = Victims(folder / "victims")
        recipe = recipe_in(folder, max_steps=6, evaluate_every=3, save_every=2, ema=0.9)
        attacks: dict[str, Callable[[Path], Counter[str]]] = {
            "index changes killed at a call": lambda place: kill_changes(place, victims, model, options.kills),
            "index builds and copies killed at a call": lambda place: kill_builds(place, victims, model, options.kills),
            "trainings killed at a call": lambda place: kill_trainings(place, victims, recipe, options.kills),
            "bits flipped in an index": lambda place: flip_index(place, model, options.flips),
            "bits flipped in a training folder": lambda place: flip_training(place, model, options.flips),
            "bits flipped in the token cache": lambda place: flip_cache(place, model, options.flips),
            "hostile inputs": hostile_inputs,
        }
        for number, (name, attack) in enumerate(attacks.items()):
            (folder / str(number)).mkdir()
            outcomes[name] = dict(attack(folder / str(number)))
            print(name, outcomes[name], flush=True)
        victims.close()
        milliseconds = cost(folder, model, options.times)
    print("milliseconds of a change of one candidate", milliseconds)
    save("attacks", {"outcomes": outcomes, "milliseconds_of_a_change": milliseconds})
    wrong = [outcome for counts in outcomes.values() for outcome in counts if outcome not in GOOD]
    if wrong:
        raise SystemExit(f"an attack was not named or harmless: {wrong[0]}")


if __name__ == "__main__":
    main()
