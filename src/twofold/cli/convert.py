"""`twofold import`: weights from elsewhere as a folder that an encoder reads."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click

from twofold.cli.options import FilePath, json_option, print_json


@click.command("import")
@click.argument("source", type=FilePath())
@click.argument("out", type=FilePath())
@click.option(
    "--kind", type=click.Choice(["bert", "gpt2"]), help="Type of the model in SOURCE, if its files do not tell."
)
@click.option(
    "--cased/--uncased",
    default=None,
    help="BERT's tokenizer keeps capitals or not, if the files of SOURCE do not tell.",
)
@click.option("--allow-mismatch", is_flag=True, help="Skip tensors that are unknown or do not fit, and list them.")
@json_option
def import_weights(
    source: Path, out: Path, kind: str | None, cased: bool | None, allow_mismatch: bool, as_json: bool
) -> None:
    """Convert the weights in the folder SOURCE to a folder OUT, for `encoder: {kind: pretrained, name: OUT}`.

    SOURCE is a published TensorFlow checkpoint of Google's BERT or OpenAI's GPT-2, a folder of transformers with
    pytorch_model.bin, or a folder of sentence-transformers.

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
