"""Options that several commands share, and how answers are printed as JSON."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from twofold.errors import TwofoldError

if TYPE_CHECKING:
    from twofold.inputs import InputConfig

Command = TypeVar("Command", bound=Callable[..., Any])
LONGEST_START = 1 << 20
"""Maximum number of bytes of standard input that tell its form."""


class FilePath(click.Path):
    """Name of a file or a folder; an empty one, as of a variable that is not set, is refused: it would be the current
    folder."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("the name is empty", param, ctx)
        return super().convert(value, param, ctx)


class RowsFile(click.Path):
    """Name of a file to read, or `-` for standard input, which is kept in a temporary file while the command runs.

    Standard input holds lines of text, or of JSON if the first line is a JSON object.
    """

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value != "-":
            return value
        folder = (ctx or click.get_current_context()).with_resource(tempfile.TemporaryDirectory())
        if sys.stdin is None:
            self.fail("standard input is closed", param, ctx)
        stream = sys.stdin.buffer
        first = stream.readline(LONGEST_START)
        path = Path(folder, "standard input.jsonl" if first.lstrip().startswith(b"{") else "standard input.txt")
        with path.open("wb") as file:
            file.write(first)
            shutil.copyfileobj(stream, file)
        return str(path)


class Stage(click.ParamType[tuple[str, int]]):
    """Stage of a cascade, MODEL:K: a ranker and the number of candidates that it re-ranks."""

    name = "stage"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        name, _, depth = str(value).rpartition(":")
        if not name or not depth.isdecimal() or int(depth) < 1:
            raise click.UsageError(f"--then {value}: write MODEL:K, such as runs/rank_cross:20", ctx)
        return name, int(depth)


class Count(click.ParamType[int | str]):
    """Number of processes, or `auto`."""

    name = "count"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        if value == "auto" or isinstance(value, int):
            return cast("int | str", value)
        return click.IntRange(1).convert(value, param, ctx)


def several(*options: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Combines options to one decorator, in this order."""

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
where_options = several(
    click.option("--device", default="auto", help="cpu, cuda, cuda:1, ...; auto takes a GPU if there is one."),
    click.option(
        "--runtime",
        default="auto",
        help="torch, openvino or onnxruntime; auto takes openvino if the extra `fast` is installed; ctranslate2 "
        "generates the texts of Transformers.",
    ),
    click.option(
        "--precision",
        default="auto",
        help="float32 or bfloat16; auto takes bfloat16 if the processor supports it natively; ctranslate2 has int8.",
    ),
    click.option("--allow-code", is_flag=True, help="Run code from outside twofold that the model needs."),
)
"""Options for the device, the runtime and precision, and for a model's own code."""
LOADING = ("device", "runtime", "precision", "allow_code")
"""Names of these options."""
model_options = several(
    click.option("--decoder", help="Name of the decoder; default: the first one, and all in `evaluate`."),
    where_options,
    json_option,
)
"""Options for the decoder, the device and JSON."""
writing_options = several(
    click.option("--beam", type=int, help="Number of hypotheses in beam search; 1 is greedy search."),
    click.option("--n-best", type=int, help="Number of outputs for each input, at most --beam."),
    click.option(
        "--length-penalty",
        type=float,
        help="Exponent of the length that divides the log-probability: 0 favors short outputs, 1 takes the mean.",
    ),
    click.option("--no-repeat", type=int, help="Size of the n-grams that occur once at most; 0 allows all."),
    click.option("--max-length", type=int, help="Maximum number of tokens to generate."),
    click.option("--sample", is_flag=True, default=None, help="Sample tokens instead of searching."),
    click.option("--temperature", type=float, help="Sampling: below 1 sharpens the distribution, above 1 flattens it."),
    click.option("--top-k", type=int, help="Sampling: only the k most likely tokens."),
    click.option("--top-p", type=float, help="Sampling: only the most likely tokens, up to this total probability."),
    click.option("--seed", type=int, help="Sampling: seed of the random numbers."),
)
"""Options for text generation; those that are not given are saved with the model."""


def loading_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns those of the given options that say how a model is loaded."""
    return {name: options[name] for name in LOADING}


def check_files(given: Iterable[str], input: InputConfig) -> None:
    """Refuses files of a type that the model does not read; a text model would take their names for texts."""
    from twofold.config import kinds, part_config

    given = [path for path in given if os.path.isfile(path)]
    if not given:  # the other types of input take a while to import
        return
    others = [cast("InputConfig", part_config("inputs", kind)) for kind in kinds("inputs")]
    for path in given:
        noun = next((type.noun for type in others if type.endings and path.lower().endswith(type.endings)), input.noun)
        if noun != input.noun:
            raise TwofoldError(f"{path}: this model reads {input.noun}s, not {noun}s")


def refuse_given(names: Iterable[str], use: str) -> None:
    """Refuses given options of the running command that have no effect here."""
    context = click.get_current_context()
    written = {option.name: "/".join(option.opts) for option in context.command.params}
    for name in names:
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise TwofoldError(f"{written[name]} is for {use}; leave it out")


def generate_options(model: Any, decoder: str | None, options: Mapping[str, Any]) -> Any:
    """Generation options saved with the model, changed by those `writing_options` that were given."""
    saved, tasks = model.config.generate, model.config.tasks
    known = {field.name for field in dataclasses.fields(saved)}
    changes = {name: value for name, value in options.items() if name in known and value is not None}
    asked = [tasks[model.decoder_name(decoder)]] if decoder else tasks.values()
    if not any(task.output.writes_text for task in asked):
        refuse_given(changes, "decoders that write texts")
    if changes.get("sample") and "beam" not in changes:
        changes |= {"beam": 1, "n_best": 1}
    if "beam" in changes and "n_best" not in changes:
        changes["n_best"] = min(saved.n_best, changes["beam"])
    try:
        return dataclasses.replace(saved, **changes)
    except ValueError as error:
        raise TwofoldError(str(error)) from None


def print_json(content: Any) -> None:
    """Prints one JSON object on standard output; NaN, such as the score of a class that never occurs, becomes null."""
    numbers = json.loads(json.dumps(content), parse_constant=lambda name: None if name == "NaN" else float(name))
    click.echo(json.dumps(numbers, ensure_ascii=False))


def show(content: Any, lines: Iterable[str], as_json: bool) -> None:
    """Prints an answer on standard output: as one JSON object, or line by line."""
    if as_json:
        print_json(content)
        return
    for line in lines:
        click.echo(line)
