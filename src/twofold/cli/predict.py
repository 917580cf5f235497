"""`twofold predict`: what a model makes of an input."""

from __future__ import annotations

import dataclasses
import functools
import gzip
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from twofold import storage
from twofold.cli.options import FilePath, generate_options, model_options, print_json, refuse_given, writing_options
from twofold.errors import TwofoldError

if TYPE_CHECKING:
    from twofold.generate.options import GenerateOptions
    from twofold.model import Model
    from twofold.outputs import Output
    from twofold.results import Prediction

IMAGES = 64
"""How many images are read at a time: masks of many would fill the memory."""
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
def predict(model: str, inputs: tuple[str, ...], **options: Any) -> None:
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
    names = [field.name for field in dataclasses.fields(Asked) if field.name != "inputs"]
    asked = Asked(inputs, **{name: options.pop(name) for name in names})
    asked.check()
    loaded = _load(model, asked, options.pop("device"), options.pop("allow_code"))
    how = generate_options(loaded, asked.decoder or loaded.decoder_name(None), options)
    if asked.stream:
        _stream(loaded, asked, how, options["beam"] is None)
        return
    given = _given(loaded, asked)
    predictions = _predict(loaded, asked, how, given)
    output = loaded.outputs[loaded.decoder_name(asked.decoder)]
    if asked.as_json:
        print_json({"predictions": [_plain(output, prediction) for prediction in predictions]})
        return
    for line in _lines(output, predictions, loaded.config.input.names_files and len(predictions) > 1):
        click.echo(line)


@dataclass(frozen=True)
class Asked:
    """What was asked for on the command line."""

    inputs: tuple[str, ...]
    file: str | None
    conllu: Path | None
    images: str | None
    stream: bool
    prefix: str | None
    masks: Path | None
    plot: Path | None
    decoder: str | None
    as_json: bool

    def check(self) -> None:
        """Refuse what makes no sense, and files that cannot be written, before the model works for them."""
        if not self.inputs and self.file is None:
            raise click.UsageError("give at least one INPUT or --file")
        if self.stream and (len(self.inputs) != 1 or self.file or self.as_json):
            raise click.UsageError("--stream shows one INPUT, and not as JSON")
        for path in (path for path in (self.plot, self.conllu) if path):
            if path.is_dir():
                raise TwofoldError(f"{path}: a folder; name a file in it")
            with storage.writing(path):
                path.parent.mkdir(parents=True, exist_ok=True)
            if not os.access(path if path.exists() else path.parent, os.W_OK):
                raise TwofoldError(f"{path}: cannot be written to; name another file")
        if self.masks:
            with storage.writing(self.masks):
                self.masks.mkdir(parents=True, exist_ok=True)


@dataclass(frozen=True)
class Given:
    """Inputs, and of those of a CoNLL-U file the lines of the sentence."""

    values: list[Any]
    lines: list[str | None]


def _load(name: str, asked: Asked, device: str, allow_code: bool) -> Model:
    from twofold import api
    from twofold.model import Ranker

    model = api.load(name, device, allow_code)
    if isinstance(model, Ranker):
        raise TwofoldError(f"{name}: ranks candidates and writes no text; use `twofold rank`")
    if not model.config.input.names_files:
        _refuse_images(asked.inputs)
        refuse_given(["images"], "models that read images")
    return model


def _refuse_images(inputs: tuple[str, ...]) -> None:
    """Say that a model reads texts before it makes something of an image's name."""
    from twofold.data.image_files import ENDINGS

    for name in inputs:
        if name.lower().endswith(ENDINGS) and os.path.isfile(name):
            raise TwofoldError(f"{name}: an image, but this model reads texts")


def _stream(model: Model, asked: Asked, options: GenerateOptions, greedy: bool) -> None:
    if greedy:
        options = dataclasses.replace(options, beam=1, n_best=1)
    for piece in model.stream(asked.inputs[0], options, asked.decoder, asked.prefix):
        click.echo(piece, nl=False)
    click.echo()


def _given(model: Model, asked: Asked) -> Given:
    """All inputs that can be used: those of the command line, then those of the file."""
    rows = [] if asked.file is None else model.input.rows_to_answer(asked.file, asked.images)
    values = [*asked.inputs, *(model.input.value(row) for row in rows)]
    lines = [*[None] * len(asked.inputs), *(row.values.get("conllu") for row in rows)]
    if model.config.input.skips():
        usable = [bool(list(model.input.usable([model.input.row(value, str(value))], ()))) for value in values]
        values = [value for value, use in zip(values, usable, strict=True) if use]
        lines = [None] * len(values)
        if not values:
            raise TwofoldError("none of the images can be read")
    return Given(values, lines)


def _predict(model: Model, asked: Asked, options: GenerateOptions, given: Given) -> list[Prediction]:
    """What the model makes of all inputs; what is asked for in files is written on the way."""
    from twofold.progress import bar

    model.decoder(asked.decoder)
    output, values = model.outputs[model.decoder_name(asked.decoder)], given.values
    paths = output.mask_paths(values, asked.masks) if asked.masks else []
    predictions: list[Prediction] = []
    step = IMAGES if model.config.input.names_files else len(values)
    with bar("predicting", len(values), show=len(values) > 1) as progress:
        for start in range(0, len(values), step):
            done = functools.partial(_add_to, start, progress)
            some = model.predict(values[start : start + step], options, asked.decoder, done, asked.prefix)
            for prediction, path in zip(some, paths[start : start + step], strict=False):
                output.write_mask(prediction.output, path)
            if asked.plot and not start:
                from twofold.plot import draw

                draw(model, some, asked.plot, asked.decoder, asked.prefix)
            predictions += some
    if asked.conllu:
        _write_conllu(output, predictions, given.lines, asked.conllu)
    return predictions


def _write_conllu(output: Output[Any], predictions: Sequence[Prediction], lines: list[str | None], path: Path) -> None:
    sentences = [output.conllu(one.output, block) for one, block in zip(predictions, lines, strict=True)]
    whole = "".join(f"{sentence}\n\n" for sentence in sentences).encode()
    storage.write_bytes(path, gzip.compress(whole) if path.suffix == ".gz" else whole)


def _add_to(start: int, progress: Any, number: int) -> None:
    progress(start + number)


def _lines(output: Output[Any], predictions: Sequence[Prediction], named: bool) -> Iterator[str]:
    """A line for each output; in lists of texts the score that orders them stands before the log-probability."""
    listed = any(one.alternatives and one.normalized_scores for one in predictions)
    if listed:
        yield f"{'normalized':>10}  {'log-prob':>8}  output"
    for prediction in predictions:
        best, *normalized = prediction.normalized_scores or (None,)
        yield f"{_scores(prediction.score, best, listed)}  {output.shown(prediction, named)}"
        others = prediction.alternatives[:SHOWN]
        for number, (other, score) in enumerate(others):
            beside = normalized[number] if number < len(normalized) else None
            yield f"{_scores(score, beside, listed)}    {other}"


def _scores(score: float, normalized: float | None, listed: bool) -> str:
    return (f"{normalized:10.3f}  " if listed and normalized is not None else "") + f"{score:8.3f}"


def _plain(output: Output[Any], prediction: Prediction) -> dict[str, Any]:
    given = prediction.input
    outputs = [(output.plain(prediction.output), prediction.score), *prediction.alternatives]
    scored: list[dict[str, Any]] = [{"output": answer, "score": score} for answer, score in outputs]
    for plain, normalized in zip(scored, prediction.normalized_scores, strict=False):  # there are none but of texts
        plain["normalized_score"] = normalized
    whole = {"input": given if isinstance(given, str | list | tuple) else str(given), **scored[0]}
    return whole | {"alternatives": scored[1:]} if prediction.alternatives else whole
