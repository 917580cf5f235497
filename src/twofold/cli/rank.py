"""`twofold rank`: candidates ranked for a context, without torch where an earlier call has prepared it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from twofold.cli.options import RowsFile, check_files
from twofold.cli.ranking import TEXTS, check_probabilities, ranking_options, reverse_option, show_hits


@click.command()
@click.argument("model")
@click.argument("context", nargs=-1, required=True)
@click.option(
    "--candidates",
    required=True,
    type=RowsFile(),
    help=TEXTS,
)
@reverse_option
@click.option("--explain", is_flag=True, help="Print JSON with what the scores consist of.")
@ranking_options
def rank(
    model: str,
    context: tuple[str, ...],
    candidates: str,
    reverse: bool,
    explain: bool,
    k: int,
    then: tuple[tuple[str, int], ...],
    probabilities: bool,
    as_json: bool,
    **place: Any,
) -> None:
    """Rank the candidates for CONTEXT; several CONTEXTs are the turns of one dialogue, oldest first.

    MODEL is a folder, a hub id or a named model: `default` (English), `default-multilingual` (Korean and
    fifteen others), and those that `twofold list models` shows.

    \b
      twofold rank default --candidates answers.txt "how do I list a folder?"
      cut -f 2 answers.tsv | twofold rank default --candidates - "how do I list a folder?"
      twofold rank runs/rank_poly --candidates answers.jsonl "hi" "hello, what can I do?" "my disk is full" -k 3
      twofold rank runs/rank_bi --candidates answers.txt "my disk is full" --then runs/rank_cross:20 --json
      twofold rank default --candidates answers.txt "my disk is full" --then default-reranker:50 --probabilities
      twofold rank runs/retrieve_images --candidates photos.zip "two dogs run on grass"
      twofold rank runs/retrieve_images --reverse --candidates captions.txt dog.jpg
    """
    from twofold.runtime.light_ranker import find_ranker

    how = {name: place[name] for name in ("runtime", "precision")}
    whole = reverse or explain or then or probabilities or place["device"] != "auto"
    light = None if whole else find_ranker(model, **how)
    if light is None:
        shown = {"explain": explain, "probabilities": probabilities, "as_json": as_json}
        _rank_by_torch(model, list(context), candidates, reverse, k, then, shown, **place)
        return
    from twofold.data.candidates import read_candidates, with_ids

    turns, read = list(context), with_ids(list(read_candidates(candidates)))
    check_files(turns, light.contexts.input.config)
    show_hits(turns, light.rank(turns, read, k), as_json)


def _rank_by_torch(
    model: str,
    turns: list[str],
    candidates: str,
    reverse: bool,
    k: int,
    then: tuple[tuple[str, int], ...],
    shown: Mapping[str, bool],
    **place: Any,
) -> None:
    """Ranks with the whole model, and keeps what the next call needs to rank without torch."""
    from twofold import api
    from twofold.data.candidates import with_ids
    from twofold.model.candidates import cascade
    from twofold.model.explaining import explain_hits
    from twofold.progress import bar
    from twofold.runtime import light_files, light_ranker

    first = api.load_ranker(model, **place)
    first = first.reversed() if reverse else first
    rankers = api.load_stages(first, then, **place)
    read = with_ids(list(first.candidates.candidates(candidates)))
    last = [first, *(ranker for ranker, _ in rankers)][-1]
    check_probabilities(last, shown["probabilities"])
    check_files(turns, first.contexts.config)
    first.check_context(turns)
    with bar("reading candidates", len(read), show=len(read) > 1000) as progress:
        ready = first.prepare_given(read, progress)
    hits = cascade(lambda depth: first.rank(turns, ready, depth), len(ready), rankers, turns, k)
    explanation = explain_hits(last, turns, read, hits) if shown["explain"] else None
    show_hits(turns, hits, shown["as_json"] or shown["explain"], explanation, shown["probabilities"])
    folder = light_ranker.folder_for(model, place["runtime"], place["precision"])
    if folder is not None and place["device"] == "auto":
        light_files.write(first, folder)
