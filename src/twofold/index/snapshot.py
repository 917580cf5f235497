"""Index at one moment: its shards, without the rows that are deleted or that a filter excludes, and copies of it."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from twofold import storage
from twofold.data.passages import Span
from twofold.errors import TwofoldError
from twofold.index.catalog import Catalog
from twofold.index.database import CATALOG_FILE, REMEDY, ShardRecord, create_version
from twofold.index.quantized import Floats, Rows
from twofold.index.scan import SeveralVectors, scan
from twofold.index.search import Query, StoredVectors, approximate_top_k, exact_top_k
from twofold.index.shards import SHARD_FOLDER, Shard
from twofold.index.top_k import TopK
from twofold.progress import bar
from twofold.storage.checksums import SummedFile

FILTERS_KEPT = 16
"""Number of filters whose results are kept until the index changes."""
TRIES = 100
"""Number of times that a copy reads the list of shards, if shards are merged meanwhile."""
PIECE = 1 << 20
"""Number of bytes that are copied at a time."""


@dataclass(frozen=True)
class MaskedShard:
    """Shard, and those of its rows that are not searched."""

    shard: Shard
    excluded: NDArray[np.bool_] | None = None
    """(rows,): rows that are deleted or filtered out."""

    def top_k(self, query: Query, k: int, floor: float) -> TopK:
        shard = self.shard
        if shard.places is not None:
            vectors = shard.places, shard.vectors, self.excluded, shard.integers, shard.norms
            top = scan(query, SeveralVectors(*vectors, shard.documents), k, floor)
        else:
            top = self._bounded(query, k, floor)
        if shard.documents is None:
            top.keys = shard.keys[top.keys]
        else:
            top.passages = self._passages(top.group())
        return top

    def _bounded(self, query: Query, k: int, floor: float) -> TopK:
        """Returns the best of candidates of one vector each."""
        shard = self.shard
        projections = None if query.guess is None else shard.projections
        stored = StoredVectors(shard.quantized, shard.vectors, self.excluded, projections, shard.documents)
        return (exact_top_k if query.guess is None else approximate_top_k)(query, stored, k, floor)

    def _passages(self, rows: Rows) -> dict[int, tuple[int, Span]]:
        """Passages in these rows by the keys of their documents: each passage's number, and its place."""
        keys = self.shard.keys[rows]
        numbers = rows - np.searchsorted(self.shard.keys, keys)
        spans = (Span(*span) for span in self.shard.take("spans", rows).tolist())
        return dict(zip(keys.tolist(), zip(numbers.tolist(), spans, strict=True), strict=True))

    def only(self, keys: Rows) -> MaskedShard:
        """Keeps the rows of these keys, which ascend."""
        excluded = np.ones(len(self.shard), bool)
        excluded[self.shard.rows_of(keys)] = False
        return MaskedShard(self.shard, excluded if self.excluded is None else excluded | self.excluded)

    def without(self, keys: Rows) -> MaskedShard:
        """Keeps all rows but those of these keys."""
        rows = self.shard.rows_of(keys)
        if not len(rows):
            return self
        excluded = np.zeros(len(self.shard), bool) if self.excluded is None else self.excluded.copy()
        excluded[rows] = True
        return MaskedShard(self.shard, excluded)


@dataclass(frozen=True)
class Snapshot:
    """Shards at one moment, without their deleted rows."""

    version: int
    shards: Mapping[str, MaskedShard]
    """Shards by the names of their files."""
    directions: Floats | None = None
    """Directions of the candidates' projections."""


@dataclass(frozen=True)
class Passing:
    """Candidates that pass a filter."""

    version: int
    keys: Rows
    """Keys, ascending."""
    warnings: list[str]


class SnapshotCache:
    """Keeps the latest snapshot and the results of filters until the index changes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._latest = Snapshot(-1, {})
        self._passing: dict[str, Passing] = {}
        self._candidates_checked = False
        self.renew_lock()

    def renew_lock(self) -> None:
        """Makes a lock that nobody holds, in a process that was forked while a thread held the old one."""
        self._lock = threading.Lock()

    def latest(self, catalog: Catalog) -> Snapshot:
        """Returns the present shards, opened anew only after a change."""
        # The catalog's transaction begins with its first query. Inside the lock, it is not older than the snapshot.
        with self._lock:
            known, version = self._latest, catalog.version
            if version == known.version:
                return known
            if version < known.version:
                raise TwofoldError(f"{self.folder}: was replaced by an older copy while it was open; open it again")
            catalog.check_ready()
            catalog.check_small_tables()
            records = catalog.shards()
            all_known = all(record.name in known.shards for record in records)
            deleted = catalog.deleted_since(known.version if all_known else -1)
            shards = {}
            for record in records:
                shard = known.shards.get(record.name) or MaskedShard(Shard(self.folder / SHARD_FOLDER, record))
                shards[record.name] = shard.without(deleted)
            self._latest = Snapshot(version, shards, catalog.directions())
            return self._latest

    def filtered(
        self, snapshot: Snapshot, catalog: Catalog, where: str | None, exclude: Sequence[Any]
    ) -> list[MaskedShard]:
        """Returns a snapshot's shards with the candidates that pass `where`, without the ids of `exclude`."""
        shards = list(snapshot.shards.values())
        if where is not None:
            passing = self._keys_that_pass(where, snapshot.version, catalog)
            shards = [shard.only(passing) for shard in shards]
        if exclude:
            keys = np.array([entry.key for entry in catalog.entries_by_id(exclude).values()], np.int64)
            shards = [shard.without(keys) for shard in shards]
        return shards

    def _keys_that_pass(self, where: str, version: int, catalog: Catalog) -> Rows:
        with self._lock:
            passing = self._passing.get(where)
            if passing is None or passing.version != version:
                passing = Passing(version, *catalog.keys_where(where))
                if not self._candidates_checked:  # a candidate whose fields are damaged would drop out unseen
                    catalog.check_candidates()
                    self._candidates_checked = True
                while len(self._passing) >= FILTERS_KEPT:
                    del self._passing[next(iter(self._passing))]
                self._passing[where] = passing
        for message in passing.warnings:
            warnings.warn(message, stacklevel=6)
        return passing.keys


def copy_index(source: Path, target: Path, anyway: bool = False, show: bool = False) -> int:
    """Copies the index in `source` to a new folder; returns the number of its candidates.

    anyway: copy what is left of an index that lacks changes; show: a bar
    """
    if os.path.lexists(target):
        raise TwofoldError(f"{target}: is there already; give a folder that is not there")
    if os.path.realpath(source) in map(str, Path(os.path.realpath(target)).parents):
        raise TwofoldError(f"{target}: lies inside the index itself; give a folder elsewhere")
    catalog = Catalog(source, anyway)
    with contextlib.ExitStack() as stack, storage.new_folder(target) as aside:
        stack.callback(catalog.close)
        (aside / SHARD_FOLDER).mkdir()
        files = _copy_catalog(catalog, source / SHARD_FOLDER, aside / CATALOG_FILE, stack)
        with bar("copying", sum(record.size for record, _ in files), show=show) as report:
            done = 0
            for record, file in files:
                _copy_shard(file, aside / SHARD_FOLDER / record.name, record)
                done += record.size
                report(done)
        return _finish(aside)


def _copy_catalog(
    catalog: Catalog, shards: Path, target: Path, stack: contextlib.ExitStack
) -> list[tuple[ShardRecord, IO[bytes]]]:
    """Copies the catalog, and opens all shards that it lists: a file that is open can be read to its end."""
    for _ in range(TRIES):
        with catalog.read_transaction(), contextlib.ExitStack() as opened:
            try:
                files: list[tuple[ShardRecord, IO[bytes]]] = [
                    (record, opened.enter_context((shards / record.name).open("rb"))) for record in catalog.shards()
                ]
            except FileNotFoundError as error:
                missing = error.filename
                continue
            catalog.count()  # an error about the candidates names this catalog, and not its copy
            with contextlib.closing(sqlite3.connect(target, isolation_level=None)) as database:
                catalog.database.backup(database)
            stack.push(opened.pop_all())
            return files
    raise TwofoldError(f"{missing}: this part of the index is missing; {REMEDY}")


def _copy_shard(file: IO[bytes], target: Path, record: ShardRecord) -> None:
    with target.open("wb") as opened:
        copy = SummedFile(opened)
        while piece := file.read(PIECE):
            copy.write(piece)
    if (copy.size, copy.checksums()) != (record.size, record.sums):
        raise TwofoldError(f"{file.name}: damaged; {REMEDY}")


def _finish(folder: Path) -> int:
    """Brings the copied catalog into one file, and records its version; returns the number of its candidates."""
    with contextlib.closing(sqlite3.connect(folder / CATALOG_FILE, isolation_level=None)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    create_version(folder)
    with contextlib.closing(Catalog(folder)) as copy:
        copy.checkpoint()
        return copy.count()
