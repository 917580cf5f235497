"""`twofold rank`: the best of many candidates for a context."""

from __future__ import annotations

import click

from twofold.cli.options import ranking_options, show_hits, stages


@click.command()
@click.argument("model")
@click.argument("context", nargs=-1, required=True)
@click.option("--candidates", required=True, help="Lines of text, or jsonl, tsv, csv with `text` and `id`; also .gz.")
@ranking_options
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
      twofold rank runs/rank_poly --candidates answers.jsonl "hi" "hello, what can I do?" "my disk is full" -k 3
      twofold rank runs/rank_bi --candidates answers.txt "my disk is full" --then runs/rank_cross:20 --json
    """
    from twofold import api
    from twofold.data.candidates import check_ids, read_candidates
    from twofold.model.cascade import cascade
    from twofold.progress import bar

    further = stages(then)
    first = api.load_ranker(model, device, allow_code)
    rankers = [(api.load_ranker(name, device, allow_code), number) for name, number in further]
    read = list(read_candidates(candidates))
    check_ids(read)
    turns = list(context)
    first.check_context(turns)
    with bar("reading candidates", len(read), show=len(read) > 1000) as progress:
        ready = first.prepare([one.text for one in read], [one.id for one in read], progress)
    hits = cascade(lambda depth: first.rank(turns, ready, depth), len(ready), rankers, turns, k)
    show_hits(turns, hits, as_json)
