"""`twofold search`: an index searched for a context, without torch where an earlier call has prepared it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from twofold.cli.options import check_files, loading_options
from twofold.cli.ranking import check_probabilities, folder_argument, model_option, ranking_options, show_hits

if TYPE_CHECKING:
    from twofold.index import Index

FILTERS = ("where", "exclude", "mode")
"""Options that say which candidates are searched, and how."""


@click.command()
@folder_argument
@click.argument("context", nargs=-1, required=True)
@click.option("--where", metavar="FILTER", help="Only candidates whose fields match, such as 'lang = \"ko\"'.")
@click.option("--exclude", multiple=True, metavar="ID", help="Leave out the candidate with this id; can be repeated.")
@click.option(
    "--mode",
    default="exact",
    type=click.Choice(["exact", "fast"]),
    help="exact: the true top-k, with a certificate; fast: approximate, at half the cost.",
)
@model_option
@ranking_options
def search(
    folder: Path,
    context: tuple[str, ...],
    model: str | None,
    k: int,
    then: tuple[tuple[str, int], ...],
    probabilities: bool,
    as_json: bool,
    **options: Any,
) -> None:
    """Search INDEX for CONTEXT; several CONTEXTs are the turns of one dialogue, oldest first.

    The search is exact, with a certificate that no other candidate scores higher; --mode fast is approximate. With
    --then, another ranker re-ranks the best K candidates.

    \b
      twofold search answers.index "how do I list a folder?"
      twofold search answers.index "hi" "hello, what can I do?" "my disk is full" -k 3 --json
      twofold search answers.index "my disk is full" --where 'lang = "en" and year >= 2020' --then runs/rank_cross:20
    """
    turns, filters, place = list(context), [options[name] for name in FILTERS], loading_options(options)
    whole = then or probabilities or place["device"] != "auto"
    if whole or not _search_without_torch(folder, turns, model, k, filters, as_json, place):
        shown = {"probabilities": probabilities, "as_json": as_json}
        _search_by_torch(folder, turns, model, k, then, filters, shown, place)


def _search_without_torch(
    folder: Path, turns: list[str], model: str | None, k: int, filters: list[Any], as_json: bool, place: dict[str, Any]
) -> bool:
    """Searches by what an earlier call has prepared; returns False if nothing is prepared."""
    from twofold.index import Index
    from twofold.runtime.light_ranker import find_ranker

    with Index(folder, model) as index:
        named = _named_model(index, place)
        light = find_ranker(**named) if named else None
        if named is None or light is None:
            return False
        index.read_contexts_by(light, named["name"])
        check_files(turns, light.contexts.input.config)
        light.check_context(turns)
        where, exclude, mode = filters
        show_hits(turns, index.search(turns, k, where, index.given_ids(exclude), mode), as_json)
    return True


def _search_by_torch(
    folder: Path,
    turns: list[str],
    model: str | None,
    k: int,
    then: tuple[tuple[str, int], ...],
    filters: list[Any],
    shown: Mapping[str, bool],
    place: dict[str, Any],
) -> None:
    """Searches with the whole model, and keeps what the next call needs to search without torch."""
    from twofold import api
    from twofold.model.candidates import cascade
    from twofold.runtime import light_files, light_ranker

    with api.open_index(folder, model, **place) as index:
        rankers = api.load_stages(index.model, then, **place)
        check_probabilities([index.model, *(ranker for ranker, _ in rankers)][-1], shown["probabilities"])
        where, exclude, mode = filters
        excluded = index.given_ids(exclude)
        check_files(turns, index.model.contexts.config)
        index.model.check_context(turns)  # the model is loaded before the clock starts
        hits = cascade(lambda depth: index.search(turns, depth, where, excluded, mode), len(index), rankers, turns, k)
        show_hits(turns, hits, shown["as_json"], probabilities=shown["probabilities"])
        named = _named_model(index, place)
        files = light_ranker.folder_for(**named) if named and place["device"] == "auto" else None
        if files is not None:
            light_files.write(index.model, files)


def _named_model(index: Index, place: Mapping[str, Any]) -> dict[str, str] | None:
    """Name, runtime and precision of the model that reads contexts; None if only torch can."""
    from twofold import runtime

    if index.model_name is None or index.is_reversed:
        return None
    computing = runtime.as_built(index.computing, place["runtime"], place["precision"])
    return {"name": index.model_name, **computing}
