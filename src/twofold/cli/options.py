"""Options that several commands share."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any, TypeVar

import click

from twofold.errors import TwofoldError

Command = TypeVar("Command", bound=Callable[..., Any])

_WRITING = (
    click.option("--beam", type=int, help="Hypotheses kept at each step; 1 is greedy."),
    click.option("--n-best", type=int, help="How many outputs for each input, at most --beam."),
    click.option("--length-penalty", type=float, help="0 favours short outputs, 1 takes the mean log-probability."),
    click.option("--no-repeat", type=int, help="Write no sequence of this many tokens twice."),
    click.option("--max-length", type=int, help="The most tokens to write."),
    click.option("--sample", is_flag=True, default=None, help="Draw tokens at random; greedy otherwise."),
    click.option("--temperature", type=float, help="When sampling: below 1 sharpens, above 1 flattens."),
    click.option("--top-k", type=int, help="When sampling: only the k likeliest tokens."),
    click.option("--top-p", type=float, help="When sampling: only the likeliest tokens up to this probability."),
    click.option("--seed", type=int, help="When sampling: the same seed draws the same tokens."),
)
_MODEL = (
    click.option("--decoder", help="Which decoder of the model, by name; the first unless given."),
    click.option(
        "--device", default="auto", show_default=True, help="cpu, cuda, cuda:1, ...; auto takes a GPU if any."
    ),
    click.option("--allow-code", is_flag=True, help="Load parts from outside twofold that the model names."),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else."),
)


def writing_options(command: Command) -> Command:
    """How a text decoder writes; unset options are those saved with the model."""
    for option in reversed(_WRITING):
        command = option(command)
    return command


def model_options(command: Command) -> Command:
    """Which model, where, and how the answer is shown."""
    for option in reversed(_MODEL):
        command = option(command)
    return command


def generate_options(saved: Any, given: dict[str, Any]) -> Any:
    """The model's own way of writing with what was given on the command line."""
    changes = {name: value for name, value in given.items() if value is not None}
    if changes.get("sample") and "beam" not in changes:
        changes |= {"beam": 1, "n_best": 1}
    if "beam" in changes and "n_best" not in changes:
        changes["n_best"] = min(saved.n_best, changes["beam"])
    try:
        return dataclasses.replace(saved, **changes)
    except ValueError as error:
        raise TwofoldError(str(error)) from None


def print_json(content: Any) -> None:
    """One JSON object on standard output."""
    click.echo(json.dumps(content, ensure_ascii=False))
