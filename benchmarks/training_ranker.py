"""Training of a bi-encoder beside sentence-transformers' trainer: tokens per CPU second, and R@1 after equal pairs.

The backbone (all-MiniLM-L6-v2), the pairs, the lengths, the batch and the optimizer are the same: contexts are cut to
their last 100 tokens and responses to their first 50 before either reads them. Each step of either is timed by the CPU
seconds of this process on one thread; the first is left out. Theirs is given twice: as it comes, with dropout on the
attention weights, and without it, as ours. sentence-transformers and accelerate must be importable.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from _bootstrap import paired_bootstrap
from _common import DATA, RESULTS, need, processor_flags, save
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
PRECISIONS = ("float32", "bfloat16")
LOSSES = ("plain", "cached")
"""All in memory, or each text read twice in chunks: MultipleNegativesRankingLoss and its cached form."""


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
    settings |= {"learning_rate": RATE, "memory_tokens": 0 if loss == "cached" else 10**6}
    changes = [f"data.train={file}", "data.held_out=0", "data.rows=null", "train.min_steps=null", "train.best=loss"]
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
    kinds = {"plain": losses.MultipleNegativesRankingLoss, "cached": losses.CachedMultipleNegativesRankingLoss}
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
    trainer = SentenceTransformerTrainer(model, arguments, given, loss=kinds[loss](model), callbacks=[Tick()])
    trainer.train()
    model.save_pretrained(str(folder / "model"))
    return clock


def right_answers(folder: Path, contexts: int) -> list[float]:
    """R@1 of each of the first contexts of dev, in float32, by the same code for both."""
    model = load_ranker(folder, runtime="torch", precision="float32")
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


def in_a_process(system: str, precision: str, loss: str, steps: int, seed: int, contexts: int = 0) -> dict[str, Any]:
    asked = [system, precision, loss, *map(str, (steps, seed, contexts))]
    ran = subprocess.run([sys.executable, __file__, "--one", *asked], check=True, stdout=subprocess.PIPE)
    measured: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    print(*asked, measured["tokens_per_cpu_second"], "tokens/s", np.mean(measured["right"] or [0]), flush=True)
    return measured


def speed(losses: list[str], steps: int, rounds: int) -> dict[str, Any]:
    """Medians of rounds taken in turn."""
    systems = ("ours", "theirs", "theirs without attention dropout")
    rates: dict[tuple[str, str, str], list[float]] = {}
    for round_ in range(rounds):
        for loss in losses:
            for precision in PRECISIONS:
                for system in systems:
                    measured = in_a_process(system, precision, loss, steps, round_ + 1)
                    rates.setdefault((loss, precision, system), []).append(measured["tokens_per_cpu_second"])
    table: dict[str, Any] = {}
    for (loss, precision, system), values in rates.items():
        table.setdefault(loss, {}).setdefault(precision, {})[system] = {
            "median": statistics.median(values),
            "all": values,
        }

    def ratio(loss: str, of: str, to: str) -> float:
        """Ours to the faster of theirs, the median over the rounds."""
        fastest = np.max([rates[loss, to, system] for system in systems[1:]], axis=0)
        return round(float(np.median(rates[loss, of, "ours"] / fastest)), 3)

    ratios = {
        loss: {
            **{precision: ratio(loss, precision, precision) for precision in PRECISIONS},
            "bfloat16 to their float32": ratio(loss, "bfloat16", "float32"),
        }
        for loss in losses
    }
    return {"real_tokens_per_cpu_second": table, "ratio_to_the_faster_of_theirs": ratios}


def quality(steps: int, seeds: int, contexts: int) -> dict[str, Any]:
    """R@1 of trainings that differ in the system and the precision alone, compared over all seeds and rows of dev."""
    right: dict[str, list[list[float]]] = {}
    for seed in range(1, seeds + 1):
        for system, precision in (
            ("ours", "bfloat16"),
            ("ours", "float32"),
            ("theirs", "bfloat16"),
            ("theirs", "float32"),
        ):
            measured = in_a_process(system, precision, "plain", steps, seed, contexts)
            right.setdefault(f"{system}, {precision}", []).append(measured["right"])
    values = {name: np.mean(each, axis=0) for name, each in right.items()}  # of each row, over the seeds
    compared = [("ours, bfloat16", "ours, float32"), ("theirs, bfloat16", "theirs, float32")]
    compared += [(f"ours, {precision}", f"theirs, {precision}") for precision in PRECISIONS]
    lines = []
    for of, to in compared:
        interval = paired_bootstrap(values[of], values[to])
        ends = [round(interval.low, 4), round(interval.high, 4)]
        lines.append({"of": of, "to": to, "difference": round(interval.difference, 4), "interval": ends})
    r1 = {name: [round(float(np.mean(seed)), 4) for seed in each] for name, each in right.items()}
    return {"pairs": steps * BATCH, "contexts": contexts, "r@1_by_seed": r1, "differences": lines}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--one", nargs=6, metavar=("SYSTEM", "PRECISION", "LOSS", "STEPS", "SEED", "CONTEXTS"))
    parser.add_argument("--parts", nargs="+", choices=["speed", "quality"], default=["speed", "quality"])
    parser.add_argument("--steps", type=int, default=6, help="steps of each timed training")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--losses", nargs="+", choices=LOSSES, default=list(LOSSES), help="those that are timed")
    parser.add_argument("--trained", type=int, default=60, help="steps of each training that is judged")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--contexts", type=int, default=1000, help="rows of dev that are judged")
    options = parser.parse_args()
    need("ubuntu_irc", "train_pairs.jsonl.gz")
    if options.one:
        system, precision, loss, *numbers = options.one
        print(json.dumps(one(system, precision, loss, *map(int, numbers))))
        return
    torch.set_num_threads(1)
    path = RESULTS / "training_ranker.json"
    known = json.loads(path.read_text()) if path.exists() else {}
    parts = {part: known[part] for part in ("speed", "quality") if part in known}
    if "speed" in options.parts:
        parts["speed"] = speed(options.losses, options.steps, options.rounds)
    if "quality" in options.parts:
        parts["quality"] = quality(options.trained, options.seeds, options.contexts)
    save("training_ranker", {"processor": processor_flags(), "batch": BATCH, "tokens": [CONTEXT, RESPONSE], **parts})


if __name__ == "__main__":
    main()
