"""`twofold train`, and what a training begins with: `twofold list` (parts, recipes) and `twofold import` (weights)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from twofold.cli.options import FilePath, json_option, print_json, show


@click.command()
@click.argument("recipe")
@click.argument("changes", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--out", required=True, metavar="FOLDER", help="The folder for the model and its log.")
@click.option("--resume", is_flag=True, help="Go on with the training in --out, or begin it.")
@click.option("--resume-anyway", is_flag=True, help="The same, also if the training data has changed since.")
def train(recipe: str, changes: tuple[str, ...], out: str, resume: bool, resume_anyway: bool) -> None:
    """Train what RECIPE says: a YAML file, or the name of one that comes along (`twofold list`).

    \b
      twofold train translate --out runs/translate
      twofold train my.yaml train.epochs=3 encoder.width=128 --out runs/small
      torchrun --nproc-per-node 2 -m twofold train translate --out runs/two
    """
    from twofold.recipe import train as run
    from twofold.training import processes

    outcome = run(recipe, out, changes, resume, resume_anyway)
    if processes.is_first():
        done, further = ("done", "") if outcome.finished else ("stopped", "; go on with --resume")
        model = Path(out) / "model"
        saved = f"the best model is in {model}" if model.exists() else "no model was saved yet"
        click.echo(f"{done} after {outcome.steps:,} steps; {saved}{further}", err=True)
    if not outcome.finished:  # so that what a script does next does not take it for done
        raise click.exceptions.Exit(1)


@click.command("list")
@json_option
def list_parts(as_json: bool) -> None:
    """Show the inputs, outputs, encoders, decoders, losses, metrics, recipes and experiments that come along.

    \b
      twofold list
      twofold list --json
    """
    from twofold.config import ROLES, kinds
    from twofold.recipe.file import recipe_names

    parts = {role: kinds(role) for role in ROLES} | {"recipes": recipe_names(), "experiments": []}
    show(parts, (f"{what + ':':13} {', '.join(names) or 'none yet'}" for what, names in parts.items()), as_json)


@click.command("import")
@click.argument("source", type=FilePath())
@click.argument("out", type=FilePath())
@click.option("--kind", type=click.Choice(["bert", "gpt2"]), help="What SOURCE holds, where its files do not tell.")
@click.option("--cased/--uncased", default=None, help="Whether BERT's tokenizer keeps capitals, where nothing tells.")
@click.option("--allow-mismatch", is_flag=True, help="Leave out what is unknown or does not fit, and say what.")
@json_option
def import_weights(
    source: Path, out: Path, kind: str | None, cased: bool | None, allow_mismatch: bool, as_json: bool
) -> None:
    """Turn the weights in the folder SOURCE into a folder OUT that `encoder: {kind: pretrained, name: OUT}` reads.

    SOURCE is Google's BERT or OpenAI's GPT-2 as they were published (TensorFlow checkpoints), a folder of transformers
    with pytorch_model.bin, or a folder of sentence-transformers.

    \b
      twofold import uncased_L-12_H-768_A-12 runs/bert
      twofold import models/124M runs/gpt2
      twofold import my-sentence-model runs/sentences
    """
    from twofold.convert import Settings, convert
    from twofold.convert.contents import KNOWN

    done = convert(source, out, Settings(kind, cased, allow_mismatch))
    if as_json:
        items = [{"name": item.name, "why": item.why, "shape": item.shape} for item in done.not_read]
        sizes = {"tensors": done.tensors, "parameters": done.parameters, "vocabulary": done.vocabulary}
        print_json({"out": str(out), "format": done.format, "kind": done.kind, **sizes, "not_read": items})
        return
    # What is known by its name is counted; what did not fit is told one by one.
    known = Counter(item.why for item in done.not_read if item.why in KNOWN)
    lines = [f"left out, {item}" for item in done.not_read if item.why not in known]
    if known:
        counts = ", ".join(f"{number} {why}" for why, number in known.items())
        lines.append(f"not read, as no part of an encoder: {counts}")
    size = f"{done.tensors:,} tensors with {done.parameters:,} numbers, {done.vocabulary:,} tokens"
    lines.append(f"{done.kind} in {out}: {size}; `encoder: {{kind: pretrained, name: {out}}}` reads it")
    click.echo("\n".join(lines), err=True)
