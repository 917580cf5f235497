"""`twofold train`, and `twofold list`: the parts and recipes that a training can name."""

from __future__ import annotations

from pathlib import Path

import click

from twofold.cli.options import json_option, show


@click.command()
@click.argument("recipe")
@click.argument("changes", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--out", required=True, metavar="FOLDER", help="Folder for the model, its checkpoints and its log.")
@click.option("--resume", is_flag=True, help="Continue the training in --out, or start it.")
@click.option("--resume-anyway", is_flag=True, help="Continue even if the training data has changed.")
def train(recipe: str, changes: tuple[str, ...], out: str, resume: bool, resume_anyway: bool) -> None:
    """Train a model. RECIPE is a YAML file or the name of a packaged recipe (see `twofold list`).

    KEY=VALUE changes a setting of the recipe, such as train.epochs=3.

    \b
      twofold train translate --out runs/translate
      twofold train my.yaml train.epochs=3 encoder.width=128 --out runs/small
      torchrun --nproc-per-node 2 -m twofold train translate --out runs/two
    """
    from twofold.recipe import train as run
    from twofold.training import processes

    outcome = run(recipe, out, changes, resume, resume_anyway)
    if processes.is_first():
        done, further = ("done", "") if outcome.finished else ("stopped", "; continue with --resume")
        model = Path(out) / "model"
        saved = f"the best model is in {model}" if model.exists() else "no model was saved yet"
        click.echo(f"{done} after {outcome.steps:,} steps; {saved}{further}", err=True)
    if not outcome.finished:  # a script must not take it for done
        raise click.exceptions.Exit(1)


@click.command("list")
@json_option
def list_parts(as_json: bool) -> None:
    """List the built-in inputs, outputs, encoders, decoders, losses, metrics, recipes and experiments.

    \b
      twofold list
      twofold list --json
    """
    from twofold.config import ROLES, kinds
    from twofold.recipe.file import recipe_names

    parts = {role: kinds(role) for role in ROLES} | {"recipes": recipe_names(), "experiments": []}
    show(parts, (f"{what + ':':13} {', '.join(names) or 'none yet'}" for what, names in parts.items()), as_json)
