"""Command line: a file for each command or group of commands."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import click

from twofold import __version__
from twofold.cli import (
    cache,
    compare,
    convert,
    demo,
    evaluate,
    export,
    predict,
    pull,
    rank,
    ranking,
    search,
    serve,
    summary,
    train,
)
from twofold.errors import SeveralErrors, TwofoldError, one_line

MOST_LINES = 20
"""Maximum number of errors shown at once."""


class _Group(click.Group):
    """Prints an error as one line and exits with status 1; wrong usage exits with status 2."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if any("\0" in argument for argument in args):  # no shell can give one
            raise click.UsageError("an argument holds a zero byte, which neither a name nor an option can", ctx)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        warnings.showwarning = _show_warning
        try:
            return super().invoke(ctx)
        except click.NoSuchOption as error:
            raise _with_hint(error) from None
        except TwofoldError as error:
            for line in _error_lines(error):
                click.echo(f"error: {line}", err=True)
        except (KeyboardInterrupt, click.Abort):
            click.echo("stopped by Ctrl-C", err=True)
        except BrokenPipeError:
            sys.stderr.close()
        raise click.exceptions.Exit(1)


def _with_hint(error: click.NoSuchOption) -> click.UsageError:
    """Adds the remedy for an input that looks like an option."""
    if error.option_name.startswith("--") and " " not in error.option_name:
        return error
    message = error.format_message().rstrip(".")
    return click.UsageError(f"{message}; put -- before an input that begins with a minus sign", error.ctx)


def _error_lines(error: TwofoldError) -> list[str]:
    """Lines of an error: one, or one for each of several errors, up to `MOST_LINES`."""
    lines = error.lines if isinstance(error, SeveralErrors) else [one_line(str(error))]
    more = [f"and {len(lines) - MOST_LINES:,} more"] if len(lines) > MOST_LINES else []
    return lines[:MOST_LINES] + more


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    click.echo(f"warning: {one_line(str(message))}", err=True)


_SETTINGS = {"help_option_names": ["-h", "--help"], "max_content_width": 100, "show_default": True}


@click.group(cls=_Group, context_settings=_SETTINGS)
@click.version_option(__version__, package_name="twofold")
def main() -> None:
    """Every model is two functions: an encoder reads the input, a decoder writes the output.

    \b
      twofold demo                                         train and compare three rankers in five minutes
      twofold train translate --out runs/translate         train a model from a recipe
      twofold summary translate                            show parts, shapes and parameters
      twofold compare runs/translate runs/small            show settings that differ, and metrics
      twofold predict runs/translate "Ein Hund läuft."
      twofold evaluate runs/translate dev.tsv
      twofold rank default --candidates answers.txt "how do I list a folder?"
      twofold index build answers.index --model default --texts answers.txt
      twofold search answers.index "how do I list a folder?"
      twofold serve runs/rank_poly answers.index           HTTP, and a page that explains
      twofold pull default-reranker                        weights of a named model
      twofold import uncased_L-12_H-768_A-12 runs/bert     convert weights from elsewhere
      twofold export runs/rank_bi onnx_folder --to onnx    models for other programs
    """


_MODELS = (train.train, summary.summary, compare.compare, evaluate.evaluate, predict.predict)
_RANKERS = (rank.rank, ranking.index, search.search, serve.serve)
_WEIGHTS = (pull.pull, convert.import_weights, export.export)
for command in (demo.demo, *_MODELS, *_RANKERS, *_WEIGHTS, cache.cache, train.list_parts):
    main.add_command(command)
