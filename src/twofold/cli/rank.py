"""`twofold rank`: the best of many candidates for a context."""

from __future__ import annotations

from typing import Any

import click

from twofold.cli.options import print_json


@click.command()
@click.argument("model")
@click.argument("context", nargs=-1, required=True)
@click.option("--candidates", required=True, help="Lines of text, or jsonl, tsv, csv with `text` and `id`; also .gz.")
@click.option("-k", default=10, show_default=True, type=click.IntRange(1), help="How many to show.")
@click.option("--then", multiple=True, metavar="MODEL:K", help="Let MODEL put the best K in order; may be repeated.")
@click.option("--device", default="auto", show_default=True, help="cpu, cuda, cuda:1, ...; auto takes a GPU if any.")
@click.option("--allow-code", is_flag=True, help="Load parts from outside twofold that the model names.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object and nothing else.")
def rank(
    model: str,
    context: tuple[str, ...],
    candidates: str,
    k: int,
    then: tuple[str, ...],
    device: str,
    allow_code: bool,
    as_json: bool,
) -> None:
    """Show which candidates fit CONTEXT best; several CONTEXTs are the turns of one dialogue, oldest first.

    MODEL is a folder, a hub id, `default` (English) or `default-multilingual` (Korean and fifteen others).

    \b
      twofold rank default --candidates answers.txt "how do I list a folder?"
      twofold rank runs/poly --candidates answers.jsonl "hi" "hello, what can I do?" "my disk is full" -k 3
      twofold rank runs/bi --candidates answers.txt "my disk is full" --then runs/cross:20 --json
    """
    from twofold import api
    from twofold.data.candidates import read_candidates
    from twofold.model.cascade import cascade
    from twofold.progress import bar

    stages = [_stage(one) for one in then]
    first = api.load_ranker(model, device, allow_code)
    rankers = [(api.load_ranker(name, device, allow_code), number) for name, number in stages]
    read = list(read_candidates(candidates))
    turns = list(context)
    first.check_context(turns)
    with bar("reading candidates", len(read), show=len(read) > 1000) as progress:
        ready = first.prepare([one.text for one in read], [one.id for one in read], progress)
    hits = cascade(first, rankers, turns, ready, k)
    if as_json:
        found = [{"text": hit.text, "score": hit.score, "id": hit.id} for hit in hits]
        print_json({"context": turns, "hits": found, "exact": hits.exact, "milliseconds": hits.milliseconds})
        return
    for hit in hits:
        click.echo(f"{hit.score:8.3f}  {_shown(hit.id):>8}  {_shown(hit.text)}")


def _stage(given: str) -> tuple[str, int]:
    name, colon, number = given.rpartition(":")
    if not colon or not name or not number.isdecimal() or int(number) < 1:
        raise click.UsageError(f"--then {given}: write MODEL:K, such as runs/cross:20")
    return name, int(number)


def _shown(value: Any) -> str:
    """A text on one line of a terminal."""
    text = "".join(one if one.isprintable() else " " for one in str(value))
    return text if len(text) <= 200 else text[:199] + "…"
