"""`twofold evaluate`: metrics of a model on a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from twofold.cli.options import (
    Stage,
    generate_options,
    loading_options,
    model_options,
    refuse_given,
    show,
    writing_options,
)

if TYPE_CHECKING:
    from twofold.metrics import Report
    from twofold.model import Model, Ranker

FOR_RANKERS = ("corpus", "among", "form", "reverse", "then")
"""Options for rankers only; rankers take no others, apart from `--folder`."""
FILES = "models that read files, such as images"


class CorpusForm(click.ParamType[str]):
    """`auto`, or the name of a corpus in its published form."""

    name = "form"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        from twofold.data.corpora import corpus_names
        from twofold.data.ranking import AUTO

        known = [AUTO, *corpus_names()]
        return value if value in known else self.fail(f"{value!r} is not one of {', '.join(known)}", param, ctx)


@click.command()
@click.argument("model")
@click.argument("data")
@click.option(
    "--corpus", help="Rankers: search the texts of this file, and look for the `relevant` ids of each row of DATA."
)
@click.option(
    "--among",
    default=10,
    type=click.IntRange(2),
    help="Rankers: number of candidates in each ranking, if DATA has pairs.",
)
@click.option(
    "--form", default="auto", type=CorpusForm(), help="Rankers: format of a published corpus, such as ubuntu_v2."
)
@click.option("--reverse", is_flag=True, help="Rankers with decoder `bi`: rank contexts for each candidate.")
@click.option(
    "--then",
    multiple=True,
    type=Stage(),
    metavar="MODEL:K",
    help="Rankers: re-rank the best K candidates with MODEL; can be repeated.",
)
@click.option(
    "--folder", "--images", help="Folder or zip archive of the files that DATA names; default: the folder of DATA."
)
@click.option("--tokenize", metavar="NAME", help="Texts: sacrebleu's tokenizer for BLEU: 13a, zh, ko-mecab, char, ...")
@writing_options
@model_options
def evaluate(model: str, data: str, as_json: bool, **options: Any) -> None:
    """Evaluate MODEL on the rows of DATA, a file with the columns of the training data.

    MODEL is a folder; a ranker can also be a named model (`twofold list models`) or a hub id. Text is generated with
    the options that are saved with the model, unless you set them here.

    \b
      twofold evaluate runs/translate dev.tsv.gz
      twofold evaluate runs/translate dev.tsv.gz --beam 1 --json
      twofold evaluate runs/rank_poly dev.jsonl.gz
      twofold evaluate runs/rank_bi dev.jsonl.gz --among 100 --then runs/rank_cross:20
      twofold evaluate default queries.jsonl --corpus corpus.jsonl
      twofold evaluate runs/street images.zip/dev
      twofold evaluate runs/caption dev.tsv.gz --folder images.zip/images
    """
    from twofold import api
    from twofold.model import Ranker

    loading = loading_options(options)
    loaded = api.load(model, **loading)
    how, settings = None, {}
    if isinstance(loaded, Ranker):
        _refuse_for_rankers(loaded, options)
        first = loaded.reversed() if options["reverse"] else loaded
        settings = {name: options[name] for name in ("corpus", "form", "reverse") if options[name] is not None}
        settings |= {
            "candidates": options["among"],
            "then": api.load_stages(first, options["then"], **loading),
        }
    else:
        _refuse_for_others(loaded, options)
        how = generate_options(loaded, options["decoder"], options)
        settings = {"tokenize": options["tokenize"]} if options["tokenize"] else {}
    report = api.evaluate(loaded, data, how, options["decoder"], folder=options["folder"], show=True, **settings)
    further = {"signatures": report.signatures} if report.signatures else {}
    content = {"metrics": report.metrics, "examples": report.examples, **report.tables, **further}
    show(content, _lines(report), as_json)


def _refuse_for_rankers(model: Ranker, options: dict[str, Any]) -> None:
    """Refuses options that rankers do not take."""
    refuse_given([name for name in options if name not in (*FOR_RANKERS, "folder")], "models that do not rank")
    if not (model.contexts.config.endings or model.candidates.config.endings):
        refuse_given(["folder"], FILES)


def _refuse_for_others(model: Model, options: dict[str, Any]) -> None:
    """Refuses options that only rankers take, or that do not suit the model's input or outputs."""
    refuse_given(FOR_RANKERS, "rankers")
    if not model.config.input.endings:
        refuse_given(["folder"], FILES)
    tasks = model.config.tasks
    asked = [tasks[model.decoder_name(options["decoder"])]] if options["decoder"] else tasks.values()
    if not any(task.output.writes_text for task in asked):
        refuse_given(["tokenize"], "decoders that write texts")


def _lines(report: Report) -> Iterator[str]:
    """Formats metrics, signatures and tables for a terminal."""
    yield f"{report.examples:,} examples"
    for name, value in report.metrics.items():
        yield f"{name:12} {value:.4f}"
    for name, signature in report.signatures.items():
        yield f"{name:12} {signature}"
    for name, table in report.tables.items():
        yield f"\n{name.replace('_', ' ')}"
        yield from (f"  {line}" for line in _table_lines(table))


def _table_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Lays the rows of a table out under their headings."""
    columns = []
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row.get(name, "") for row in rows]
        cells = [name, *(f"{value:.2f}" if isinstance(value, float) else str(value) for value in values)]
        width = max(map(len, cells))
        numeric = all(isinstance(value, int | float) for value in values)
        columns.append([cell.rjust(width) if numeric else cell.ljust(width) for cell in cells])
    return ["  ".join(line).rstrip() for line in zip(*columns, strict=True)]
