"""`twofold search`: the best of an index for a context."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from twofold.cli.options import FilePath, ranking_options, show_hits, stages


@click.command()
@click.argument("folder", metavar="INDEX", type=FilePath())
@click.argument("context", nargs=-1, required=True)
@click.option("--where", metavar="FILTER", help="Only candidates whose fields pass, such as 'lang = \"ko\"'.")
@click.option("--exclude", multiple=True, metavar="ID", help="Not this candidate; may be repeated.")
@click.option(
    "--mode",
    default="exact",
    show_default=True,
    type=click.Choice(["exact", "fast"]),
    help="exact proves every answer; fast scores what is likely to be best, at half the cost, and proves nothing.",
)
@click.option("--model", help="Where the index's model lies, if it was moved.")
@ranking_options
def search(
    folder: Path,
    context: tuple[str, ...],
    where: str | None,
    exclude: tuple[str, ...],
    mode: Literal["exact", "fast"],
    model: str | None,
    k: int,
    then: tuple[str, ...],
    device: str,
    allow_code: bool,
    as_json: bool,
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
    from twofold.model.cascade import cascade

    further = stages(then)
    with api.open_index(folder, model, device, allow_code) as index:
        rankers = [(api.load_ranker(name, device, allow_code), number) for name, number in further]
        turns, ids = list(context), index.given_ids(exclude)
        index.model.check_context(turns)  # the model is loaded before the clock starts
        hits = cascade(lambda depth: index.search(turns, depth, where, ids, mode), len(index), rankers, turns, k)
    show_hits(turns, hits, as_json)
