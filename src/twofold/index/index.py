"""Candidate index: a folder of texts and vectors, changed while it is searched, that proves its answers."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

import numpy as np

from twofold.data.candidates import Text, Texts, at_hand
from twofold.data.passages import Sizes, Split
from twofold.data.top_k import as_k
from twofold.errors import TwofoldError, as_list
from twofold.index import forks
from twofold.index.catalog import Catalog, CatalogPerThread
from twofold.index.encoding import StartWorkers
from twofold.index.explaining import explained
from twofold.index.information import info
from twofold.index.search import Query, search
from twofold.index.shards import MissingShardError
from twofold.index.snapshot import Snapshot, SnapshotCache, copy_index
from twofold.index.top_k import ranked_hits
from twofold.index.writer import Writer, build_index
from twofold.results import Hit, Hits, StoredCandidate
from twofold.results.explanation import SearchExplanation
from twofold.types.searching import ContextReader, EncodedContexts

if TYPE_CHECKING:  # an index can be searched without torch
    from twofold.model.ranker import Ranker

_NUMBER = re.compile(r"-?[0-9]{1,19}")
T = TypeVar("T")
Folder = str | Path
Load = Callable[[Folder, Mapping[str, str]], "Ranker"]
"""Function that loads a ranker by name; it is also given the runtime and precision of the index."""
Ids = Iterable[Any]
Mode = Literal["exact", "fast"]
AT_A_TIME = 32
"""Number of contexts that read the index together, which bounds the memory."""


class Index:
    """Index in a folder; `Index.build` makes one."""

    def __init__(self, folder: Folder, model: Ranker | Folder | None = None, load: Load | None = None) -> None:
        """Opens an index; `model` is the one that it was built with, if that was moved, and `load` loads it by name."""
        self.folder = Path(folder)
        self._given_model, self._load = model, load or _load_by_torch
        self._reader: ContextReader | None = None
        self._catalogs = CatalogPerThread(self.folder)
        self._snapshots = SnapshotCache(self.folder)
        forks.OPEN.add(self)
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
        answers = self.search_embedded(model.embed_contexts(checked), k, where, excluded, mode)
        each = (time.perf_counter() - start) * 1000 / len(checked)
        return [Hits(hits, hits.exact, each) for hits in answers]

    def search_embedded(
        self, contexts: EncodedContexts, k: int = 10, where: str | None = None, exclude: Ids = (), mode: Mode = "exact"
    ) -> list[Hits]:
        """Searches for contexts that the model has embedded."""
        start, answers = time.perf_counter(), []
        for first in range(0, len(contexts), AT_A_TIME):
            answers += self._search(contexts[first : first + AT_A_TIME], k, where, list(exclude), mode == "fast")
        each = (time.perf_counter() - start) * 1000 / max(1, len(answers))
        return [Hits(hits, proven, each) for hits, proven in answers]

    def explain(
        self, context: Text, k: int = 10, where: str | None = None, exclude: Ids = ()
    ) -> tuple[Hits, SearchExplanation]:
        """Searches; returns the hits, and what proves them: bounds of all candidates and the floor."""
        start = time.perf_counter()
        asked, excluded = [self.model.check_context(context)], as_list(exclude, "exclude")
        query = Query(self.model.head, self.model.embed_contexts(asked))

        def search_at(snapshot: Snapshot) -> tuple[list[Hit], SearchExplanation]:
            shards = self._snapshots.filtered(snapshot, self._catalog, where, excluded)
            return explained(shards, query, as_k(k), self._catalog.entries_by_key)

        hits, certificate = self._at_one_moment(search_at)
        return Hits(hits, True, (time.perf_counter() - start) * 1000), certificate

    def _search(
        self, contexts: EncodedContexts, k: int, where: str | None, exclude: Sequence[Any], fast: bool
    ) -> list[tuple[list[Hit], bool]]:
        """Returns the hits of each context, and True if they are proven; all belong to one moment."""

        def search_at(snapshot: Snapshot) -> list[tuple[list[Hit], bool]]:
            directions, head = snapshot.directions if fast else None, (self._reader or self.model).head
            queries = [Query(head, contexts[row : row + 1], directions) for row in range(len(contexts))]
            tops = search(self._snapshots.filtered(snapshot, self._catalog, where, exclude), queries, k)
            entries = self._catalog.entries_by_key(np.unique(np.concatenate([top.keys for top in tops])).tolist())
            return [(ranked_hits(top, entries, k), top.proven) for top in tops]

        return self._at_one_moment(search_at)

    def _at_one_moment(self, use: Callable[[Snapshot], T]) -> T:
        """Returns what `use` makes of the index as it is now."""
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
                return use(snapshot)

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
        return info(self.folder, self._catalog, self.computing, check)

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

    def renew(self) -> None:
        """Renews, in a forked process, locks that threads of the parent may hold and connections that are its."""
        forks.PARENT_CATALOGS.append(self._catalogs)
        self._catalogs = CatalogPerThread(self.folder)
        self._snapshots.renew_lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def _catalog(self) -> Catalog:
        return self._catalogs.current()


def _load_by_torch(name: Folder, _: Mapping[str, str]) -> Ranker:
    from twofold.model.load import load_ranker

    return load_ranker(name)
