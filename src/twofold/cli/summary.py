"""`twofold summary`: parts of a model or recipe, what passes between them, and parameters by part."""

from __future__ import annotations

import click

from twofold.cli.options import json_option, show


@click.command()
@click.argument("name", metavar="MODEL|RECIPE")
@click.argument("changes", nargs=-1, metavar="[KEY=VALUE]...")
@click.option("--allow-code", is_flag=True, help="Run code from outside twofold that the model needs.")
@json_option
def summary(name: str, changes: tuple[str, ...], allow_code: bool, as_json: bool) -> None:
    """Show the parts of a model, the tensor shapes between them, and the parameters of each part.

    MODEL is a folder, a hub id or a named model (`twofold list models`). RECIPE is a YAML file or the name of a
    packaged recipe; it needs neither a training nor the data.

    \b
      twofold summary translate
      twofold summary translate encoder.width=128 encoder.layers=6
      twofold summary runs/rank_poly
      twofold summary default --json
    """
    from twofold import recipe

    result = recipe.summary(name, changes, allow_code)
    show(result.as_dict(), [repr(result)], as_json)
