"""`twofold rank`, `twofold index` and `twofold search`: ranking and search of candidates."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from twofold.cli.options import (
    FilePath,
    RowsFile,
    Stage,
    check_files,
    json_option,
    loading_options,
    several,
    show,
    where_options,
)

if TYPE_CHECKING:
    from twofold.index import Index
    from twofold.results import Hit, Hits
    from twofold.results.explanation import RankingExplanation

TEXTS = (
    "Lines of text, or jsonl, tsv, csv with `text`, `id` and any further fields; also .gz; images: a folder, an "
    "archive, a table; - reads lines of text or JSON from standard input."
)
_folder = click.argument("folder", metavar="INDEX", type=FilePath())
_texts = click.option("--texts", required=True, type=RowsFile(), help=TEXTS)
_model = click.option("--model", help="Where the index's model lies, if it was moved.")
_reverse = click.option(
    "--reverse", is_flag=True, help="Find what would be a context for what would be a candidate, which a `bi` can."
)
_new_texts = several(_folder, _texts, _model, where_options)
ranking_options = several(
    click.option("-k", default=10, type=click.IntRange(1), help="How many to show."),
    click.option(
        "--then", multiple=True, type=Stage(), metavar="MODEL:K", help="Re-rank the best K by MODEL; may be repeated."
    ),
    where_options,
    json_option,
)
"""Options for the number of hits, later stages of a cascade, the device and JSON."""


@click.command()
@click.argument("model")
@click.argument("context", nargs=-1, required=True)
@click.option(
    "--candidates",
    required=True,
    type=RowsFile(),
    help=TEXTS,
)
@_reverse
@click.option("--explain", is_flag=True, help="Print JSON with what makes up the scores, too.")
@ranking_options
def rank(
    model: str,
    context: tuple[str, ...],
    candidates: str,
    reverse: bool,
    explain: bool,
    k: int,
    then: tuple[tuple[str, int], ...],
    as_json: bool,
    **place: Any,
) -> None:
    """Show which candidates fit CONTEXT best; several CONTEXTs are the turns of one dialogue, oldest first.

    MODEL is a folder, a hub id, `default` (English) or `default-multilingual` (Korean and fifteen others).

    \b
      twofold rank default --candidates answers.txt "how do I list a folder?"
      cut -f 2 answers.tsv | twofold rank default --candidates - "how do I list a folder?"
      twofold rank runs/rank_poly --candidates answers.jsonl "hi" "hello, what can I do?" "my disk is full" -k 3
      twofold rank runs/rank_bi --candidates answers.txt "my disk is full" --then runs/rank_cross:20 --json
      twofold rank runs/retrieve_images --candidates photos.zip "two dogs run on grass"
      twofold rank runs/retrieve_images --reverse --candidates captions.txt dog.jpg
    """
    from twofold import api
    from twofold.data.candidates import with_ids
    from twofold.model.candidates import cascade
    from twofold.model.explaining import explain_hits
    from twofold.progress import bar

    first = api.load_ranker(model, **place)
    first = first.reversed() if reverse else first
    rankers = api.load_stages(first, then, **place)
    read = with_ids(list(first.candidates.candidates(candidates)))
    turns, last = list(context), [first, *(ranker for ranker, _ in rankers)][-1]
    check_files(turns, first.contexts.config)
    first.check_context(turns)
    with bar("reading candidates", len(read), show=len(read) > 1000) as progress:
        ready = first.prepare_given(read, progress)
    hits = cascade(lambda depth: first.rank(turns, ready, depth), len(ready), rankers, turns, k)
    _show(turns, hits, as_json or explain, explain_hits(last, turns, read, hits) if explain else None)


@click.command()
@_folder
@click.argument("context", nargs=-1, required=True)
@click.option("--where", metavar="FILTER", help="Only candidates whose fields pass, such as 'lang = \"ko\"'.")
@click.option("--exclude", multiple=True, metavar="ID", help="Not this candidate; may be repeated.")
@click.option(
    "--mode",
    default="exact",
    type=click.Choice(["exact", "fast"]),
    help="exact proves every answer; fast scores what is likely to be best, at half the cost, and proves nothing.",
)
@_model
@ranking_options
def search(
    folder: Path,
    context: tuple[str, ...],
    model: str | None,
    k: int,
    then: tuple[tuple[str, int], ...],
    as_json: bool,
    **options: Any,
) -> None:
    """Show which candidates of INDEX fit CONTEXT best; several CONTEXTs are the turns of one dialogue, oldest first.

    Every answer is proven: no other candidate scores higher (but for --mode fast). With --then, a further ranker orders
    the best K.

    \b
      twofold search answers.index "how do I list a folder?"
      twofold search answers.index "hi" "hello, what can I do?" "my disk is full" -k 3 --json
      twofold search answers.index "my disk is full" --where 'lang = "en" and year >= 2020' --then runs/rank_cross:20
    """
    from twofold import api
    from twofold.model.candidates import cascade

    loading = loading_options(options)
    with api.open_index(folder, model, **loading) as index:
        rankers = api.load_stages(index.model, then, **loading)
        turns, excluded = list(context), index.given_ids(options["exclude"])
        check_files(turns, index.model.contexts.config)
        index.model.check_context(turns)  # the model is loaded before the clock starts
        filters = (options["where"], excluded, options["mode"])
        hits = cascade(lambda depth: index.search(turns, depth, *filters), len(index), rankers, turns, k)
    _show(turns, hits, as_json)


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
@_folder
@click.option(
    "--model", required=True, help="A bi- or poly-encoder, or late interaction: a folder, a hub id, `default`, ..."
)
@_texts
@click.option(
    "--stored",
    type=click.Choice(["float32", "float16", "int8"]),
    help="float32 unless given, float16 of late interaction; int8 takes a quarter of float32.",
)
@click.option(
    "--split",
    metavar="TOKENS:OVERLAP",
    help="Cut texts into passages of at most TOKENS tokens that share OVERLAP; hits are texts, by their best passages.",
)
@_reverse
@where_options
def build(folder: Path, **options: Any) -> None:
    """Read every text and keep its vectors. One that was cut short goes on where it stood when it is run again.

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
    """Add candidates; an id that is there already is an error. Plain lines are numbered on."""
    _change(folder, "added", lambda index: index.add(texts, show=True), **opening)


@index.command()
@_new_texts
def update(folder: Path, texts: str, **opening: Any) -> None:
    """Put candidates in the place of those of the same id, and add new ids; unchanged texts are not read again."""
    _change(folder, "changed", lambda index: index.update(texts, show=True), **opening)


@index.command()
@_folder
@click.argument("ids", nargs=-1, required=True, metavar="ID...")
def remove(folder: Path, ids: tuple[str, ...]) -> None:
    """Remove candidates by id; if one is not there, none is removed."""
    _change(folder, "removed", lambda index: index.remove(index.given_ids(ids)))


@index.command()
@_folder
def compact(folder: Path) -> None:
    """Write what is left after many changes into as few files as possible."""
    from twofold import api

    with api.open_index(folder) as opened:
        opened.compact()


@index.command()
@_folder
@click.argument("new", metavar="NEW", type=FilePath())
@click.option("--anyway", is_flag=True, help="Copy what is left of an index that lacks some of its last changes.")
def copy(folder: Path, new: Path, anyway: bool) -> None:
    """Copy INDEX into the folder NEW, as it is at one moment; others may search and change it meanwhile.

    \b
      twofold index copy answers.index backup.index
    """
    from twofold.index.snapshot import copy_index

    click.echo(f"{copy_index(folder, new, anyway, show=True):,} candidates in {new}", err=True)


@index.command()
@_folder
@click.option("--check", is_flag=True, help="Read every byte and compare it with its checksum.")
@json_option
def info(folder: Path, check: bool, as_json: bool) -> None:
    """Show counts, sizes, fingerprint and health."""
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


def _show(context: list[str], hits: Hits, as_json: bool, explanation: RankingExplanation | None = None) -> None:
    """Prints the best candidates, one on each line, or as JSON."""
    shown = [_as_dict(hit) for hit in hits]
    content = {"context": context, "hits": shown, "exact": hits.exact, "milliseconds": hits.milliseconds}
    content |= {"explanation": explanation.as_dict()} if explanation else {}
    show(content, (f"{hit.score:8.3f}  {_shown(hit.id):>8}  {_shown(hit.text)}" for hit in hits), as_json)


def _as_dict(hit: Hit) -> dict[str, Any]:
    shown = {"text": hit.text, "score": hit.score, "id": hit.id}
    shown |= {"fields": dict(hit.fields)} if hit.fields else {}
    return shown | ({"passage": vars(hit.passage)} if hit.passage else {})


def _shown(value: Any) -> str:
    """Text on one line of a terminal."""
    text = "".join(letter if letter.isprintable() else " " for letter in str(value))
    return text if len(text) <= 200 else text[:199] + "…"
