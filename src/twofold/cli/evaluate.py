"""`twofold evaluate`: how good a model is on a file."""

from __future__ import annotations

from typing import Any

import click

from twofold.cli.options import generate_options, model_options, print_json, writing_options


@click.command()
@click.argument("model")
@click.argument("data")
@writing_options
@model_options
def evaluate(
    model: str, data: str, decoder: str | None, device: str, allow_code: bool, as_json: bool, **given: Any
) -> None:
    """Judge MODEL, a folder, by the rows of DATA, a file with the columns it was trained on.

    \b
      twofold evaluate runs/translate dev.tsv.gz
      twofold evaluate runs/translate dev.tsv.gz --beam 1 --json
    """
    from twofold import api
    from twofold.data.files import read_rows
    from twofold.evaluation import evaluate as judge
    from twofold.progress import bar

    loaded = api.load(model, device, allow_code)
    loaded.decoder(decoder)
    rows = list(read_rows(data))
    with bar("evaluating", len(rows)) as progress:
        report = judge(loaded, rows, generate_options(loaded.config.generate, given), decoder, progress=progress)
    if as_json:
        print_json({"metrics": report.metrics, "examples": report.examples, **report.tables})
        return
    click.echo(f"{report.examples:,} examples")
    for name, value in report.metrics.items():
        click.echo(f"{name:12} {value:.4f}")
    for name, table in report.tables.items():
        click.echo(f"\n{name.replace('_', ' ')}")
        for line in table:
            click.echo(
                "  "
                + "  ".join(f"{value:>8.2f}" if isinstance(value, float) else f"{value:>8}" for value in line.values())
            )
