"""`twofold predict`: outputs of a model for inputs."""

from __future__ import annotations

import dataclasses
import gzip
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from twofold import storage
from twofold.cli.options import (
    FilePath,
    check_files,
    generate_options,
    loading_options,
    model_options,
    refuse_given,
    show,
    writing_options,
)
from twofold.errors import TwofoldError

if TYPE_CHECKING:
    from twofold.generate.search import GenerateOptions
    from twofold.model import Model
    from twofold.outputs import Output
    from twofold.results import Prediction


class NumberOrAll(click.IntRange):
    """Number of a layer or head, from 1, or `all`."""

    name = "number or all"

    def __init__(self) -> None:
        super().__init__(1)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return value if value == "all" else super().convert(value, param, ctx)


FILES = 64
"""Number of files read at a time; masks of many images would fill the memory."""
SHOWN = 9
"""Maximum number of alternatives shown for an input; --json has all."""


@click.command()
@click.argument("model")
@click.argument("inputs", nargs=-1)
@click.option(
    "--file", "file", help="Read inputs from this file, after INPUTS: text, jsonl, tsv, csv, conll, conllu; also .gz."
)
@click.option(
    "--conllu",
    type=FilePath(),
    help="Tags and trees: write the sentences to this file as CoNLL-U; other columns and comments come from --file.",
)
@click.option(
    "--folder",
    "--images",
    help="Folder or zip archive of the files that the table --file names; default: the folder of the table.",
)
@click.option("--stream", is_flag=True, help="Print the output of one input token by token.")
@click.option("--prefix", help="Images: first words of the caption, for a model that was trained with prefixes.")
@click.option("--masks", type=FilePath(), help="Images: write the masks to this folder as .png.")
@click.option(
    "--plot",
    type=FilePath(),
    help="Draw the answer: attention, a mask, a tree, or the influence of each word for the first input; up to 20 "
    "images with their answers: .png, .svg, .pdf, .jpg.",
)
@click.option(
    "--attention", type=click.Choice(["cross", "encoder", "decoder"]), help="--plot: type of attention to draw."
)
@click.option(
    "--layer",
    type=NumberOrAll(),
    metavar="N|all",
    help="--plot: layer whose attention is drawn, from 1, or all; default: the last.",
)
@click.option(
    "--head",
    type=NumberOrAll(),
    metavar="N|all",
    help="--plot: attention head that is drawn, from 1, or all; default: their mean.",
)
@click.option("--explain", is_flag=True, help="Print JSON with attention, alternatives and influence of words.")
@writing_options
@model_options
def predict(model: str, inputs: tuple[str, ...], **options: Any) -> None:
    """Predict the output of MODEL for each INPUT.

    MODEL is a folder. INPUT is a text, words, two texts with a tab between them, or the path of an image or audio file.
    Text is generated with the options that are saved with the model, unless you set them here.

    \b
      twofold predict runs/translate "Ein Hund läuft." --beam 5 --n-best 3
      twofold predict runs/translate --file german.txt --json
      twofold predict runs/translate "Ein Hund läuft." --plot attention.png --layer all --head all
      twofold predict runs/translate "Ein Hund läuft." --explain --json
      twofold predict runs/parse "Dogs bark ." --json
      twofold predict runs/parse --file in.conllu --conllu out.conllu
      twofold predict runs/street street.jpg --plot mask.png
      twofold predict runs/caption *.jpg --plot sheet.png
      twofold predict runs/caption_vit dog.jpg --prefix "a brown dog" --beam 5
      twofold predict runs/numbers number.flac --plot heard.png
    """
    _check_usage(inputs, options)
    loaded, decoder = _load(model, inputs, options), options["decoder"]
    how = generate_options(loaded, decoder or loaded.decoder_name(None), options)
    if options["stream"]:
        how = dataclasses.replace(how, beam=1, n_best=1) if options["beam"] is None else how
        for piece in loaded.stream(inputs[0], how, decoder, options["prefix"]):
            click.echo(piece, nl=False)
        click.echo()
        return
    values, blocks = _given(loaded, inputs, options["file"], options["folder"])
    output = loaded.outputs[loaded.decoder_name(decoder)]
    predictions = _predict(loaded, values, how, output, options)
    if options["conllu"]:
        _write_conllu(output, predictions, blocks, options["conllu"])
    lines = _lines(output, predictions, bool(loaded.config.input.endings) and len(predictions) > 1)
    content = [_plain(output, prediction) for prediction in predictions]
    if options["explain"]:
        for plain, value in zip(content, values, strict=True):
            plain["explanation"] = loaded.explain(value, how, decoder, options["prefix"]).as_dict()
    show({"predictions": content}, lines, options["as_json"] or options["explain"])


def _check_usage(inputs: tuple[str, ...], options: Mapping[str, Any]) -> None:
    """Refuses options that do not go together, and files that cannot be written, before the model is run."""
    if not inputs and options["file"] is None:
        raise click.UsageError("give at least one INPUT or --file")
    if options["stream"] and (len(inputs) != 1 or options["file"] or options["as_json"] or options["explain"]):
        raise click.UsageError("--stream shows one INPUT, and not as JSON")
    drawn = [f"--{name}" for name in ("attention", "layer", "head") if options[name] is not None]
    if drawn and not options["plot"]:
        raise click.UsageError(f"{' and '.join(drawn)} needs --plot FILE")
    for path in filter(None, (options["plot"], options["conllu"])):
        if path.is_dir():
            raise TwofoldError(f"{path}: a folder; name a file in it")
        with storage.writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        if not os.access(path if path.exists() else path.parent, os.W_OK):
            raise TwofoldError(f"{path}: cannot be written to; name another file")
    if masks := options["masks"]:
        with storage.writing(masks):
            masks.mkdir(parents=True, exist_ok=True)


def _load(name: str, inputs: tuple[str, ...], options: Mapping[str, Any]) -> Model:
    """Loads a model; a ranker is an error."""
    from twofold import api
    from twofold.model import Ranker

    model = api.load(name, **loading_options(options))
    if isinstance(model, Ranker):
        raise TwofoldError(f"{name}: ranks candidates and writes no text; use `twofold rank`")
    if not model.config.input.endings:
        refuse_given(["folder"], "models that read files, such as images")
    check_files(inputs, model.config.input)
    return model


def _given(
    model: Model, inputs: tuple[str, ...], file: str | None, folder: str | None
) -> tuple[list[Any], list[str | None]]:
    """Reads all usable inputs, those of the file last; an input from a CoNLL-U file comes with its lines."""
    rows = [] if file is None else model.input.rows_to_answer(file, folder)
    values = [*inputs, *(model.input.value(row) for row in rows)]
    if not model.config.input.skips():
        return values, [*[None] * len(inputs), *(row.values.get("conllu") for row in rows)]
    usable = [value for value in values if list(model.input.usable([model.input.row(value, str(value))], ()))]
    if not usable:
        raise TwofoldError(f"none of the {model.config.input.noun}s can be read")
    return usable, [None] * len(usable)


def _predict(
    model: Model, values: list[Any], how: GenerateOptions, output: Output[Any], options: Mapping[str, Any]
) -> list[Prediction]:
    """Predicts the outputs of all inputs; writes masks and the figure if asked for."""
    from twofold.progress import bar

    decoder, prefix = options["decoder"], options["prefix"]
    paths = output.mask_paths(values, options["masks"]) if options["masks"] else []
    predictions: list[Prediction] = []
    step = FILES if model.config.input.endings else len(values)
    with bar("predicting", len(values), show=len(values) > 1) as progress:
        for start in range(0, len(values), step):

            def report(number: int, start: int = start) -> None:
                progress(start + number)

            some = model.predict(values[start : start + step], how, decoder, report, prefix)
            for prediction, path in zip(some, paths[start : start + step], strict=False):
                output.write_mask(prediction.output, path)
            if options["plot"] and not start:
                from twofold.plot import draw

                asked = (options["attention"], options["layer"], options["head"])
                draw(model, some, options["plot"], decoder, prefix, asked)
            predictions += some
    return predictions


def _write_conllu(output: Output[Any], predictions: Sequence[Prediction], blocks: list[str | None], path: Path) -> None:
    sentences = [output.conllu(answer.output, block) for answer, block in zip(predictions, blocks, strict=True)]
    whole = "".join(f"{sentence}\n\n" for sentence in sentences).encode()
    storage.write_bytes(path, gzip.compress(whole) if path.suffix == ".gz" else whole)


def _lines(output: Output[Any], predictions: Sequence[Prediction], named: bool) -> Iterator[str]:
    """Formats a line for each output; lists of texts begin with the score that orders them."""
    listed = any(prediction.alternatives and prediction.normalized_scores for prediction in predictions)
    if listed:
        yield f"{'normalized':>10}  {'log-prob':>8}  output"
    for prediction in predictions:
        answers = [(output.shown(prediction, named), prediction.score)]
        answers += [(f"  {text}", score) for text, score in prediction.alternatives[:SHOWN]]
        normalized = [f"{score:10.3f}  " if listed else "" for score in prediction.normalized_scores]
        for (text, score), before in zip(answers, chain(normalized, repeat("")), strict=False):
            yield f"{before}{score:8.3f}  {text}"


def _plain(output: Output[Any], prediction: Prediction) -> dict[str, Any]:
    """JSON values of the outputs for an input."""
    given = prediction.input
    answers = [(output.plain(prediction.output), prediction.score), *prediction.alternatives]
    scored: list[dict[str, Any]] = [{"output": answer, "score": score} for answer, score in answers]
    for plain, normalized in zip(scored, prediction.normalized_scores, strict=False):  # there are none but of texts
        plain["normalized_score"] = normalized
    whole = {"input": given if isinstance(given, str | list | tuple) else str(given), **scored[0]}
    return whole | {"alternatives": scored[1:]} if prediction.alternatives else whole
