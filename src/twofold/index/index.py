"""Candidate index: a folder of texts and vectors, changed while it is searched, that proves its answers."""

from __future__ import annotations

import json
import os
import re
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from twofold.data.candidates import Text, Texts, at_hand
from twofold.data.passages import Sizes, Split
from twofold.data.top_k import as_k
from twofold.errors import TwofoldError, as_list
from twofold.index.catalog import Catalog, CatalogPerThread
from twofold.index.encoding import StartWorkers
from twofold.index.quantized import Rows
from twofold.index.search import Query, search
from twofold.index.shards import SHARD_FOLDER, MissingShardError, Shard
from twofold.index.snapshot import SnapshotCache, copy_index
from twofold.index.top_k import ranked_hits
from twofold.index.writer import Writer, build_index
from twofold.results import Hit, Hits, StoredCandidate
from twofold.types.searching import ContextReader, EncodedContexts, SearchHead

if TYPE_CHECKING:  # an index can be searched without torch
    from twofold.model.ranker import Ranker

_NUMBER = re.compile(r"-?[0-9]{1,19}")
Folder = str | Path
Load = Callable[[Folder, Mapping[str, str]], "Ranker"]
"""Function that loads a ranker by name; it is also given the runtime and precision of the index."""
Ids = Iterable[Any]
Mode = Literal["exact", "fast"]
AT_A_TIME = 32
"""Number of contexts that read the index together, which bounds the memory."""
ENGINES = {False: "exact search by 8-bit bounds", True: "exact search by a scan"}
"""Names of the searches, by whether several vectors are kept of a candidate."""


class Index:
    """Index in a folder; `Index.build` makes one."""

    def __init__(self, folder: Folder, model: Ranker | Folder | None = None, load: Load | None = None) -> None:
        """Opens an index; `model` is the one that it was built with, if that was moved, and `load` loads it by name."""
        self.folder = Path(folder)
        self._given_model, self._load = model, load or _load_by_torch
        self._reader: ContextReader | None = None
        self._catalogs = CatalogPerThread(self.folder)
        self._snapshots = SnapshotCache(self.folder)
        _OPEN.add(self)
        self._catalog  # noqa: B018 - refuses a folder without an index now

    @classmethod
    def build(
        cls,
        folder: Folder,
        model: Ranker,
        texts: Texts,
        stored: str | None = None,
        name: str = "",
        show: bool = False,
        split: Sizes | None = None,
        start_workers: StartWorkers | None = None,
    ) -> Self:
        """Encodes every text and stores its vectors; a build that was cut short goes on where it stood.

        stored: float32, float16 or int8; by default float32, or float16 where a candidate has several vectors
        name: under which the model will be loaded again; show: draw a bar; start_workers: starts processes that encode
        split: `TOKENS:OVERLAP`, cuts texts into passages of at most so many tokens; by default they stay whole
        """
        cut = split if split is None else Split.of(split)
        build_index(Path(folder), model, name, at_hand(texts), stored, cut, show, start_workers)
        return cls(folder, model)

    # --- changes ---

    def add(self, texts: Texts, show: bool = False) -> int:
        """Adds candidates; an id that is there already is an error. Plain texts are numbered on."""
        return Writer(self.folder, self.model).add(at_hand(texts), show)

    def update(self, texts: Texts, show: bool = False) -> int:
        """Replaces candidates of the same id, and adds new ids; unchanged texts are not encoded again."""
        return Writer(self.folder, self.model).update(at_hand(texts), show)

    def remove(self, ids: Ids) -> int:
        """Removes candidates; an id that is not there is an error, and then none is removed."""
        return Writer(self.folder).remove(as_list(ids, "ids"))

    def compact(self) -> None:
        """Writes all candidates into as few files as possible."""
        Writer(self.folder).compact()

    # --- search ---

    @cached_property
    def model(self) -> Ranker:
        """Ranker that the index was built with; another is refused."""
        name = self._given_model or self._catalog.metadata("model")
        if not name:
            raise TwofoldError(f"{self.folder}: was built from Python with a model at hand; give that model")
        ranker = self._load(name, self.computing) if isinstance(name, str | Path) else name
        if self.is_reversed and not ranker.is_reversed:
            ranker = ranker.reversed()
        self._catalog.check_model(ranker, "the one given" if name is ranker else name)
        return ranker

    def read_contexts_by(self, reader: ContextReader, name: str) -> None:
        """Lets a reader of the same model, of this name, encode the contexts of searches in place of `model`."""
        self._catalog.check_model(reader, name)
        self._reader = reader

    def search(
        self, context: Text, k: int = 10, where: str | None = None, exclude: Ids = (), mode: Mode = "exact"
    ) -> Hits:
        """Returns the k best candidates, proven, of all that pass the filter `where`, without the ids of `exclude`.

        mode: `fast` scores what is likely to be best and proves nothing, at about half the cost
        """
        return self.search_many([context], k, where, exclude, mode)[0]

    def search_many(
        self, contexts: Sequence[Text], k: int = 10, where: str | None = None, exclude: Ids = (), mode: Mode = "exact"
    ) -> list[Hits]:
        """Searches for several contexts, which are encoded together, and read the index together."""
        k = as_k(k)
        if mode not in ("exact", "fast"):
            raise TwofoldError(f"mode: there is no {mode!r}; give exact or fast")
        model, excluded = self._reader or self.model, as_list(exclude, "exclude")
        checked = [model.check_context(context) for context in as_list(contexts, "contexts")]
        start = time.perf_counter()
        embeddings = model.embed_contexts(checked)
        answers: list[tuple[list[Hit], bool]] = []
        for first in range(0, len(checked), AT_A_TIME):
            some = embeddings[first : first + AT_A_TIME]
            answers += self._search(model.head, some, k, where, excluded, mode == "fast")
        each = (time.perf_counter() - start) * 1000 / len(checked)
        return [Hits(hits, proven, each) for hits, proven in answers]

    def _search(
        self, head: SearchHead, contexts: EncodedContexts, k: int, where: str | None, exclude: Sequence[Any], fast: bool
    ) -> list[tuple[list[Hit], bool]]:
        """Returns the hits of each context, and True if they are proven; all belong to one moment."""
        failed = -1
        while True:
            with self._catalog.read_transaction():
                try:
                    snapshot = self._snapshots.latest(self._catalog)
                except MissingShardError:
                    # Shards were merged between the list and the file: the next list names the new ones.
                    version = self._catalog.version
                    if version == failed:
                        raise
                    failed = version
                    continue
                directions = snapshot.directions if fast else None
                queries = [Query(head, contexts[row : row + 1], directions) for row in range(len(contexts))]
                tops = search(self._snapshots.filtered(snapshot, self._catalog, where, exclude), queries, k)
                entries = self._catalog.entries_by_key(np.unique(np.concatenate([top.keys for top in tops])).tolist())
                return [(ranked_hits(top, entries, k), top.proven) for top in tops]

    # --- the index as a whole ---

    def __len__(self) -> int:
        return self._catalog.count()

    def __contains__(self, id: object) -> bool:
        return bool(self._catalog.entries_by_id([id]))

    def __iter__(self) -> Iterator[Any]:
        """Yields the ids of all candidates in the order in which they came."""
        return self._catalog.ids()

    def get(self, id: Any) -> StoredCandidate | None:
        """Returns the candidate of an id, or None."""
        if (entry := self._catalog.entries_by_id([id]).get(id)) is None:
            return None
        return StoredCandidate(entry.text, entry.id, json.loads(entry.fields) if entry.fields else {})

    def __repr__(self) -> str:
        return f"Index({str(self.folder)!r}, {len(self):,} candidates)"

    def info(self, check: bool = False) -> dict[str, Any]:
        """Returns counts, sizes, fingerprint and health; with `check` every byte is read."""
        catalog = self._catalog
        with catalog.read_transaction():
            records, version, deleted = catalog.shards(), catalog.version, catalog.deleted_since(-1)
            size, split = sum(record.size for record in records), catalog.metadata("split")
            about: dict[str, Any] = {
                "candidates": catalog.count(),
                "model": catalog.metadata("model"),
                "decoder": catalog.metadata("decoder"),
                "fingerprint": catalog.metadata("fingerprint"),
                **self.computing,
                "engine": ENGINES[False],
                "format": int(catalog.metadata("format") or 0),
                "state": catalog.metadata("state"),
                "width": None,
                "stored": catalog.metadata("stored"),
                "fields": sorted(catalog.fields()),
                "shards": len(records),
                "vectors": 0,
                "removed": len(deleted),
                "bytes": {"shards": size, "texts": catalog.path.stat().st_size},
                "bytes_per_candidate": round(size / (catalog.count() + len(deleted))) if records else None,
                "health": "good",
            }
        about |= {"split": split, "documents": about["candidates"], "passages": 0} if split else {}
        try:
            for record in records:
                self._add_shard(about, Shard(self.folder / SHARD_FOLDER, record), deleted, check)
            if check:
                catalog.check()
        except TwofoldError as error:
            if isinstance(error, MissingShardError) and catalog.version != version:  # shards were merged meanwhile
                return self.info(check)
            about["health"] = str(error)
        return about

    @property
    def model_name(self) -> str | None:
        """Name or folder of the model; None if the model itself was given."""
        name = self._given_model or self._catalog.metadata("model")
        return str(name) if name and isinstance(name, str | Path) else None

    @property
    def is_reversed(self) -> bool:
        """True if contexts are stored, to be found by candidates."""
        return bool(self._catalog.metadata("reversed"))

    @property
    def computing(self) -> dict[str, str]:
        """Precision and runtime that candidates were encoded with, which queries and further candidates keep."""
        return {name: value for name in ("precision", "runtime") if (value := self._catalog.metadata(name)) is not None}

    def _add_shard(self, about: dict[str, Any], shard: Shard, deleted: Rows, check: bool) -> None:
        """Adds the numbers of a shard to those of the index."""
        count, about["width"] = shard.shape
        about["vectors"] += count
        if "passages" in about:
            about["passages"] += len(shard) - len(shard.rows_of(deleted))
        about["engine"] = ENGINES[shard.places is not None]
        if check:
            shard.check()

    def given_ids(self, words: Iterable[str]) -> list[Any]:
        """Converts ids that a user typed: digits are a number, unless a candidate has them as a text."""
        words = as_list(words, "ids")
        texts = self._catalog.entries_by_id(words)
        return [int(word) if word not in texts and _NUMBER.fullmatch(word) else word for word in words]

    def copy(self, folder: Folder, show: bool = False) -> None:
        """Makes a whole copy, of one moment, while others may search and change this index; `show` draws a bar."""
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


_OPEN: weakref.WeakSet[Index] = weakref.WeakSet()
_PARENT_CATALOGS: list[CatalogPerThread] = []
"""Catalogs of the process from which this one was forked: to close one would undo the parent's locks."""


def _before_fork() -> None:
    for index in list(_OPEN):
        index._catalogs.close()


def _after_fork_in_child() -> None:
    """Renews locks, which threads of the parent may hold, and connections, which belong to the parent."""
    for index in list(_OPEN):
        _PARENT_CATALOGS.append(index._catalogs)
        index._catalogs = CatalogPerThread(index.folder)
        index._snapshots.renew_lock()


os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)


def _load_by_torch(name: Folder, _: Mapping[str, str]) -> Ranker:
    from twofold.model.load import load_ranker

    return load_ranker(name)
