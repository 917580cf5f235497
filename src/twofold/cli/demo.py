"""`twofold demo`: a first model, trained on data that the project makes itself."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import click

ASKED = (
    "four hundred and twelve",
    "nine thousand and six",
    "seventy thousand three hundred",
    "삼천오백이십일",
    "구만 육백",
)
ROWS = 6000


def recipe(train: Path) -> dict[str, Any]:
    """An RNN with attention, small enough for a minute of two cores."""
    return {
        "data": {"train": str(train), "held_out": 200},
        "tokenizer": {"size": 120},
        "encoder": {"kind": "rnn", "embedding": 64, "width": 128},
        "decoder": {"kind": "attention_rnn", "embedding": 64, "width": 128},
        "train": {"epochs": 8, "batch_tokens": 250, "learning_rate": 4e-3, "warmup": 50, "best": "exact_match"},
        "generate": {"beam": 4},
    }


@click.command()
@click.option("--out", type=click.Path(path_type=Path), help="Keep the trained model in this folder.")
def demo(out: Path | None) -> None:
    """Train an RNN with attention to read numbers spelled out in English and Korean, then let it read some.

    \b
      twofold demo
      twofold demo --out runs/demo && twofold predict runs/demo "six hundred and five"
    """
    import torch

    from twofold import api
    from twofold.data import made
    from twofold.recipe import Recipe, train

    torch.set_num_threads(1)  # so small a model only waits for further threads

    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        file = folder / "numbers.jsonl"
        rows = made.numbers(ROWS, seed=1, without=ASKED)
        file.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
        click.echo(f"Learning from {ROWS:,} numbers, for example {rows[0]['source']} → {rows[0]['target']}", err=True)
        target = out or folder / "run"
        train(Recipe.of(recipe(file)), target)
        model = api.load(target)
        report = api.evaluate(model, made.numbers(500, seed=2))
        click.echo(
            f"\n{report.metrics['exact_match']:.1%} of 500 further numbers are read without a mistake; for example:\n"
        )
        click.echo(f"{'input':34} {'output':>8} {'score':>8}")
        for prediction in model.predict(list(ASKED)):
            click.echo(f"{prediction.input:34} {prediction.output:>8} {prediction.score:8.3f}")
    if out:
        click.echo(f'\nThe model is in {out}; try: twofold predict {out} "six hundred and five"')
