"""`twofold list`: the parts and recipes that come along."""

from __future__ import annotations

import click

from twofold.cli.options import print_json


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def list_parts(as_json: bool) -> None:
    """Show the inputs, outputs, encoders, decoders, losses, metrics, recipes and experiments that come along.

    \b
      twofold list
      twofold list --json
    """
    from twofold.config import ROLES, kinds
    from twofold.recipe.file import recipe_names

    found: dict[str, list[str]] = {role: kinds(role) for role in ROLES}
    found |= {"recipes": recipe_names(), "experiments": []}
    if as_json:
        print_json(found)
        return
    for what, names in found.items():
        click.echo(f"{what + ':':13} {', '.join(names) or 'none yet'}")
