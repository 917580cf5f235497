"""`twofold evaluate`: how good a model is on a file."""

from __future__ import annotations

from typing import Any

import click

from twofold.cli.options import generate_options, model_options, print_json, refuse_given, writing_options


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
@click.option(
    "--among", default=10, show_default=True, type=click.IntRange(2), help="Rankers: candidates that a pair gets."
)
@click.option(
    "--form",
    default="auto",
    show_default=True,
    type=CorpusForm(),
    help="Rankers: read DATA in the form in which a corpus was published.",
)
@click.option("--images", help="The folder or zip archive of the images that DATA names; its own folder if not given.")
@writing_options
@model_options
def evaluate(
    model: str,
    data: str,
    corpus: str | None,
    among: int,
    form: Any,
    images: str | None,
    decoder: str | None,
    device: str,
    allow_code: bool,
    as_json: bool,
    **given: Any,
) -> None:
    """Judge MODEL, a folder, by the rows of DATA, a file with the columns it was trained on.

    A ranker may also be `default`, `default-multilingual` or a hub id. How a model writes is as saved with it unless
    given.

    \b
      twofold evaluate runs/translate dev.tsv.gz
      twofold evaluate runs/translate dev.tsv.gz --beam 1 --json
      twofold evaluate runs/rank_poly dev.jsonl.gz
      twofold evaluate default queries.jsonl --corpus corpus.jsonl
      twofold evaluate runs/street images.zip/dev
      twofold evaluate runs/caption dev.tsv.gz --images images.zip/images
    """
    from twofold import api
    from twofold.data.ranking import RankingReader
    from twofold.metrics import evaluate as judge
    from twofold.model import Ranker
    from twofold.progress import bar

    loaded = api.load(model, device, allow_code)
    if isinstance(loaded, Ranker):
        refuse_given(["images", "decoder", *given], "models that do not rank")
        report = _judge_ranker(loaded, list(RankingReader(form=form).read_as_given(data)), corpus, among)
    else:
        refuse_given(["corpus", "among", "form"], "rankers")
        if loaded.config.image is None:
            refuse_given(["images"], "models that read images")
        options = generate_options(loaded, decoder, given)
        rows = list(loaded.read(data, images))
        with bar("evaluating", len(rows)) as progress:
            report = judge(loaded, rows, options, decoder, progress=progress)
    if as_json:
        print_json({"metrics": report.metrics, "examples": report.examples, **report.tables})
        return
    click.echo(f"{report.examples:,} examples")
    for name, value in report.metrics.items():
        click.echo(f"{name:12} {value:.4f}")
    for name, table in report.tables.items():
        click.echo(f"\n{name.replace('_', ' ')}")
        for line in table:
            click.echo(
                "  "
                + "  ".join(f"{value:>8.2f}" if isinstance(value, float) else f"{value:>8}" for value in line.values())
            )


def _judge_ranker(model: Any, rows: list[Any], corpus: str | None, among: int) -> Any:
    from twofold.data.candidates import read_candidates
    from twofold.data.ranking import warn_of_unread_rows
    from twofold.metrics import evaluate as judge
    from twofold.metrics.retrieval import measure
    from twofold.progress import bar

    if corpus is None:
        warn_of_unread_rows(model.reader, rows)
        with bar("evaluating", len(rows)) as progress:
            return judge(model, rows, progress=progress, candidates=among)
    texts = list(read_candidates(corpus, blank=True))
    with bar("reading the corpus", len(texts)) as progress:
        return measure(model, rows, texts, progress)
