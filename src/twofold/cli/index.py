"""`twofold index`: build a store of candidates, change it, and say what is in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from twofold.cli.options import FilePath, print_json, where_options

TEXTS = "Lines of text, or jsonl, tsv, csv with `text`, `id` and any further fields; also .gz."
_place = click.argument("folder", metavar="INDEX", type=FilePath())
_texts = click.option("--texts", required=True, help=TEXTS)
_model = click.option("--model", help="Where the index's model lies, if it was moved.")
_json = click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")


@click.group()
def index() -> None:
    """Candidates to search among, millions of them, kept with their vectors in a folder.

    \b
      twofold index build answers.index --model runs/rank_poly --texts answers.jsonl.gz
      twofold index add answers.index --texts new.jsonl
      twofold index remove answers.index 17 a42
      twofold index info answers.index
      twofold index copy answers.index backup.index
      twofold search answers.index "how do I list a folder?"
    """


@index.command()
@_place
@click.option("--model", required=True, help="A bi- or poly-encoder: a folder, a hub id, `default`, ...")
@_texts
@click.option("--stored", default="float32", show_default=True, type=click.Choice(["float32", "float16"]))
@where_options
def build(folder: Path, model: str, texts: str, stored: str, device: str, allow_code: bool) -> None:
    """Read every text and keep its vector. One that was cut short goes on where it stood when it is run again.

    \b
      twofold index build answers.index --model default --texts answers.txt
      twofold index build answers.index --model runs/rank_poly --texts answers.jsonl.gz --stored float16
    """
    from twofold import api

    with api.build_index(folder, model, texts, stored, device, allow_code, show=True) as made:
        click.echo(f"{len(made):,} candidates in {folder}", err=True)


@index.command()
@_place
@_texts
@_model
@where_options
def add(folder: Path, texts: str, model: str | None, device: str, allow_code: bool) -> None:
    """Add candidates; an id that is there already is an error. Plain lines are numbered on."""
    _change(folder, "added", lambda index: index.add(texts, show=True), model, device, allow_code)


@index.command()
@_place
@_texts
@_model
@where_options
def update(folder: Path, texts: str, model: str | None, device: str, allow_code: bool) -> None:
    """Put candidates in the place of those of the same id, and add new ids; unchanged texts are not read again."""
    _change(folder, "changed", lambda index: index.update(texts, show=True), model, device, allow_code)


@index.command()
@_place
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
def remove(folder: Path, ids: tuple[str, ...]) -> None:
    """Remove candidates by id; if one is not there, none is removed."""
    _change(folder, "removed", lambda index: index.remove(index.given_ids(ids)))


@index.command()
@_place
def compact(folder: Path) -> None:
    """Write what is left after many changes into as few files as possible."""
    from twofold import api

    with api.open_index(folder) as opened:
        opened.compact()


@index.command()
@_place
@click.argument("new", metavar="NEW", type=FilePath())
@click.option("--anyway", is_flag=True, help="Copy what is left of an index that lacks some of its last changes.")
def copy(folder: Path, new: Path, anyway: bool) -> None:
    """Copy INDEX into the folder NEW, as it is at one moment; others may search and change it meanwhile.

    \b
      twofold index copy answers.index backup.index
    """
    from twofold.index.copy import copy_index

    count = copy_index(folder, new, anyway, show=True)
    click.echo(f"{count:,} candidates in {new}", err=True)


@index.command()
@_place
@click.option("--check", is_flag=True, help="Read every byte and compare it with its checksum.")
@_json
def info(folder: Path, check: bool, as_json: bool) -> None:
    """Show counts, sizes, fingerprint and health."""
    from twofold import api

    with api.open_index(folder) as opened:
        found = opened.info(check)
    if as_json:
        print_json(found)
        return
    for name, value in found.items():
        click.echo(f"{name:12} {_shown(value)}")


def _change(
    folder: Path, done: str, change: Any, model: str | None = None, device: str = "auto", allow_code: bool = False
) -> None:
    from twofold import api

    with api.open_index(folder, model, device, allow_code) as opened:
        click.echo(f"{change(opened):,} {done}, {len(opened):,} candidates in {folder}", err=True)


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {number:,}" for name, number in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return f"{value:,}" if isinstance(value, int) else str(value)
