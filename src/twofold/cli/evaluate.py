"""`twofold evaluate`: how good a model is on a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from twofold.cli.options import generate_options, model_options, refuse_given, show, writing_options

if TYPE_CHECKING:
    from twofold.metrics import Report

FOR_RANKERS = ("corpus", "among", "form", "reverse")
"""Options that only rankers take, and the only ones that they take."""


class CorpusForm(click.ParamType[str]):
    """`auto`, or the name of a corpus that is read in its published form."""

    name = "form"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from twofold.data.corpora import corpus_names
        from twofold.data.ranking import AUTO

        known = [AUTO, *corpus_names()]
        return value if value in known else self.fail(f"{value!r} is not one of {', '.join(known)}", param, ctx)


@click.command()
@click.argument("model")
@click.argument("data")
@click.option("--corpus", help="Rankers: find the `relevant` ids of each row of DATA among all texts of this file.")
@click.option("--among", default=10, type=click.IntRange(2), help="Rankers: candidates that a pair gets.")
@click.option(
    "--form", default="auto", type=CorpusForm(), help="Rankers: read DATA in the form in which a corpus was published."
)
@click.option("--reverse", is_flag=True, help="Rankers: find contexts for candidates, which a `bi` can.")
@click.option(
    "--folder", "--images", help="The folder or zip archive of the files that DATA names; its own folder if not given."
)
@writing_options
@model_options
def evaluate(model: str, data: str, device: str, allow_code: bool, as_json: bool, **options: Any) -> None:
    """Judge MODEL, a folder, by the rows of DATA, a file with the columns it was trained on.

    A ranker may also be `default`, `default-multilingual` or a hub id. How a model writes is as saved with it unless
    given.

    \b
      twofold evaluate runs/translate dev.tsv.gz
      twofold evaluate runs/translate dev.tsv.gz --beam 1 --json
      twofold evaluate runs/rank_poly dev.jsonl.gz
      twofold evaluate default queries.jsonl --corpus corpus.jsonl
      twofold evaluate runs/street images.zip/dev
      twofold evaluate runs/caption dev.tsv.gz --folder images.zip/images
    """
    from twofold import api
    from twofold.model import Ranker

    loaded = api.load(model, device, allow_code)
    report = (_judge_ranker if isinstance(loaded, Ranker) else _judge)(loaded, data, options)
    show({"metrics": report.metrics, "examples": report.examples, **report.tables}, _lines(report), as_json)


def _lines(report: Report) -> Iterator[str]:
    yield f"{report.examples:,} examples"
    for name, value in report.metrics.items():
        yield f"{name:12} {value:.4f}"
    for name, table in report.tables.items():
        yield f"\n{name.replace('_', ' ')}"
        for line in table:
            cells = [f"{value:>8.2f}" if isinstance(value, float) else f"{value:>8}" for value in line.values()]
            yield "  " + "  ".join(cells)


def _judge(model: Any, data: str, options: dict[str, Any]) -> Report:
    """Judge a model by the rows of a file."""
    from twofold.metrics import evaluate as judge
    from twofold.progress import bar

    refuse_given(FOR_RANKERS, "rankers")
    if not model.config.input.endings:
        refuse_given(["folder"], "models that read files, such as images")
    decoder = options["decoder"]
    how = generate_options(model, decoder, options)
    rows = list(model.read(data, options["folder"]))
    with bar("evaluating", len(rows)) as progress:
        return judge(model, rows, how, decoder, progress=progress)


def _judge_ranker(model: Any, data: str, options: dict[str, Any]) -> Report:
    """Judge a ranker by the candidates of each row of a file, or by what it finds in a whole corpus."""
    from twofold.data.label_columns import warn_of_unread_columns
    from twofold.metrics import evaluate as judge
    from twofold.progress import bar

    refuse_given([name for name in options if name not in (*FOR_RANKERS, "folder")], "models that do not rank")
    if not (model.contexts.config.endings or model.candidates.config.endings):
        refuse_given(["folder"], "models that read files, such as images")
    if options["reverse"]:
        model = model.reversed()
    rows = list(model.read(data, options["folder"], options["form"]))
    if options["corpus"] is None:
        warn_of_unread_columns(rows, model.reader.columns)
        with bar("evaluating", len(rows)) as progress:
            return judge(model, rows, progress=progress, candidates=options["among"])
    texts = list(model.candidates.candidates(options["corpus"], blank=True))
    with bar("reading the corpus", len(texts)) as progress:
        return judge(model, rows, progress=progress, corpus=texts)
