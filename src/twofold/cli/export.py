"""`twofold export`: a model as a folder that other programs read."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from twofold.cli.options import FilePath, RowsFile, json_option, print_json


@click.command()
@click.argument("model")
@click.argument("out", type=FilePath())
@click.option("--to", default="onnx", help="onnx, openvino, ctranslate2 or sentence-transformers.")
@click.option("--int8", is_flag=True, help="ONNX: weights in int8, unless R@1 on --rows falls by more than .005.")
@click.option("--rows", type=RowsFile(), help="Rows in the form of the training data, on which int8 is measured.")
@json_option
def export(model: str, out: Path, to: str, int8: bool, rows: str | None, as_json: bool) -> None:
    """Write MODEL to a new folder OUT in a format of other programs.

    The folder holds all that is needed to use the model without twofold, a card (README.md), and parity.json: the
    largest difference from torch and the agreement of rankings or answers on sample inputs. An export that differs is
    not written.

    \b
      twofold export runs/rank_poly --to onnx poly_onnx
      twofold export runs/rank_bi --to sentence-transformers my-sentence-model
      twofold export default --to onnx default_int8 --int8 --rows dev.jsonl.gz
    """
    from twofold.api import export as export_model

    done = export_model(model, out, to, int8, rows)
    if as_json:
        print_json({"out": str(out), **asdict(done.parity)})
        return
    parity = done.parity
    told = f"largest difference {parity.largest_difference:.1e}, {parity.agreement:.1%} ranked or answered alike"
    click.echo(f"{out}: {to} in {parity.precision}; {told}", err=True)
