"""`twofold serve`: models and indexes over HTTP, with a page that explains them."""

from __future__ import annotations

import dataclasses
from importlib.util import find_spec
from typing import Any

import click

from twofold.cli.options import several, where_options
from twofold.errors import TwofoldError
from twofold.serve.settings import Limits, Settings

PACKAGES = ("fastapi", "uvicorn", "httptools", "prometheus_client", "python_multipart", "orjson")
EXTRA = "pip install 'twofold[serve]'"
KEY = "TWOFOLD_KEY"
limit_options = several(
    *(
        click.option(
            f"--{field.name.replace('_', '-')}",
            default=field.default,
            type=type(field.default),
            help=field.metadata["help"],
        )
        for field in dataclasses.fields(Limits)
    )
)
"""An option for each limit."""


@click.command()
@click.argument("served", nargs=-1, metavar="[MODEL|INDEX]...")
@click.option("--host", default="127.0.0.1", help="Address to listen on; the default is reached by this machine alone.")
@click.option("--port", default=8000, type=click.IntRange(0, 65_535), help="Port; 0 takes a free one.")
@click.option(
    "--key", "keys", multiple=True, envvar=KEY, help=f"Bearer key that clients must send; can be repeated; or ${KEY}."
)
@click.option("--allow-host", "hosts", multiple=True, help="Further name under which clients without a key reach it.")
@click.option("--workers", default=1, type=click.IntRange(1), help="Number of processes, each with its own models.")
@click.option("--log/--no-log", default=True, help="Write a line of JSON for each request to standard error.")
@click.option("--log-texts", is_flag=True, help="Write the bodies of requests into these lines.")
@where_options
@limit_options
def serve(served: tuple[str, ...], **options: Any) -> None:
    """Serve models and indexes over HTTP, with a page that shows how they answer.

    MODEL is a folder, a hub id or a name, INDEX the folder of an index; `name=PATH` gives it another name. Without any,
    `default` is served. Clients of OpenAI (embeddings), Cohere (rerank) and text-embeddings-inference can be used.

    \b
      twofold serve
      twofold serve runs/rank_bi runs/rank_cross answers.index
      twofold serve rank=runs/rank_poly --port 9000 --workers 2
      TWOFOLD_KEY=secret twofold serve default --host 0.0.0.0
    """
    limits = Limits(**{field.name: options.pop(field.name) for field in dataclasses.fields(Limits)})
    start(Settings(served or ("default",), limits=limits, **options))


def start(settings: Settings) -> None:
    """Serves until a signal comes."""
    check_packages()
    from twofold.serve.running import run

    run(settings, lambda line: click.echo(line, err=True))


def check_packages() -> None:
    """Raises an error if the extra is not installed."""
    if missing := [package for package in PACKAGES if find_spec(package) is None]:
        raise TwofoldError(f"serving needs {', '.join(missing)}: {EXTRA}")
