"""`twofold serve`: models and indexes over HTTP, with a page that explains them."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import click

from twofold.cli.options import where_options
from twofold.errors import TwofoldError

PACKAGES = ("fastapi", "uvicorn", "prometheus_client", "multipart", "orjson")
EXTRA = "pip install 'twofold[serve]'"


@click.command()
@click.argument("served", nargs=-1, metavar="[MODEL|INDEX]...")
@click.option("--host", default="127.0.0.1", help="Address to listen on; the default is reached by this machine alone.")
@click.option("--port", default=8000, type=click.IntRange(0, 65_535), help="Port; 0 takes a free one.")
@click.option("--key", "keys", multiple=True, help="Bearer key that clients must send; can be repeated.")
@where_options
def serve(served: tuple[str, ...], **options: Any) -> None:
    """Serve models and indexes over HTTP, with a page to look into them.

    MODEL is a folder, a hub id or a name, INDEX the folder of an index; `name=PATH` gives it another name. Without any,
    `default` is served.

    \b
      twofold serve
      twofold serve runs/rank_bi runs/rank_cross answers.index
      twofold serve rank=runs/rank_poly --port 9000
    """
    if missing := [package for package in PACKAGES if find_spec(package) is None]:
        raise TwofoldError(f"serving needs {', '.join(missing)}: {EXTRA}")
    from twofold.serve.running import listening, run
    from twofold.serve.settings import Settings

    settings = Settings(served or ("default",), **options)
    opened = listening(settings)
    run(settings, opened, lambda place: click.echo(f"serving on {place}", err=True))
