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
@click.argument("what", required=False, type=click.Choice(["models"]))
@json_option
def list_parts(what: str | None, as_json: bool) -> None:
    """List the built-in inputs, outputs, encoders, decoders, losses, metrics, recipes, experiments and named models.

    `twofold list models` shows what each named model is, its license and size, and whether it is on this machine.

    \b
      twofold list
      twofold list models
      twofold list --json
    """
    from twofold.config import ROLES, kinds
    from twofold.data.named_models import MODELS
    from twofold.recipe.file import recipe_names

    if what:
        from twofold.cli.pull import models_lines
        from twofold.models import known_models

        models = known_models()
        show({"models": [known.as_dict() for known in models]}, models_lines(models), as_json)
        return
    further: dict[str, list[str]] = {"recipes": recipe_names(), "experiments": [], "models": list(MODELS)}
    parts = {role: kinds(role) for role in ROLES} | further
    show(parts, (f"{what + ':':13} {', '.join(names) or 'none yet'}" for what, names in parts.items()), as_json)
