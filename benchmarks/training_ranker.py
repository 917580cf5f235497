"""Training of a bi-encoder beside sentence-transformers' trainer: tokens per CPU second, and R@1 after equal pairs.

The backbone (all-MiniLM-L6-v2), the pairs, the lengths, the batch, the loss (cosines × 20) and the optimizer are the
same: contexts are cut to their last 100 tokens and responses to their first 50 before either reads them. Each step of
either is timed by the CPU seconds of this process on one thread; the first is left out. Theirs is given twice: as it
comes, with dropout on the attention weights, and without it, as ours. Each training runs in a process of its own and is
kept in `--runs`, so that a benchmark that was stopped goes on.

sentence-transformers' trainer needs accelerate, which can lie beside the environment:
`pip install --target EXTRA --no-deps accelerate psutil`, then `PYTHONPATH=EXTRA`.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, islice, product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _bootstrap import paired_bootstrap
from _common import DATA, RESULTS, ROOT, need, processor_flags, save
from tokenizers import Tokenizer

from twofold.api import load_ranker
from twofold.data.files import read_rows
from twofold.data.named_models import DEFAULT, folder_of
from twofold.data.ranking import questions
from twofold.data.ranks import places, recall
from twofold.metrics.ranking import score_questions
from twofold.model import Model
from twofold.model.batches import TrainingRows
from twofold.recipe import Recipe
from twofold.recipe.build import build_model, cache_rows, split_rows, training_rows
from twofold.training.loop import Trainer

BACKBONE = str(folder_of(DEFAULT))
CONTEXT, RESPONSE, BATCH, RATE = 100, 50, 64, 1e-4
CACHED_ROWS = 32
"""Texts in a chunk of their cached loss, by default; ours has as many tokens in memory."""
PRECISIONS = ("float32", "bfloat16")
LOSSES = ("plain", "cached")
"""All in memory, or read twice in chunks where memory ends: MultipleNegativesRankingLoss and its cached form."""
SYSTEMS = {"plain": ("ours", "theirs", "theirs without attention dropout"), "cached": ("ours", "theirs")}
JUDGED = (("ours", "bfloat16"), ("ours", "float32"), ("theirs", "float32"))


@dataclass
class Clock:
    """CPU seconds and real tokens after each step."""

    seconds: list[float]
    tokens: list[int]

    def rate(self) -> float:
        """Real tokens per CPU second after the first step."""
        return sum(self.tokens[1:]) / (self.seconds[-1] - self.seconds[0])


def pairs(count: int) -> list[dict[str, str]]:
    """The first pairs of ubuntu_irc, each text cut to its limit."""
    tokenizer = Tokenizer.from_file(f"{BACKBONE}/tokenizer.json")
    tokenizer.no_padding()
    tokenizer.no_truncation()

    def cut(text: str, tokens: slice) -> str:
        offsets = tokenizer.encode(text, add_special_tokens=False).offsets[tokens]
        return text[offsets[0][0] : offsets[-1][1]] if offsets else text

    rows = islice(read_rows(str(DATA / "ubuntu_irc" / "train_pairs.jsonl.gz")), count)
    ends, begins = slice(2 - CONTEXT, None), slice(RESPONSE - 2)
    return [
        {
            "context": cut(" ".join(row.values["context"]), ends),
            "response": cut(row.values["response"], begins),
        }
        for row in rows
    ]


def ours(rows: list[dict[str, str]], precision: str, loss: str, steps: int, seed: int, folder: Path) -> Clock:
    """Trains with twofold's loop; the model is then in `folder`/model."""
    file = folder / "pairs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    settings = {"max_steps": steps, "batch_rows": BATCH, "precision": precision, "seed": seed, "log_every": 1}
    settings |= {"learning_rate": RATE, "memory_tokens": CACHED_ROWS * CONTEXT if loss == "cached" else 10**6}
    changes = [f"data.train={file}", "data.held_out=0", "data.rows=null", "train.min_steps=null", "train.best=loss"]
    changes += ["decoder.learn_scale=false"]  # theirs is a constant
    recipe = Recipe.load("rank_bi", [*changes, *(f"train.{name}={value}" for name, value in settings.items())])
    torch.manual_seed(seed)
    model = build_model(recipe, folder)
    cache = cache_rows(recipe, model)
    given = training_rows(recipe, cache, split_rows(recipe, cache, model), model)
    clock = Clock([], [])
    trainer = Trainer(
        model, _counted(given, model, clock), None, recipe.train, folder, [lambda line: _tick(clock, line)]
    )
    trainer.run()
    return clock


def _counted(rows: TrainingRows, model: Model, clock: Clock) -> TrainingRows:
    """Rows whose batches note their real tokens."""

    class Counted(type(rows)):  # type: ignore[misc]
        def batch(self, *asked: Any) -> Any:
            batch = super().batch(*asked)
            clock.tokens.append(model.tokens(batch))
            return batch

    return Counted(**{name: getattr(rows, name) for name in rows.__dataclass_fields__})


def _tick(clock: Clock, line: dict[str, Any]) -> None:
    if "tokens_per_second" in line:
        clock.seconds.append(time.process_time())


def theirs(
    rows: list[dict[str, str]], precision: str, loss: str, steps: int, seed: int, folder: Path, attention: float
) -> Clock:
    """Trains with sentence-transformers' trainer; the model is then in `folder`/model."""
    from datasets import Dataset  # type: ignore[import-untyped]
    from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer
    from sentence_transformers.sentence_transformer import losses
    from sentence_transformers.sentence_transformer.training_args import SentenceTransformerTrainingArguments
    from transformers import TrainerCallback

    torch.manual_seed(seed)
    dropout = {"attention_probs_dropout_prob": attention}
    model = SentenceTransformer(BACKBONE, device="cpu", config_kwargs=dropout)
    model.max_seq_length = CONTEXT
    plain, cached = losses.MultipleNegativesRankingLoss, losses.CachedMultipleNegativesRankingLoss
    made = plain(model) if loss == "plain" else cached(model, mini_batch_size=CACHED_ROWS)
    clock = Clock([], [])
    steps_tokens = [0]

    def count(module: Any, given: Any) -> None:
        if torch.is_grad_enabled():  # the cached loss reads everything once more without
            steps_tokens[0] += int(given[0]["attention_mask"].sum())

    class Tick(TrainerCallback):
        def on_step_end(self, *given: Any, **named: Any) -> None:
            clock.seconds.append(time.process_time())
            clock.tokens.append(steps_tokens[0])
            steps_tokens[0] = 0

    model[0].register_forward_pre_hook(count)
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(folder),
        max_steps=steps,
        per_device_train_batch_size=BATCH,
        learning_rate=RATE,
        warmup_steps=max(1, steps // 10),
        lr_scheduler_type="cosine",
        weight_decay=0.01,
        adam_beta2=0.999,
        adam_epsilon=1e-9,
        bf16=precision == "bfloat16",
        use_cpu=True,
        seed=seed,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        logging_strategy="no",
    )
    given = Dataset.from_list([{"anchor": row["context"], "positive": row["response"]} for row in rows])
    trainer = SentenceTransformerTrainer(model, arguments, given, loss=made, callbacks=[Tick()])
    trainer.train()
    model.save_pretrained(str(folder / "model"))
    return clock


def right_answers(folder: Path, contexts: int) -> list[float]:
    """R@1 of each of the first contexts of dev, in float32, by the same code for both."""
    model = load_ranker(folder, precision="float32")
    rows = list(islice(read_rows(str(DATA / "ubuntu_irc" / "dev.jsonl.gz")), contexts))
    asked = questions(model.reader, rows)
    scored = score_questions(model, asked)
    ranks = places(scored.scores, [question.right[0] for question in asked], [question.place for question in asked])
    return [recall(place, 1) for place in ranks]


def one(system: str, precision: str, loss: str, steps: int, seed: int, contexts: int) -> dict[str, Any]:
    """One training of this process: its speed, and R@1 of `contexts` contexts."""
    torch.set_num_threads(1)
    rows = pairs(steps * BATCH)
    with tempfile.TemporaryDirectory() as place:
        if system == "ours":
            clock = ours(rows, precision, loss, steps, seed, Path(place))
        else:
            clock = theirs(rows, precision, loss, steps, seed, Path(place), 0.1 if system == "theirs" else 0.0)
        right = right_answers(Path(place) / "model", contexts) if contexts else []
    return {"tokens_per_cpu_second": round(clock.rate(), 1), "right": right}


class Runs:
    """Trainings, each in a process of its own; what they measured is kept in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def measure(self, system: str, precision: str, loss: str, steps: int, seed: int, contexts: int = 0) -> Any:
        asked = [system, precision, loss, *map(str, (steps, seed, contexts))]
        kept = self.folder / ("-".join(asked).replace(" ", "_") + ".json")
        if not kept.exists():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            ran = subprocess.run([sys.executable, __file__, "--one", *asked], check=True, stdout=subprocess.PIPE)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            measured = json.loads(ran.stdout.splitlines()[-1]) | {"cpu_seconds": round(used, 1)}
            kept.write_text(json.dumps(measured))
        measured = json.loads(kept.read_text())
        right = np.mean(measured["right"]) if contexts else "-"
        print(*asked, measured["tokens_per_cpu_second"], "tokens/s", right, measured["cpu_seconds"], "s", flush=True)
        return measured


def speed(runs: Runs, losses: list[str], steps: int, rounds: int) -> Iterator[dict[str, Any]]:
    """Medians of rounds taken in turn, after each round."""
    rates: dict[tuple[str, str, str], list[float]] = {}
    for round_ in range(rounds):
        timed = [(loss, system) for loss in losses for system in SYSTEMS[loss]]
        for (loss, system), precision in product(timed, PRECISIONS):
            measured = runs.measure(system, precision, loss, steps, round_ + 1)
            rates.setdefault((loss, precision, system), []).append(measured["tokens_per_cpu_second"])
        table: dict[str, Any] = {}
        for (loss, precision, system), values in rates.items():
            row = {"median": statistics.median(values), "all": values}
            table.setdefault(loss, {}).setdefault(precision, {})[system] = row
        yield {
            "timed_steps": steps - 1,
            "real_tokens_per_cpu_second": table,
            "ratio_to_theirs": {
                loss: {system: ratios(rates, loss, system) for system in SYSTEMS[loss][1:]} for loss in losses
            },
        }


def ratios(rates: dict[tuple[str, str, str], list[float]], loss: str, theirs: str) -> dict[str, float]:
    """Medians over the rounds of ours divided by theirs."""

    def ratio(of: str, to: str) -> float:
        return round(float(np.median(np.divide(rates[loss, of, "ours"], rates[loss, to, theirs]))), 3)

    equal = {precision: ratio(precision, precision) for precision in PRECISIONS}
    return {**equal, "bfloat16 to their float32": ratio("bfloat16", "float32")}


def quality(runs: Runs, steps: int, seeds: int, contexts: int) -> Iterator[dict[str, Any]]:
    """R@1 of trainings that differ in the system and the precision alone, compared over all seeds and rows of dev,
    after each seed."""
    right: dict[str, list[list[float]]] = {}
    for seed in range(1, seeds + 1):
        for system, precision in JUDGED:
            measured = runs.measure(system, precision, "plain", steps, seed, contexts)
            right.setdefault(f"{system}, {precision}", []).append(measured["right"])
        values = {name: np.mean(each, axis=0) for name, each in right.items()}  # of each row, over the seeds
        lines = []
        for of, to in combinations(values, 2):
            interval = paired_bootstrap(values[of], values[to])
            ends = [round(interval.low, 4), round(interval.high, 4)]
            lines.append({"of": of, "to": to, "difference": round(interval.difference, 4), "interval": ends})
        r1 = {name: [round(float(np.mean(seed)), 4) for seed in each] for name, each in right.items()}
        yield {"pairs": steps * BATCH, "contexts": contexts, "r@1_by_seed": r1, "differences": lines}


def products() -> dict[str, float]:
    """Billions of operations per CPU second of the backbone's largest product: what the processor gives either side."""
    rates = {}
    for name, kind in (("float32", torch.float32), ("bfloat16", torch.bfloat16)):
        states, weights = (torch.ones(rows, 384, dtype=kind) for rows in (1024, 1536))
        times = []
        for _ in range(40):
            start = time.process_time()
            states @ weights.T
            times.append(time.process_time() - start)
        rates[name] = round(2 * 1024 * 384 * 1536 / statistics.median(times) / 1e9, 1)
    return rates


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", nargs=6, metavar=("SYSTEM", "PRECISION", "LOSS", "STEPS", "SEED", "CONTEXTS"))
    parser.add_argument("--parts", nargs="+", choices=["speed", "quality"], default=["speed", "quality"])
    parser.add_argument("--steps", type=int, default=3, help="steps of each timed training")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--losses", nargs="+", choices=LOSSES, default=list(LOSSES), help="those that are timed")
    parser.add_argument("--trained", type=int, default=20, help="steps of each training that is judged")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--contexts", type=int, default=1000, help="rows of dev that are judged")
    parser.add_argument(
        "--runs", type=Path, default=ROOT / "runs" / "training_ranker", help="the folder of the trainings"
    )
    options = parser.parse_args()
    need("ubuntu_irc", "train_pairs.jsonl.gz")
    if options.one:
        system, precision, loss, *numbers = options.one
        print(json.dumps(one(system, precision, loss, *map(int, numbers))))
        return
    torch.set_num_threads(1)
    runs, path = Runs(options.runs), RESULTS / "training_ranker.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    about: dict[str, Any] = {
        "processor": processor_flags(),
        "gflops_of_a_product": products(),
        "batch": BATCH,
        "tokens": [CONTEXT, RESPONSE],
    }
    parts = {part: known[part] for part in ("speed", "quality") if part in known}
    made = {
        "speed": lambda: speed(runs, options.losses, options.steps, options.rounds),
        "quality": lambda: quality(runs, options.trained, options.seeds, options.contexts),
    }
    for part in options.parts:
        for measured in made[part]():
            parts[part] = measured
            save("training_ranker", {**about, **parts})


if __name__ == "__main__":
    main()
