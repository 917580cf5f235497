"""`twofold cache`: what lies in the cache folder, and how it is emptied."""

from __future__ import annotations

import click

from twofold.cli.options import json_option, show


@click.group()
def cache() -> None:
    """Show or empty the cache folder: tokenized data, graphs of engines, rankers that need no torch, pulled models.

    The folder is $TWOFOLD_CACHE, or twofold in the user's cache folder. Everything in it but the models is made anew
    when needed; `twofold pull` brings models again.

    \b
      twofold cache info
      twofold cache clear engines
      twofold cache clear
    """


@cache.command()
@json_option
def info(as_json: bool) -> None:
    """Show the number and size of the entries of each kind."""
    from twofold.data.cache import cache_folder
    from twofold.runtime.store import entries, size_of

    kinds = {
        kind: {"entries": len(folders), "bytes": sum(map(size_of, folders))} for kind, folders in entries().items()
    }
    lines = [
        f"{kind:8} {about['entries']:>6,} entries {about['bytes'] / 1e6:>10,.1f} MB" for kind, about in kinds.items()
    ]
    show({"folder": str(cache_folder()), **kinds}, [str(cache_folder()), *lines], as_json)


@cache.command()
@click.argument("kind", required=False, type=click.Choice(["data", "engines", "rankers", "models"]))
@json_option
def clear(kind: str | None, as_json: bool) -> None:
    """Remove what is made anew when needed, or the entries of one KIND: data, engines, rankers or models."""
    from twofold.data.named_models import FOLDER
    from twofold.runtime.store import entries, remove

    chosen = {name: folders for name, folders in entries().items() if kind == name or (kind is None and name != FOLDER)}
    removed = {name: remove(folders) for name, folders in chosen.items()}
    show({"removed": removed}, [f"removed {count:,} {name}" for name, count in removed.items()], as_json)
