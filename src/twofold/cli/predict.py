"""`twofold predict`: what a model makes of an input."""

from __future__ import annotations

import dataclasses
import functools
import gzip
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from twofold import storage
from twofold.cli.options import FilePath, generate_options, model_options, print_json, refuse_given, writing_options
from twofold.errors import TwofoldError

IMAGES = 64
"""How many images are read at a time."""
SHOWN = 9
"""The most alternatives that are shown of one input; --json has them all."""


@click.command()
@click.argument("model")
@click.argument("inputs", nargs=-1)
@click.option("--file", "file", help="Read inputs from a file as well: text, jsonl, tsv, csv, conll, conllu; also .gz.")
@click.option(
    "--conllu",
    type=FilePath(),
    help="Tags and trees: write the sentences into this file, all else as it stands in --file, if that is CoNLL-U.",
)
@click.option("--images", help="With a table in --file: the folder or archive of its images; else the table's own.")
@click.option("--stream", is_flag=True, help="Show the output of one input as it is written.")
@click.option("--prefix", help="Images: how the caption begins, for a model that was trained to go on from there.")
@click.option("--masks", type=FilePath(), help="Images: write the masks into this folder, as .png")
@click.option(
    "--plot",
    type=FilePath(),
    help="Draw where the model looked at the first input, or its mask; up to 20 images beside each "
    "other, each with what the model made of it: .png, .svg, .pdf",
)
@writing_options
@model_options
def predict(
    model: str,
    inputs: tuple[str, ...],
    file: str | None,
    conllu: Path | None,
    images: str | None,
    stream: bool,
    prefix: str | None,
    masks: Path | None,
    plot: Path | None,
    decoder: str | None,
    device: str,
    allow_code: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Show what MODEL, a folder, makes of each INPUT: a text, words, two texts with a tab between, or an image's path.

    How it writes is as saved with it unless given.

    \b
      twofold predict runs/translate "Ein Hund läuft." --beam 5 --n-best 3
      twofold predict runs/translate --file german.txt --json
      twofold predict runs/translate "Ein Hund läuft." --plot attention.png
      twofold predict runs/parse "Dogs bark ." --json
      twofold predict runs/parse --file in.conllu --conllu out.conllu
      twofold predict runs/street street.jpg --plot mask.png
      twofold predict runs/caption *.jpg --plot sheet.png
      twofold predict runs/caption_vit dog.jpg --prefix "a brown dog" --beam 5
    """
    from twofold import api
    from twofold.model import Model
    from twofold.progress import bar

    texts: list[Any] = list(inputs)
    if not texts and file is None:
        raise click.UsageError("give at least one INPUT or --file")
    if stream and (len(texts) != 1 or file or as_json):
        raise click.UsageError("--stream shows one INPUT, and not as JSON")
    _check_outputs([path for path in (plot, conllu) if path], masks)
    loaded = api.load(model, device, allow_code)
    if not isinstance(loaded, Model):
        raise TwofoldError(f"{model}: ranks candidates and writes no text; use `twofold rank`")
    if loaded.config.image is None:
        _refuse_images(inputs)
        refuse_given(["images"], "models that read images")
    options = generate_options(loaded, decoder or loaded.decoder_name(None), given)
    if stream:
        if given["beam"] is None:
            options = dataclasses.replace(options, beam=1, n_best=1)
        for piece in loaded.stream(texts[0], options, decoder, prefix):
            click.echo(piece, nl=False)
        click.echo()
        return
    blocks: list[str | None] = [None] * len(texts)
    if file is not None:
        read, of_file = _read(file, images, loaded)
        texts, blocks = texts + read, blocks + of_file
    if loaded.config.image and loaded.config.image.broken == "skip":
        texts = [one for one in texts if loaded.source.encode([loaded.source.given(one, str(one))]).ids[0]]
        if not texts:
            raise TwofoldError("none of the images can be read")
    loaded.decoder(decoder)
    paths = _mask_paths(loaded, texts, masks, decoder) if masks else []
    found: list[dict[str, Any]] = []
    written: list[str] = []
    step = IMAGES if loaded.config.image else len(texts)  # masks of many images would fill the memory
    with bar("predicting", len(texts), show=len(texts) > 1) as progress:
        for start in range(0, len(texts), step):
            some = texts[start : start + step]
            done = functools.partial(_add_to, start, progress)
            predictions = loaded.predict(some, options, decoder, done, prefix)
            for prediction, path in zip(predictions, paths[start : start + step], strict=False):
                from twofold.plot import write_mask

                write_mask(prediction.output, loaded.config.mask.first if loaded.config.mask else 0, path)
            if plot and not start:
                from twofold.plot import draw

                draw(loaded, predictions, plot, decoder, prefix)
            if conllu:
                written += _sentences(loaded, predictions, blocks[start : start + step], decoder)
            found += [_plain(prediction) for prediction in predictions]
    if conllu:
        whole = "".join(f"{one}\n\n" for one in written).encode()
        storage.write_bytes(conllu, gzip.compress(whole) if conllu.suffix == ".gz" else whole)
    if as_json:
        print_json({"predictions": found})
        return
    for line in _lines(found, bool(loaded.config.image) and len(found) > 1):
        click.echo(line)


def _lines(found: list[dict[str, Any]], named: bool) -> Iterator[str]:
    """A line for each output; in lists of texts the score that orders them stands before the log-probability."""
    listed = any("alternatives" in one and "normalized_score" in one for one in found)
    if listed:
        yield f"{'normalized':>10}  {'log-prob':>8}  output"
    for one in found:
        yield f"{_scores(one, listed)}  {_shown(one, named)}"
        for other in one.get("alternatives", ())[:SHOWN]:
            yield f"{_scores(other, listed)}    {other['output']}"


def _scores(plain: dict[str, Any], listed: bool) -> str:
    normalized = f"{plain['normalized_score']:10.3f}  " if listed else ""
    return f"{normalized}{plain['score']:8.3f}"


def _check_outputs(files: list[Path], masks: Path | None) -> None:
    """Say what cannot be written before the model works for it."""
    for path in files:
        if path.is_dir():
            raise TwofoldError(f"{path}: a folder; name a file in it")
        with storage.writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise TwofoldError(f"{path}: cannot be written to; name another file")
    if masks:
        with storage.writing(masks):
            masks.mkdir(parents=True, exist_ok=True)


def _add_to(start: int, progress: Any, number: int) -> None:
    progress(start + number)


def _mask_paths(model: Any, inputs: list[Any], folder: Path, decoder: str | None) -> list[Path]:
    from twofold.plot import mask_paths

    if model.config.decoders[model.decoder_name(decoder)].part.writes != "mask":
        raise TwofoldError("--masks: what is asked writes text and paints no masks")
    return mask_paths(inputs, folder)


def _refuse_images(inputs: tuple[str, ...]) -> None:
    """Say that a model reads texts before it makes something of an image's name."""
    from twofold.data.images import ENDINGS

    for one in inputs:
        if one.lower().endswith(ENDINGS) and os.path.isfile(one):
            raise TwofoldError(f"{one}: an image, but this model reads texts")


def _read(file: str, images: str | None, model: Any) -> tuple[list[Any], list[str | None]]:
    """What is to be read, and where the file is CoNLL-U its sentences as they stand."""
    from twofold.data.files import read_rows
    from twofold.data.image_files import find_files
    from twofold.data.images import read_images

    if model.config.image and find_files(file):
        rows = list(read_images(file, None, model.source.column, None))
    else:
        columns, rows = model.source.given("\t").values.keys(), list(read_rows(file))
        if "text" in rows[0].values and not columns <= rows[0].values.keys():  # plain lines
            rows = [model.source.given(row.text("text"), row.place) for row in rows]
        elif model.config.image:
            rows = list(read_images(file, images, model.source.column, None))
    if model.config.image:
        taken = [row.values[model.source.column] for row in rows if _is_named(model.source, row)]
        return taken, [None] * len(taken)
    return [model.source.taken(row) for row in rows], [row.values.get("conllu") for row in rows]


def _is_named(source: Any, row: Any) -> bool:
    """Whether a row names an image; a table that leaves it out is refused, or its row left out and said so."""
    try:
        source.image(row)
    except TwofoldError as error:
        if source.refuse:
            raise
        warnings.warn(f"left out: {error}", stacklevel=2)
        return False
    return True


def _sentences(model: Any, predictions: Any, blocks: list[str | None], decoder: str | None) -> list[str]:
    """Predictions as sentences of CoNLL-U."""
    from twofold.data.conll import plain_conllu, with_tags, with_tree
    from twofold.results import Tagged, Tree

    column = model.config.decoders[model.decoder_name(decoder)].target
    sentences = []
    for prediction, block in zip(predictions, blocks, strict=True):
        made = prediction.output
        if isinstance(made, Tree):
            sentences.append(with_tree(block or plain_conllu(made.words), made.heads, made.relations))
        elif isinstance(made, Tagged) and column in ("upos", "xpos"):
            sentences.append(with_tags(block or plain_conllu(made.words), column, made.tags))
        else:
            raise TwofoldError("--conllu: what is asked writes neither trees nor the columns upos or xpos")
    return sentences


def _plain(prediction: Any) -> dict[str, Any]:
    given = prediction.input
    outputs = [(_output(prediction), prediction.score), *prediction.alternatives]
    scored: list[dict[str, Any]] = [{"output": output, "score": score} for output, score in outputs]
    for output, normalized in zip(scored, prediction.normalized_scores, strict=False):  # there are none but of texts
        output["normalized_score"] = normalized
    plain = {"input": given if isinstance(given, str | list | tuple) else str(given), **scored[0]}
    return plain | {"alternatives": scored[1:]} if prediction.alternatives else plain


def _output(prediction: Any) -> Any:
    """A text, a label or a number as it is; of a mask its size and what it shows."""
    from twofold.results import Mask, Tagged, Tree

    mask = prediction.output
    if isinstance(mask, (Tagged, Tree)):
        return {name: value if isinstance(value, str) else list(value) for name, value in vars(mask).items()}
    if not isinstance(mask, Mask):
        return mask
    return {"height": mask.pixels.shape[0], "width": mask.pixels.shape[1], "shares": mask.shares()}


def _shown(plain: dict[str, Any], named: bool) -> str:
    """What was made of an input, after its name where there are several images."""
    output = plain["output"]
    if named and not isinstance(output, dict):
        return f"{plain['input']}: {_shown(plain, False)}"
    if not isinstance(output, dict):
        if isinstance(output, float):  # the number itself stands before it as the score
            return " | ".join(plain["input"]) if isinstance(plain["input"], list | tuple) else str(plain["input"])
        return ", ".join(output) if isinstance(output, list) else str(output)
    if "words" in output:
        columns = [output[name] for name in output if name != "words"]
        return " ".join("/".join(map(str, one)) for one in zip(output["words"], *columns, strict=True))
    return f"{plain['input']}: " + ", ".join(f"{name} {share:.1%}" for name, share in output["shares"].items())
