"""`twofold demo`: three rankers, trained on the spot, find functions of Python's standard library."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import click

from twofold import storage
from twofold.cli.options import FilePath

ASKED = (
    "remove a folder and everything in it",
    "how many times does each word occur",
    "break a long paragraph into lines",
    "send an e-mail",
    "compare two texts line by line",
)
HELD_OUT = 300
SEED = 1
ROWS, CROSS_ROWS, CROSS_JUDGED = 2560, 384, 150
RANKERS = ("bi", "poly", "cross")
ADDS = {"decoders": 20, "decoders.main.compare": 0, "candidate_tower": 0}
"""Learning-rate multipliers of a cross-encoder that adds to the score of a frozen bi-encoder."""


def recipes(train: Path, runs: Path) -> dict[str, dict[str, Any]]:
    """Recipes of three rankers on the embedded default; each trains for about a minute on two cores."""
    settings: dict[str, Any] = {"epochs": 1, "learning_rate": 1e-4, "log_every": 10, "batch_rows": 64}
    bi = {
        "data": {"train": str(train), "rows": ROWS},
        "input": {"max_tokens": 48},
        "output": {"candidate": {"max_tokens": 48}},
        "encoder": {"kind": "pretrained", "name": "default"},
        "decoder": {"kind": "bi"},
        "train": settings,
    }
    poly = bi | {
        "decoder": {"kind": "poly", "codes": 16},
        "train": settings | {"learning_rate_multipliers": {"decoders.main.codes": 20}},
    }
    hard = {"batch_rows": 16, "negatives": 3, "hard_negatives": True, "learning_rate_multipliers": ADDS}
    cross = bi | {
        "data": {"train": str(train), "rows": CROSS_ROWS},
        "decoder": {"kind": "cross", "pooling": "both", "compare": {"kind": "bi"}},
        "start": str(runs / "bi"),
        "two_towers": True,
        "train": settings | hard,
    }
    return {"bi": bi, "poly": poly, "cross": cross}


@click.command()
@click.option("--out", type=FilePath(), help="Keep the trained models in this folder.")
@click.option("--serve", is_flag=True, help="Then serve the three rankers, with a page that shows how they differ.")
@click.option("--port", default=8000, type=click.IntRange(0, 65_535), help="--serve: port; 0 takes a free one.")
def demo(out: Path | None, serve: bool, port: int) -> None:
    """Train three rankers that find functions of Python's standard library by a description.

    Reads the documentation that is installed with Python, fine-tunes a bi-, a poly- and a cross-encoder from `default`,
    compares them, and answers a few questions. Takes less than five minutes on two cores.

    \b
      twofold demo
      twofold demo --out runs/demo
      twofold demo --serve
    """
    from twofold.cli.serve import check_packages

    if serve:
        check_packages()  # now, not after the training
    if out:
        with storage.writing(out):
            out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = out or Path(temporary)
        texts = _train_and_compare(folder, Path(temporary))
        if out:
            click.echo(f'\nThe models are in {out}; try: twofold rank {out}/poly --candidates FILE "your question"')
        if serve:
            _serve(folder, texts, Path(temporary) / "functions.index", port)


def _train_and_compare(folder: Path, temporary: Path) -> list[str]:
    """Trains the rankers and prints what they answer; returns the descriptions of all functions."""
    from twofold import api
    from twofold.cli.stdlib_docs import pairs, standard_library_docs
    from twofold.recipe import Recipe, train

    rows = pairs(standard_library_docs())
    shuffled = _shuffled(rows)
    held, learned = shuffled[:HELD_OUT], shuffled[HELD_OUT:]
    click.echo(f"{len(rows):,} functions and classes of the standard library, for example", err=True)
    click.echo(f"  {learned[0]['context'][0]}  →  {learned[0]['response']}\n", err=True)
    file = temporary / "pairs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in learned), encoding="utf-8")
    for name, recipe in recipes(file, folder).items():
        click.echo(f"training {name} ...", err=True)
        if not train(Recipe.of(recipe), folder / name).finished:
            raise click.Abort
    models = {name: api.load_ranker(folder / name) for name in RANKERS}
    texts = [str(row["response"]) for row in rows]
    ready = _compare(models, held, texts)
    for question in ASKED:
        click.echo(f"\n{question}")
        for hit in models["poly"].rank(question, ready["poly"], k=3):
            click.echo(f"{hit.score:8.2f}  {hit.text}")
    return texts


def _serve(folder: Path, texts: list[str], index: Path, port: int) -> None:
    """Serves the rankers, and an index of all functions to search."""
    from twofold import api
    from twofold.cli.serve import start
    from twofold.serve.settings import Settings

    click.echo("", err=True)
    api.build_index(index, folder / "poly", texts, show=True).close()
    start(Settings((*(str(folder / name) for name in RANKERS), f"functions={index}"), port=port))


def _shuffled(rows: list[Any]) -> list[Any]:
    import numpy as np

    return [rows[number] for number in np.random.default_rng(SEED).permutation(len(rows))]


def _compare(models: dict[str, Any], held: list[Any], texts: list[str]) -> dict[str, Any]:
    """Prints a line for each ranker, evaluated on held-out rows; returns their embeddings of all functions."""
    from twofold import api
    from twofold.data.ranks import places, recall
    from twofold.progress import bar

    right = [texts.index(row["response"]) for row in held]
    ready = {}
    click.echo(f"\n{'':6} {'R@1/10':>8} {'ms':>8} {f'R@10/{len(texts)}':>10}   ({len(held)} functions held out)")
    for name, model in models.items():
        judged = held[:CROSS_JUDGED] if model.joined else held
        with bar(f"judging {name}", len(judged)) as progress:
            metrics = api.evaluate(model, judged, progress=progress, timed=20).metrics
        among_all, note = "-", f"   (the first {len(judged)} of them)"
        if not model.joined:
            with bar(f"{name} reads all functions", len(texts)) as progress:
                ready[name] = model.prepare(texts, report=progress)
            scores = model.score([row["context"] for row in held], ready[name]).cpu().numpy()
            among_all, note = f"{sum(recall(place, 10) for place in places(scores, right)) / len(held):.3f}", ""
        click.echo(f"{name:6} {metrics['r@1']:8.3f} {metrics['milliseconds']:8.1f} {among_all:>10}{note}")
    return ready
