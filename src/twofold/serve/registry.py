"""Models and indexes that are served: found by name, loaded once."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TypeVar

from twofold import api
from twofold import runtime as runtimes
from twofold.config import kind_of
from twofold.errors import TwofoldError, did_you_mean
from twofold.index import Index
from twofold.index.database import CATALOG_FILE
from twofold.model import Model, Ranker
from twofold.recipe.given import RECIPE
from twofold.serve.batching import Batcher, Observer
from twofold.serve.errors import RefusalError
from twofold.serve.settings import Settings

_NAMED = re.compile(r"([A-Za-z0-9][\w.-]{0,63})=(.+)", re.S)
_NAME = re.compile(r"[\w.-]{1,64}")


@dataclass(frozen=True, eq=False)
class ServedModel:
    """Model with its queue."""

    name: str
    model: Model
    batcher: Batcher
    folder: Path | None
    """Folder of the model or of its training; None for a name such as `default`."""
    path: str
    """Folder or name that it was loaded by."""

    @property
    def ranker(self) -> Ranker:
        """Model as a ranker; any other is refused."""
        if not isinstance(self.model, Ranker):
            raise RefusalError("invalid", f"the model {self.name} does not rank candidates; use /predict", "model")
        return self.model

    @property
    def predictor(self) -> Model:
        """Model that answers inputs; a ranker is refused."""
        if isinstance(self.model, Ranker):
            raise RefusalError("invalid", f"the model {self.name} ranks candidates; use /rank or /search", "model")
        return self.model

    @property
    def run(self) -> Path | None:
        """Folder of the model's training, if it has one."""
        places = [] if self.folder is None else [self.folder, self.folder.parent]
        return next((folder for folder in places if (folder / RECIPE).is_file()), None)

    @cached_property
    def candidate_bytes(self) -> int:
        """Bytes of the vectors of a candidate, as an index stores them; 0 where pairs are read as one text."""
        size = self.ranker.summary().candidate
        return 0 if size is None else size.bytes

    @property
    def title(self) -> str:
        """Name of the training, or of the kind of encoder and decoder."""
        decoders = ", ".join(kind_of(task.decoder) for task in self.model.config.tasks.values())
        return f"{kind_of(self.model.config.encoder)} → {decoders}"


COUNTED = 5.0
"""Seconds for which facts about an index are kept."""


@dataclass(eq=False)
class ServedIndex:
    """Index with its model."""

    name: str
    index: Index
    served: ServedModel
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while this process changes the index."""
    changing: int = 0
    """Number of changes that wait or run."""
    _counted: tuple[float, int] = (-COUNTED, 0)

    def count(self) -> int:
        """Number of candidates, some seconds ago at most: to count millions takes milliseconds."""
        if time.monotonic() - self._counted[0] > COUNTED:
            self._counted = time.monotonic(), len(self.index)
        return self._counted[1]


Named = TypeVar("Named", ServedModel, ServedIndex)


class Registry:
    """All that is served."""

    def __init__(self, settings: Settings, observer: Observer) -> None:
        self._settings, self._observer = settings, observer
        self.models: dict[str, ServedModel] = {}
        self.indexes: dict[str, ServedIndex] = {}
        places = named(settings.served)
        for name, path in places:
            if not is_index(path):
                self._add(name, path, {"runtime": settings.runtime, "precision": settings.precision})
        for name, path in places:
            if is_index(path):
                self._open(name, path)

    def _add(self, name: str, path: str, how: Mapping[str, str]) -> ServedModel:
        """Serves a model under a name; one that is loaded already is not loaded again."""
        folder = Path(path).resolve() if Path(path).exists() else None
        known = next((served for served in self.models.values() if _is_same(served, folder, path, how)), None)
        if known is None:
            settings, limits = self._settings, self._settings.limits
            model = api.load(path, settings.device, settings.allow_code, **how)
            batcher = Batcher(name, limits.batch_tokens, limits.queue, self._observer)
            known = ServedModel(name, model.eval(), batcher, folder, path)
        self.models[name] = replace(known, name=name)
        return self.models[name]

    def _open(self, name: str, path: str) -> None:
        """Opens an index, and serves its model."""
        loaded: list[ServedModel] = []

        def load(model: str | Path, built: Mapping[str, str]) -> Ranker:
            how = runtimes.as_built(built, self._settings.runtime, self._settings.precision)
            folder = Path(model).resolve() if Path(model).exists() else None
            known = [served for served in self.models.values() if _is_same(served, folder, str(model), how)]
            loaded.extend(known[:1] or [self._add(self._free(_last_part(str(model))), str(model), how)])
            return loaded[0].ranker

        index = Index(path, None, load)
        ranker, served = index.model, loaded[0]
        if ranker is not served.model:  # it finds contexts for candidates
            twins = (known for known in self.models.values() if known.model is ranker)
            served = next(twins, replace(served, name=self._free(f"{served.name}-reversed"), model=ranker))
            self.models[served.name] = served
        self.indexes[name] = ServedIndex(name, index, served)

    def _free(self, name: str) -> str:
        """Name for a model that was given none, which no other has."""
        number = 2
        while (chosen := name if number == 2 else f"{name}-{number - 1}") in self.models:
            number += 1
        return chosen

    @property
    def batchers(self) -> list[Batcher]:
        """Queues of all models, each once."""
        return list(dict.fromkeys(model.batcher for model in self.models.values()))

    def model(self, name: str | None, suits: Callable[[Model], bool] = lambda model: True) -> ServedModel:
        """Returns the model of a name; without one, the first that suits."""
        if name is None:
            for served in self.models.values():
                if suits(served.model):
                    return served
            raise RefusalError("not_found", "no model that is served does this; serve another", "model")
        return _of_name(self.models, name, "model")

    def named(self, text: str) -> str:
        """Text of an error with names of models and indexes in the place of their folders, which clients need not
        know."""
        folders = {str(served.index.folder): served.name for served in self.indexes.values()}
        folders |= {str(served.folder): served.name for served in self.models.values() if served.folder}
        for folder in sorted(folders, key=len, reverse=True):
            text = text.replace(folder, folders[folder])
        return text

    def index(self, name: str | None) -> ServedIndex:
        """Returns the index of a name; without one, the first."""
        if name is None and self.indexes:
            return next(iter(self.indexes.values()))
        return _of_name(self.indexes, name or "", "index")


def _of_name(served: Mapping[str, Named], name: str, what: str) -> Named:
    if name not in served:
        raise RefusalError("not_found", f"there is no {what} {name[:100]!r} here; {did_you_mean(name, served)}", what)
    return served[name]


def is_index(path: str) -> bool:
    """Returns True for the folder of an index."""
    return Path(path, CATALOG_FILE).is_file()


def _is_same(served: ServedModel, folder: Path | None, path: str, how: Mapping[str, str]) -> bool:
    """Returns True for a model from the same place that computes in the same way."""
    computing = {**how, **{name: value for name, value in served.model.computing.items() if how.get(name) == "auto"}}
    place = served.path == path if folder is None else served.folder == folder
    return place and computing == served.model.computing


def named(given: Iterable[str]) -> list[tuple[str, str]]:
    """Names and places of what is to be served: `name=PATH`, or a path, whose last part is the name."""
    places: dict[str, str] = {}
    for text in given:
        match = None if Path(text).exists() else _NAMED.fullmatch(text)
        name, path = (match[1], match[2]) if match else (_last_part(text), text)
        if not _NAME.fullmatch(name):
            raise TwofoldError(f"{text}: {name!r} is no name for a model; give one: name={path}")
        if name in places:
            raise TwofoldError(f"{text}: the name {name} is taken by {places[name]}; give another: name={path}")
        places[name] = path
    return list(places.items())


def _last_part(path: str) -> str:
    """Last part of a path; of the folder `model` of a training, the name of the training."""
    folder = Path(path)
    if not folder.exists():
        return folder.name
    folder = folder.resolve()
    return folder.parent.name if folder.name == "model" and (folder.parent / RECIPE).is_file() else folder.name
