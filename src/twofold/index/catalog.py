"""Catalog of an index: ids, texts and fields of the candidates, the list of shards, and the deleted keys."""

from __future__ import annotations

import contextlib
import json
import os
import threading
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np

from twofold.errors import TwofoldError
from twofold.index import database as sqlite
from twofold.index.database import CATALOG_FILE, FORMAT, REMEDY, Entry, ShardRecord, small_tables_checksum
from twofold.index.filters import condition, mismatches
from twofold.index.quantized import Floats, Rows
from twofold.types.searching import ContextReader

LOCK_WAIT = 60.0
"""Seconds to wait for another process that is writing."""
BUILDING, READY = "building", "ready"
COUNT = "UPDATE about SET value = value + ? WHERE name = 'documents'"
QUERY_VALUES = 500
"""Ids or keys in one query."""


class Catalog:
    """Connection to the catalog; every thread has its own."""

    def __init__(self, folder: Path, anyway: bool = False) -> None:
        """anyway: open it even if changes are on record that it does not hold"""
        self.folder, self.path = folder, folder / CATALOG_FILE
        if not os.path.exists(self.path):
            missing = f"{folder}: holds no index ({CATALOG_FILE} is missing)"
            raise TwofoldError(f"{missing}; make one with `twofold index build`")
        with sqlite.translate_errors(self.path):
            self._connection = sqlite.connect(self.path, LOCK_WAIT)
        self.database = self._connection.database
        try:
            self._check_opened(anyway)
        except BaseException:
            self.database.close()
            raise

    def _check_opened(self, anyway: bool) -> None:
        """Refuses another format, a damaged table, and a file that lacks changes."""
        given = self.metadata("format")
        if given != str(FORMAT):
            raise TwofoldError(f"{self.folder}: an index of format {given}, this version reads {FORMAT}; build it anew")
        with self.read_transaction():
            self.check_small_tables()
        if not anyway:
            sqlite.check_version(self.folder, lambda: self.version)

    def outdated(self) -> bool:
        """Returns True if the file must be opened again to see changes, because SQLite takes it for immutable."""
        immutable = self._connection.immutable
        return immutable is not None and immutable != sqlite.size_and_time(self.path)

    def close(self) -> None:
        with sqlite.translate_errors(self.path):
            self.database.close()

    def checkpoint(self) -> None:
        """Brings changes from the write-ahead log into the main file, durably, and record the version."""
        if self._connection.writable:
            with sqlite.translate_errors(self.path):
                sqlite.checkpoint(self.database, self.path)
                version = self.version
            sqlite.write_version(self.folder, version)

    # --- transactions ---

    @contextlib.contextmanager
    def read_transaction(self) -> Iterator[None]:
        """Makes everything that is read inside belong to one moment."""
        with sqlite.translate_errors(self.path), self.database:
            self.database.execute("BEGIN")
            yield

    @contextlib.contextmanager
    def write_transaction(self) -> Iterator[None]:
        """Makes all changes inside, or none; `checkpoint` puts them on the disk."""
        if not self._connection.writable:
            sqlite.refuse_writing(self.folder)
        with sqlite.translate_errors(self.path), self.database:  # which commits, or rolls back after any error
            self.database.execute("BEGIN IMMEDIATE")
            yield
            self.database.execute("UPDATE about SET value = value + 1 WHERE name = 'version'")
            self.set_metadata("seal", str(small_tables_checksum(self.database)))

    # --- queries ---

    def metadata(self, name: str) -> str | None:
        """Value of the table `about`."""
        rows = self._query("SELECT value FROM about WHERE name = ?", [name])
        return str(rows[0][0]) if rows else None

    @property
    def version(self) -> int:
        return int(self.metadata("version") or 0)

    def count(self) -> int:
        return int(self._query("SELECT count(*) FROM candidates")[0][0])

    def largest_number(self) -> int:
        """Largest id that is a number; -1 if no id is one."""
        [[largest]] = self._query("SELECT max(id) FROM candidates WHERE typeof(id) = 'integer'")
        return -1 if largest is None else int(largest)

    def shards(self) -> list[ShardRecord]:
        query = "SELECT name, first, last, rows, size, sums FROM shards ORDER BY first"
        return [ShardRecord(*row) for row in self._query(query)]

    def deleted_since(self, version: int) -> Rows:
        """Keys of deleted candidates whose rows are still in a shard."""
        return self._keys("SELECT key FROM gone WHERE version > ?", [version])

    def fields(self) -> set[str]:
        """Names of all fields that any candidate has had."""
        return {row[0] for row in self._query("SELECT name FROM fields")}

    def directions(self) -> Floats | None:
        """Directions of the candidates' projections; None if nothing was ever stored."""
        rows = self._query("SELECT vector, sum FROM directions ORDER BY row")
        if any(zlib.crc32(vector) != checksum for vector, checksum in rows):
            raise TwofoldError(f"{self.path}: damaged, the directions are not what was written; {REMEDY}")
        return np.stack([np.frombuffer(vector, np.float32) for vector, _ in rows]) if rows else None

    def entries_by_key(self, keys: Sequence[int]) -> dict[int, Entry]:
        """Reads the entries of these keys; a missing one is an error."""
        entries = {entry.key: entry for entry in self._entries("key", keys)}
        if len(entries) < len(set(keys)):
            raise TwofoldError(f"{self.path}: damaged, a candidate of a shard is missing; {REMEDY}")
        return entries

    def entries_by_id(self, ids: Sequence[Any]) -> dict[Any, Entry]:
        """Reads the entries of those ids that are there."""
        return {entry.id: entry for entry in self._entries("id", ids)}

    def ids(self) -> Iterator[Any]:
        """Yields the ids of all candidates in the order in which they came."""
        query, last = "SELECT key, id FROM candidates WHERE key > ? ORDER BY key LIMIT ?", -1
        while rows := self._query(query, [last, QUERY_VALUES]):
            yield from (id for _, id in rows)
            last = rows[-1][0]

    def keys_where(self, where: str) -> tuple[Rows, list[str]]:
        """Keys of the candidates that pass a filter, ascending, and warnings about the filter's types."""
        passing = condition(where, self.fields())
        query = f"SELECT key FROM candidates WHERE {passing.sql}"  # noqa: S608 - whatever was given is a parameter
        return np.sort(self._keys(query, passing.values)), mismatches(passing, self._query)

    def _query(self, query: str, values: Sequence[Any] = ()) -> list[Any]:
        with sqlite.translate_errors(self.path):
            return self.database.execute(query, values).fetchall()

    def _keys(self, query: str, values: Sequence[Any]) -> Rows:
        return np.array([key for (key,) in self._query(query, values)], np.int64)

    def _entries(self, column: str, values: Sequence[Any]) -> Iterator[Entry]:
        """Entries by key or id, each compared with its checksum."""
        values = [value for value in values if _storable(value)]
        for start in range(0, len(values), QUERY_VALUES):
            chunk = values[start : start + QUERY_VALUES]
            marks = ", ".join("?" * len(chunk))
            query = f"SELECT key, id, text, fields, sum FROM candidates WHERE {column} IN ({marks})"  # noqa: S608
            for *columns, checksum in self._query(query, chunk):
                entry = Entry(*columns)
                if entry.checksum != checksum:
                    raise TwofoldError(
                        f"{self.path}: damaged, candidate {entry.id!r} is not what was written; {REMEDY}"
                    )
                yield entry

    # --- checks ---

    def check_model(self, model: ContextReader, name: object) -> None:
        """Refuses a model other than the one that the index was built with: vectors of two models do not mix."""
        if self.metadata("fingerprint") != model.fingerprint():
            built, given = self.metadata("decoder"), model.kind
            reason = "its weights, tokenizer or settings have changed"
            if built not in (None, given):
                reason = f"it was replaced: the decoder is {given}, that of the index {built}"
            raise TwofoldError(
                f"{self.folder}: built with another model ({self.metadata('model')}) than {name}, or {reason}; "
                "give the same model, or build the index anew"
            )

    def check_ready(self) -> None:
        """Refuses an index whose build was cut short."""
        if self.metadata("state") != READY:
            raise TwofoldError(f"{self.folder}: not built to its end; run `twofold index build` again to go on")

    def check_small_tables(self) -> None:
        """Compares all tables but the candidates, which have checksums of their own, with their checksum."""
        if self.metadata("seal") != str(small_tables_checksum(self.database)):
            raise TwofoldError(f"{self.path}: damaged, not what was written; {REMEDY}")

    def check_candidates(self) -> None:
        """Compares every candidate with its checksum, and their number with the rows of the shards."""
        entries = self.database.execute("SELECT key, id, text, fields, sum FROM candidates NOT INDEXED")
        count = sum(Entry(*columns).checksum == checksum for *columns, checksum in entries)
        rows = sum(record.rows for record in self.shards()) - len(self.deleted_since(-1))
        if count != int(self.metadata("documents") or rows):  # documents, of several rows each, are counted apart
            raise TwofoldError(f"{self.path}: damaged, not all candidates are what was written; {REMEDY}")

    def check(self) -> None:
        """Reads everything and compares it with its checksums."""
        with self.read_transaction():
            if self.database.execute("PRAGMA integrity_check").fetchone()[0] != "ok":
                raise TwofoldError(f"{self.path}: damaged; {REMEDY}")
            self.check_small_tables()
            self.check_candidates()

    # --- changes, inside a `write_transaction` ---

    def set_metadata(self, name: str, value: str) -> None:
        self.database.execute("INSERT OR REPLACE INTO about VALUES (?, ?)", [name, value])

    def set_directions(self, directions: Floats) -> None:
        self.database.execute("DELETE FROM directions")
        vectors = [direction.tobytes() for direction in directions]
        rows = [(number, vector, zlib.crc32(vector)) for number, vector in enumerate(vectors)]
        self.database.executemany("INSERT INTO directions VALUES (?, ?, ?)", rows)

    def insert(self, entries: Sequence[Entry]) -> None:
        """Adds candidates, whose keys follow the largest key so far."""
        rows = [(*astuple(entry), entry.checksum) for entry in entries]
        self.database.executemany("INSERT INTO candidates VALUES (?, ?, ?, ?, ?)", rows)
        self._add_field_names(entries)
        if entries:
            self.set_metadata("next_key", str(entries[-1].key + 1))
        self.database.execute(COUNT, [len(entries)])

    def update_fields(self, entries: Sequence[Entry]) -> None:
        """Replaces the fields of candidates whose texts stay."""
        rows = [(entry.fields, entry.checksum, entry.key) for entry in entries]
        self.database.executemany("UPDATE candidates SET fields = ?, sum = ? WHERE key = ?", rows)
        self._add_field_names(entries)

    def delete(self, keys: Sequence[int]) -> None:
        """Deletes candidates; their rows stay in the shards until these are merged."""
        version = self.version + 1
        self.database.executemany("DELETE FROM candidates WHERE key = ?", [[key] for key in keys])
        self.database.executemany("INSERT INTO gone VALUES (?, ?)", [[key, version] for key in keys])
        self.database.execute(COUNT, [-len(keys)])

    def replace_shards(self, old: Sequence[ShardRecord], new: Sequence[ShardRecord]) -> None:
        """Lists new shards in the place of old ones; the new ones hold no deleted rows."""
        ranges = [(record.first, record.last) for record in old]
        self.database.executemany("DELETE FROM gone WHERE key BETWEEN ? AND ?", ranges)
        self.database.executemany("DELETE FROM shards WHERE name = ?", [[record.name] for record in old])
        self.database.executemany("INSERT INTO shards VALUES (?, ?, ?, ?, ?, ?)", map(astuple, new))

    def _add_field_names(self, entries: Sequence[Entry]) -> None:
        names = {name for entry in entries if entry.fields for name in json.loads(entry.fields)}
        self.database.executemany("INSERT OR IGNORE INTO fields VALUES (?)", [[name] for name in sorted(names)])


class CatalogPerThread:
    """Gives every thread its own `Catalog`, since SQLite's transactions belong to a connection."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._catalogs: dict[threading.Thread, Catalog] = {}
        self._lock = threading.Lock()

    def current(self) -> Catalog:
        """Catalog of the current thread, opened again if its file has changed unseen."""
        thread = threading.current_thread()
        catalog = self._catalogs.get(thread)
        if catalog is None or catalog.outdated():
            self.close()
            catalog = Catalog(self.folder)
            with self._lock:
                self._catalogs[thread] = catalog
        return catalog

    def close(self) -> None:
        """Closes the catalog of the current thread, and those of threads that have ended."""
        current = threading.current_thread()
        with self._lock:
            for thread in [thread for thread in self._catalogs if thread is current or not thread.is_alive()]:
                self._catalogs.pop(thread).close()


def _storable(value: Any) -> bool:
    """Returns True if SQLite can hold a value; any other value is not in the catalog."""
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return isinstance(value, str) and not any("\ud800" <= character <= "\udfff" for character in value)
