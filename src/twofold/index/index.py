"""The candidate index: a folder of texts and vectors, changed while it is searched, that proves its answers."""

from __future__ import annotations

import json
import os
import re
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from twofold.data.candidates import Texts, at_hand
from twofold.errors import TwofoldError, as_list
from twofold.index.catalog import Catalog
from twofold.index.catalog_per_thread import CatalogPerThread
from twofold.index.catalog_tables import Entry
from twofold.index.copy import copy_index
from twofold.index.filters import condition
from twofold.index.quantized import Floats, Rows
from twofold.index.search import TIE_TOLERANCE, Query, TopK, search
from twofold.index.shard import SHARD_FOLDER, MissingShardError, Shard, Shelved
from twofold.index.writer import Writer, build
from twofold.model.candidates import Text, as_k
from twofold.model.load import load_ranker
from twofold.model.ranker import Ranker
from twofold.results import Hit, Hits
from twofold.types import Contexts

_NUMBER = re.compile(r"-?[0-9]{1,19}")
Load = Callable[[str | Path], Ranker]
ENGINE = "exact search by 8-bit bounds"
FILTERS_KEPT = 16
"""How many filters' answers are remembered until the index changes."""


@dataclass(frozen=True)
class View:
    """The shards at one moment, and which of their rows are gone."""

    version: int
    shelves: Mapping[str, Shelved]
    directions: Floats | None = None
    """Those of the candidates' heads."""


class Index:
    """An index that is there already; `Index.build` makes one."""

    def __init__(self, folder: str | Path, model: Ranker | str | Path | None = None, load: Load = load_ranker) -> None:
        """model: the one that the index was built with, if it was moved; `load` makes a ranker of its name"""
        self.folder = Path(folder)
        self._given, self._load = model, load
        self._catalogs = CatalogPerThread(self.folder)
        self._lock = threading.Lock()
        self._view = View(-1, {})
        self._passing: dict[str, tuple[int, Rows]] = {}
        self._trusted = False
        _OPEN.add(self)
        self._catalog  # noqa: B018 - a folder without an index is found out now

    @classmethod
    def build(
        cls,
        folder: str | Path,
        model: Ranker,
        texts: Texts,
        stored: str = "float32",
        name: str = "",
        show: bool = False,
    ) -> Self:
        """Read every text and keep its vector; one that was cut short goes on where it stood.

        name: under which the model will be found again; show: a bar
        """
        build(Path(folder), model, name, at_hand(texts), stored, show)
        return cls(folder, model)

    # --- changes ---

    def add(self, texts: Texts, show: bool = False) -> int:
        """New candidates; an id that is there already is an error. Plain texts are numbered on."""
        return Writer(self.folder, self.model).add(at_hand(texts), show)

    def update(self, texts: Texts, show: bool = False) -> int:
        """Candidates in the place of those of the same id, new ids added; unchanged texts are not read again."""
        return Writer(self.folder, self.model).update(at_hand(texts), show)

    def remove(self, ids: Iterable[Any]) -> int:
        """Candidates that go; an id that is not there is an error, and then none goes."""
        return Writer(self.folder).remove(as_list(ids, "ids"))

    def compact(self) -> None:
        """Write what is left into as few files as possible."""
        Writer(self.folder).compact()

    # --- search ---

    @cached_property
    def model(self) -> Ranker:
        """The ranker that the index was built with; another is refused."""
        name = self._given or self._catalog.metadata("model")
        if not name:
            raise TwofoldError(f"{self.folder}: was built from Python with a model at hand; give that model")
        ranker = name if isinstance(name, Ranker) else self._load(name)
        self._catalog.check_model(ranker.fingerprint(), "the one given" if name is ranker else name)
        return ranker

    def search(
        self,
        context: Text,
        k: int = 10,
        where: str | None = None,
        exclude: Iterable[Any] = (),
        mode: Literal["exact", "fast"] = "exact",
    ) -> Hits:
        """The k best candidates, proven: of all that pass the filter `where`, but for the ids of `exclude`.

        mode: `fast` scores what is likely to be best and proves nothing, at about half the cost
        """
        return self.search_many([context], k, where, exclude, mode)[0]

    def search_many(
        self,
        contexts: Sequence[Text],
        k: int = 10,
        where: str | None = None,
        exclude: Iterable[Any] = (),
        mode: Literal["exact", "fast"] = "exact",
    ) -> list[Hits]:
        """The same for several contexts, which are read together."""
        k = as_k(k)
        if mode not in ("exact", "fast"):
            raise TwofoldError(f"mode: there is no {mode!r}; give exact or fast")
        model, excluded = self.model, as_list(exclude, "exclude")
        asked = [model.check_context(one) for one in as_list(contexts, "contexts")]
        start = time.perf_counter()
        read = model.embed_contexts(asked)
        shared = (time.perf_counter() - start) / len(asked)
        results = []
        for one in range(len(asked)):
            start = time.perf_counter()
            hits, proven = self._search(read.rows(one, one + 1), k, where, excluded, mode == "fast")
            results.append(Hits(hits, proven, (time.perf_counter() - start + shared) * 1000))
        return results

    def _search(
        self, context: Contexts, k: int, where: str | None, exclude: Sequence[Any], fast: bool
    ) -> tuple[list[Hit], bool]:
        failed = -1
        while True:
            with self._catalog.read_transaction():
                try:
                    view = self._now()
                except MissingShardError:
                    # Shards were joined between the list and the file: the next list names the new ones.
                    failed, before = self._catalog.version, failed
                    if failed == before:
                        raise
                    continue
                query = Query(self.model.head, context, view.directions if fast else None)
                found = search(self._shelves(view, where, exclude), query, k)
                entries = self._catalog.entries_by_key(found.keys.tolist())
                return _hits(found, entries, k), found.proven

    def _shelves(self, view: View, where: str | None, exclude: Sequence[Any]) -> list[Shelved]:
        shelves = list(view.shelves.values())
        if where is not None:
            passing = self._keys_that_pass(where, view.version)
            shelves = [_only(one, passing) for one in shelves]
        if exclude:
            keys = np.array([entry.key for entry in self._catalog.entries_by_id(exclude).values()], np.int64)
            shelves = [_without(one, keys) for one in shelves]
        return shelves

    def _now(self) -> View:
        """The shards as they are, read anew only after a change."""
        with self._lock:  # the moment begins with the first question, so nobody's is older than what is known
            known, version = self._view, self._catalog.version
            if version == known.version:
                return known
            if version < known.version:
                raise TwofoldError(f"{self.folder}: was replaced by an older copy while it was open; open it again")
            self._catalog.check_ready()
            self._catalog.check_small_tables()
            records = self._catalog.shards()
            fresh = any(record.name not in known.shelves for record in records)
            gone = self._catalog.deleted_since(-1 if fresh else known.version)
            shelves = {}
            for record in records:
                before = known.shelves.get(record.name) or Shelved(Shard(self.folder / SHARD_FOLDER, record), None)
                shelves[record.name] = _without(before, gone)
            self._view = View(version, shelves, self._catalog.directions())
            return self._view

    def _keys_that_pass(self, where: str, version: int) -> Rows:
        with self._lock:
            known = self._passing.get(where)
            if known is None or known[0] != version:
                keys = self._catalog.keys_where(condition(where, self._catalog.fields()))
                if not self._trusted:  # a candidate whose fields are damaged would drop out unseen
                    self._catalog.check_candidates()
                    self._trusted = True
                while len(self._passing) >= FILTERS_KEPT:
                    del self._passing[next(iter(self._passing))]
                self._passing[where] = known = (version, np.sort(keys))
            return known[1]

    # --- what it is ---

    def __len__(self) -> int:
        return self._catalog.count()

    def info(self, check: bool = False) -> dict[str, Any]:
        """Counts, sizes, fingerprint and health; with `check` every byte is read."""
        catalog = self._catalog
        with catalog.read_transaction():
            records, version = catalog.shards(), catalog.version
            about = {name: catalog.metadata(name) for name in ("model", "fingerprint", "stored", "state", "format")}
            gone, count, fields = len(catalog.deleted_since(-1)), catalog.count(), sorted(catalog.fields())
        health, width = "good", None
        try:
            for record in records:
                shard = Shard(self.folder / SHARD_FOLDER, record)
                width = shard.quantized.integers.shape[1]
                if check:
                    shard.check()
            if check:
                catalog.check()
        except MissingShardError as error:
            if catalog.version != version:  # shards were joined meanwhile
                return self.info(check)
            health = str(error)
        except TwofoldError as error:
            health = str(error)
        return {
            "candidates": count,
            "model": about["model"],
            "fingerprint": about["fingerprint"],
            "engine": ENGINE,
            "format": int(about["format"] or 0),
            "state": about["state"],
            "width": width,
            "stored": about["stored"],
            "fields": fields,
            "shards": len(records),
            "removed": gone,
            "bytes": {"shards": sum(one.size for one in records), "texts": catalog.path.stat().st_size},
            "health": health,
        }

    def given_ids(self, words: Iterable[str]) -> list[Any]:
        """Ids as somebody typed them: a number is meant where no text of these digits is there."""
        words = as_list(words, "ids")
        texts = self._catalog.entries_by_id(words)
        return [int(one) if one not in texts and _NUMBER.fullmatch(one) else one for one in words]

    def copy(self, folder: str | Path, show: bool = False) -> None:
        """Make a whole copy, of one moment, while others may search and change this index; `show` draws a bar."""
        copy_index(self.folder, Path(folder), show=show)

    def close(self) -> None:
        self._catalogs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _catalog(self) -> Catalog:
        return self._catalogs.current()

    def _after_fork(self) -> None:
        """In a new process nobody holds the lock, and no connection of the parent's may be used or closed."""
        self._lock = threading.Lock()
        self._catalogs = CatalogPerThread(self.folder)


_OPEN: weakref.WeakSet[Index] = weakref.WeakSet()
_PARENTS: list[CatalogPerThread] = []
"""CatalogPerThread of the process from which this one was forked: to close one would undo the parent's locks."""


def _before_fork() -> None:
    for index in list(_OPEN):
        index._catalogs.close()


def _after_fork_in_child() -> None:
    for index in list(_OPEN):
        _PARENTS.append(index._catalogs)
        index._after_fork()


os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)


def _only(shelf: Shelved, keys: Rows) -> Shelved:
    """The rows of `keys`, which grow."""
    out = np.ones(len(shelf.shard), bool)
    out[shelf.shard.rows_of(keys)] = False
    return Shelved(shelf.shard, out if shelf.out is None else out | shelf.out)


def _without(shelf: Shelved, keys: Rows) -> Shelved:
    rows = shelf.shard.rows_of(keys)
    if not len(rows):
        return shelf
    out: NDArray[np.bool_] = np.zeros(len(shelf.shard), bool) if shelf.out is None else shelf.out.copy()
    out[rows] = True
    return Shelved(shelf.shard, out)


def _hits(found: TopK, entries: Mapping[int, Entry], k: int) -> list[Hit]:
    """TopK first; among level scores the smaller id."""
    order = np.argsort(-found.scores, kind="stable")
    scores = found.scores[order]
    level, first = np.zeros(len(scores), np.int64), 0
    for one in range(1, len(scores)):
        # Level with the best of its group: level with a neighbour, a chain of them could go on for ever.
        if scores[first] - scores[one] > TIE_TOLERANCE * (1 + abs(scores[first])):
            first = one
        level[one] = first
    places = [(int(group), entries[int(found.keys[one])], one) for group, one in zip(level, order, strict=True)]
    places.sort(key=lambda place: (place[0], isinstance(place[1].id, str), place[1].id))
    return [
        Hit(entry.text, float(found.scores[one]), entry.id, json.loads(entry.fields) if entry.fields else {})
        for _, entry, one in places[:k]
    ]
