"""Options that several commands share."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from twofold.errors import TwofoldError


class FilePath(click.Path):
    """The name of a file or a folder; an empty one, as of a variable that is not set, would be the folder at hand."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("the name is empty", param, ctx)
        return super().convert(value, param, ctx)


Command = TypeVar("Command", bound=Callable[..., Any])

_WRITING = (
    click.option("--beam", type=int, help="Hypotheses kept at each step; 1 is greedy."),
    click.option("--n-best", type=int, help="How many outputs for each input, at most --beam."),
    click.option("--length-penalty", type=float, help="0 favors short outputs, 1 takes the mean log-probability."),
    click.option("--no-repeat", type=int, help="Write no sequence of this many tokens twice."),
    click.option("--max-length", type=int, help="The most tokens to write."),
    click.option("--sample", is_flag=True, default=None, help="Draw tokens at random."),
    click.option("--temperature", type=float, help="When sampling: below 1 sharpens, above 1 flattens."),
    click.option("--top-k", type=int, help="When sampling: only the k likeliest tokens."),
    click.option("--top-p", type=float, help="When sampling: only the likeliest tokens up to this probability."),
    click.option("--seed", type=int, help="When sampling: the same seed draws the same tokens."),
)
_WHERE = (
    click.option(
        "--device", default="auto", show_default=True, help="cpu, cuda, cuda:1, ...; auto takes a GPU if any."
    ),
    click.option("--allow-code", is_flag=True, help="Load parts from outside twofold that the model names."),
)
_PLACE = (
    *_WHERE,
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else."),
)
_MODEL = (
    click.option("--decoder", help="Which decoder of the model, by name; evaluate takes all, others the first."),
    *_PLACE,
)


_RANKING = (
    click.option("-k", default=10, show_default=True, type=click.IntRange(1), help="How many to show."),
    click.option(
        "--then", multiple=True, metavar="MODEL:K", help="Let MODEL put the best K in order; may be repeated."
    ),
    *_PLACE,
)


def _adds(options: Sequence[Callable[[Any], Any]]) -> Callable[[Command], Command]:
    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


where_options = _adds(_WHERE)
"""Where a model computes, and whether it may bring code."""
ranking_options = _adds(_RANKING)
"""How many, which further rankers, where, and how the answer is shown."""
writing_options = _adds(_WRITING)
"""How a text decoder writes; unset options are those saved with the model."""
model_options = _adds(_MODEL)
"""Which model, where, and how the answer is shown."""


def refuse_given(names: Sequence[str], use: str) -> None:
    """Refuse those of the running command's options that were given, though they are of no use here."""
    context = click.get_current_context()
    for name in names:
        if context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE:
            raise TwofoldError(f"--{name.replace('_', '-')} is for {use}; leave it out")


def generate_options(model: Any, decoder: str | None, given: dict[str, Any]) -> Any:
    """The model's own way of writing with what was given on the command line."""
    saved = model.config.generate
    changes = {name: value for name, value in given.items() if value is not None}
    tasks = model.config.tasks
    asked = [tasks[model.decoder_name(decoder)]] if decoder else tasks.values()
    if not any(task.output.writes_text for task in asked):
        refuse_given(list(changes), "decoders that write texts")
    if changes.get("sample") and "beam" not in changes:
        changes |= {"beam": 1, "n_best": 1}
    if "beam" in changes and "n_best" not in changes:
        changes["n_best"] = min(saved.n_best, changes["beam"])
    try:
        return dataclasses.replace(saved, **changes)
    except ValueError as error:
        raise TwofoldError(str(error)) from None


def print_json(content: Any) -> None:
    """One JSON object on standard output; what is no number, as the score of a class that never occurs, is null."""
    click.echo(json.dumps(_without_nan(content), ensure_ascii=False))


def _without_nan(content: Any) -> Any:
    if isinstance(content, dict):
        return {key: _without_nan(value) for key, value in content.items()}
    if isinstance(content, list):
        return [_without_nan(value) for value in content]
    return None if isinstance(content, float) and math.isnan(content) else content


def stages(given: tuple[str, ...]) -> list[tuple[str, int]]:
    """The names and depths of `--then MODEL:K`."""
    found = []
    for one in given:
        name, colon, number = one.rpartition(":")
        if not colon or not name or not number.isdecimal() or int(number) < 1:
            raise click.UsageError(f"--then {one}: write MODEL:K, such as runs/rank_cross:20")
        found.append((name, int(number)))
    return found


def show_hits(context: list[str], hits: Any, as_json: bool) -> None:
    """The best candidates, one on each line, or as JSON."""
    if as_json:
        found = [{"text": hit.text, "score": hit.score, "id": hit.id, **_fields(hit)} for hit in hits]
        print_json({"context": context, "hits": found, "exact": hits.exact, "milliseconds": hits.milliseconds})
        return
    for hit in hits:
        click.echo(f"{hit.score:8.3f}  {_shown(hit.id):>8}  {_shown(hit.text)}")


def _fields(hit: Any) -> dict[str, Any]:
    return {"fields": dict(hit.fields)} if hit.fields else {}


def _shown(value: Any) -> str:
    """A text on one line of a terminal."""
    text = "".join(one if one.isprintable() else " " for one in str(value))
    return text if len(text) <= 200 else text[:199] + "…"
