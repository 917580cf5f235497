"""`twofold predict`: what a model makes of an input."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import click

from twofold.cli.options import generate_options, model_options, print_json, writing_options
from twofold.errors import TwofoldError


@click.command()
@click.argument("model")
@click.argument("inputs", nargs=-1)
@click.option("--file", "file", help="Read inputs from this file as well: text, jsonl, tsv or csv, each also .gz.")
@click.option("--stream", is_flag=True, help="Show the output of one input as it is written.")
@click.option(
    "--plot", type=click.Path(path_type=Path), help="Draw where the model looked at the first input: .png, .svg, .pdf"
)
@writing_options
@model_options
def predict(
    model: str,
    inputs: tuple[str, ...],
    file: str | None,
    stream: bool,
    plot: Path | None,
    decoder: str | None,
    device: str,
    allow_code: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Show what MODEL, a folder, makes of each INPUT.

    \b
      twofold predict runs/translate "Ein Hund läuft." --beam 5 --n-best 3
      twofold predict runs/translate --file german.txt --json
      twofold predict runs/translate "Ein Hund läuft." --plot attention.png
    """
    from twofold import api
    from twofold.model import Model
    from twofold.progress import bar

    texts: list[Any] = list(inputs)
    if not texts and not file:
        raise click.UsageError("give at least one INPUT or --file")
    if stream and (len(texts) != 1 or file or as_json):
        raise click.UsageError("--stream shows one INPUT, and not as JSON")
    loaded = api.load(model, device, allow_code)
    if not isinstance(loaded, Model):
        raise TwofoldError(f"{model}: ranks candidates and writes no text; use `twofold rank`")
    options = generate_options(loaded.config.generate, given)
    if stream:
        if given["beam"] is None:
            options = dataclasses.replace(options, beam=1, n_best=1)
        for piece in loaded.stream(texts[0], options, decoder):
            click.echo(piece, nl=False)
        click.echo()
        return
    if file:
        texts += _read(file, loaded.source.column)
    loaded.decoder(decoder)
    with bar("predicting", len(texts), show=len(texts) > 1) as progress:
        predictions = loaded.predict(texts, options, decoder, progress)
    if plot:
        from twofold.plot import draw_attention

        draw_attention(loaded.attention(texts[0], predictions[0].output, decoder), plot)
    if as_json:
        print_json({"predictions": [_plain(prediction) for prediction in predictions]})
        return
    for prediction in predictions:
        click.echo(f"{prediction.score:8.3f}  {prediction.output}")
        for output, score in prediction.alternatives:
            click.echo(f"{score:8.3f}    {output}")


def _read(file: str, column: str) -> list[Any]:
    from twofold.data.files import read_rows

    return [row.text(column if column in row.values or "text" not in row.values else "text") for row in read_rows(file)]


def _plain(prediction: Any) -> dict[str, Any]:
    plain = {"input": prediction.input, "output": prediction.output, "score": prediction.score}
    if prediction.alternatives:
        plain["alternatives"] = [{"output": output, "score": score} for output, score in prediction.alternatives]
    return plain
