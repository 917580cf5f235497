"""`twofold compare`: settings that differ between trainings, metrics side by side, curves as a figure."""

from __future__ import annotations

from pathlib import Path

import click

from twofold.cli.options import FilePath, json_option, show


@click.command()
@click.argument("runs", nargs=-1, required=True, metavar="RUN RUN...", type=FilePath())
@click.option(
    "--plot",
    type=FilePath(),
    metavar="FILE",
    help="Draw training loss and validation metric by step: .png, .svg, .pdf, .jpg.",
)
@json_option
def compare(runs: tuple[Path, ...], plot: Path | None, as_json: bool) -> None:
    """Compare trainings: settings and data that differ, and validation metrics of the best models.

    RUN is a folder that `twofold train --out` wrote.

    \b
      twofold compare runs/translate runs/small
      twofold compare runs/rank_bi runs/rank_poly runs/rank_late --plot curves.png
      twofold compare runs/* --json
    """
    from twofold import recipe

    comparison = recipe.compare(runs)
    if plot:
        from twofold.plot.curves import draw_curves

        draw_curves(comparison, plot)
    show(comparison.as_dict(), [repr(comparison)], as_json)
