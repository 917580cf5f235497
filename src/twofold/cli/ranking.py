"""`twofold index`: candidates in an index; and the options and answers of commands that rank."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from twofold.cli.options import (
    Count,
    FilePath,
    RowsFile,
    Stage,
    json_option,
    several,
    show,
    where_options,
)
from twofold.errors import TwofoldError

if TYPE_CHECKING:
    from twofold.index import Index
    from twofold.model import Ranker
    from twofold.results import Hit, Hits
    from twofold.results.explanation import RankingExplanation

TEXTS = (
    "Lines of text, or jsonl, tsv, csv with `text`, `id` and any further fields; also .gz. Images: a folder, a zip "
    "archive or a table. `-` reads lines of text or JSON from standard input."
)
folder_argument = click.argument("folder", metavar="INDEX", type=FilePath())
"""Folder of an index."""
_texts = click.option("--texts", required=True, type=RowsFile(), help=TEXTS)
model_option = click.option("--model", help="Folder of the index's model, if it was moved.")
"""Model of an index."""
reverse_option = click.option(
    "--reverse", is_flag=True, help="Swap the two sides of a `bi` ranker: find contexts for a candidate."
)
_new_texts = several(folder_argument, _texts, model_option, where_options)
ranking_options = several(
    click.option("-k", default=10, type=click.IntRange(1), help="Number of hits."),
    click.option(
        "--then",
        multiple=True,
        type=Stage(),
        metavar="MODEL:K",
        help="Re-rank the best K candidates with MODEL; can be repeated.",
    ),
    click.option(
        "--probabilities",
        is_flag=True,
        help="Show probabilities in the place of scores, and beside them in JSON, if the last MODEL is a cross-encoder "
        "whose scores are logits, such as default-reranker.",
    ),
    where_options,
    json_option,
)
"""Options for the number of hits, later stages of a cascade, probabilities, the device and JSON."""


@click.group()
def index() -> None:
    """Build, change and inspect indexes: folders of candidates with their vectors, up to millions.

    \b
      twofold index build answers.index --model runs/rank_poly --texts answers.jsonl.gz
      twofold index add answers.index --texts new.jsonl
      twofold index remove answers.index 17 a42
      twofold index info answers.index
      twofold index copy answers.index backup.index
      twofold search answers.index "how do I list a folder?"
    """


@index.command()
@folder_argument
@click.option(
    "--model", required=True, help="Bi-encoder, poly-encoder or late interaction: a folder, a hub id, `default`, ..."
)
@_texts
@click.option(
    "--stored",
    type=click.Choice(["float32", "float16", "int8"]),
    help="Precision of the vectors; default: float32, float16 for late interaction; int8 takes a quarter of float32.",
)
@click.option(
    "--split",
    metavar="TOKENS:OVERLAP",
    help="Split texts into passages of at most TOKENS tokens, OVERLAP of them in common; a text has the score of "
    "its best passage.",
)
@click.option(
    "--processes",
    type=Count(),
    default="auto",
    metavar="N",
    help="Number of processes that encode; auto: one for each core, one for few texts.",
)
@reverse_option
@where_options
def build(folder: Path, **options: Any) -> None:
    """Build an index: encode all texts and store their vectors. If it is interrupted, run it again to continue.

    \b
      twofold index build answers.index --model default --texts answers.txt
      twofold index build answers.index --model runs/rank_poly --texts answers.jsonl.gz --stored float16
      twofold index build manuals.index --model runs/rank_poly --texts manuals.jsonl.gz --split 100:20
    """
    from twofold import api

    with api.build_index(folder, **options, show=True) as made:
        click.echo(f"{len(made):,} candidates in {folder}", err=True)


@index.command()
@_new_texts
def add(folder: Path, texts: str, **opening: Any) -> None:
    """Add candidates. An id that the index has already is an error. Plain lines get the next free numbers as ids."""
    _change(folder, "added", lambda index: index.add(texts, show=True), **opening)


@index.command()
@_new_texts
def update(folder: Path, texts: str, **opening: Any) -> None:
    """Replace candidates with the same id, and add new ones. Unchanged texts are not encoded again."""
    _change(folder, "changed", lambda index: index.update(texts, show=True), **opening)


@index.command()
@folder_argument
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
def remove(folder: Path, ids: tuple[str, ...]) -> None:
    """Remove candidates by id. If an id is unknown, nothing is removed."""
    _change(folder, "removed", lambda index: index.remove(index.given_ids(ids)))


@index.command()
@folder_argument
def compact(folder: Path) -> None:
    """Merge the files of an index after many changes, without removed candidates."""
    from twofold import api

    with api.open_index(folder) as opened:
        opened.compact()


@index.command()
@folder_argument
@click.argument("new", metavar="NEW", type=FilePath())
@click.option("--anyway", is_flag=True, help="Copy even if the index has lost some of its last changes.")
def copy(folder: Path, new: Path, anyway: bool) -> None:
    """Copy INDEX to the folder NEW. The copy is consistent, even if others change the index meanwhile.

    \b
      twofold index copy answers.index backup.index
    """
    from twofold.index.snapshot import copy_index

    click.echo(f"{copy_index(folder, new, anyway, show=True):,} candidates in {new}", err=True)


@index.command()
@folder_argument
@click.option("--check", is_flag=True, help="Compare all files with their checksums.")
@json_option
def info(folder: Path, check: bool, as_json: bool) -> None:
    """Show the number of candidates, sizes, the model's fingerprint and damage."""
    from twofold import api

    with api.open_index(folder) as opened:
        about = opened.info(check)
    show(about, (f"{name:20} {_info(value)}" for name, value in about.items()), as_json)


def _change(folder: Path, done: str, change: Callable[[Index], int], **opening: Any) -> None:
    """Opens an index, changes it, and prints the number of candidates changed."""
    from twofold import api

    with api.open_index(folder, **opening) as opened:
        click.echo(f"{change(opened):,} {done}, {len(opened):,} candidates in {folder}", err=True)


def _info(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {number:,}" for name, number in value.items())
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return f"{value:,}" if isinstance(value, int) else str(value)


def check_probabilities(last: Ranker, asked: bool) -> None:
    """Refuses to show probabilities if the scores of the last ranker have none."""
    if asked and not last.has_probabilities:
        told = f"the scores of a '{last.kind}' without a bias have no level that is a probability"
        raise TwofoldError(f"--probabilities: {told}; end with a cross-encoder: --then default-reranker:50")


def show_hits(
    context: list[str],
    hits: Hits,
    as_json: bool,
    explanation: RankingExplanation | None = None,
    probabilities: bool = False,
) -> None:
    """Prints the best candidates, one on each line, or as JSON."""
    shown = [_as_dict(hit, probabilities) for hit in hits]
    content = {"context": context, "hits": shown, "exact": hits.exact, "milliseconds": hits.milliseconds}
    content |= {"explanation": explanation.as_dict()} if explanation else {}
    numbers = [hit.probability if probabilities else hit.score for hit in hits]
    lines = zip(numbers, hits, strict=True)
    show(content, (f"{number:8.3f}  {_shown(hit.id):>8}  {_shown(hit.text)}" for number, hit in lines), as_json)


def _as_dict(hit: Hit, probabilities: bool) -> dict[str, Any]:
    shown = {"text": hit.text, "score": hit.score, "id": hit.id}
    shown |= {"probability": hit.probability} if probabilities else {}
    shown |= {"fields": dict(hit.fields)} if hit.fields else {}
    return shown | ({"passage": vars(hit.passage)} if hit.passage else {})


def _shown(value: Any) -> str:
    """Text on one line of a terminal."""
    text = "".join(letter if letter.isprintable() else " " for letter in str(value))
    return text if len(text) <= 200 else text[:199] + "…"
