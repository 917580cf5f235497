"""The index's book: an SQLite file with the candidates' ids, texts and fields, the list of shards, and what is gone."""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import warnings
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from twofold.errors import TwofoldError
from twofold.index import database as sqlite
from twofold.index.bounds import Floats, Rows
from twofold.index.filters import Condition
from twofold.index.shard import REMEDY, ShardRecord
from twofold.index.version import VERSION, check_version, create_version, write_version

FORMAT = 1
FILE, SHARDS, LOCK = "index.sqlite", "shards", ".lock"
WAIT = 60.0
"""Seconds to wait for another process that is writing."""
BUILDING, READY = "building", "ready"
ASKED = 500
"""Ids or keys in one question."""
TABLES = """
CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE candidates (
    key INTEGER PRIMARY KEY, id NOT NULL UNIQUE, text TEXT NOT NULL, fields TEXT, sum INTEGER NOT NULL
);
CREATE TABLE fields (name TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE shards (
    name TEXT PRIMARY KEY, first INTEGER NOT NULL, last INTEGER NOT NULL, rows INTEGER NOT NULL, size INTEGER NOT NULL,
    sums BLOB NOT NULL
);
CREATE TABLE directions (row INTEGER PRIMARY KEY, vector BLOB NOT NULL, sum INTEGER NOT NULL);
CREATE TABLE gone (key INTEGER PRIMARY KEY, version INTEGER NOT NULL);
"""


@dataclass(frozen=True)
class Entry:
    """A candidate as it stands in the book."""

    key: int
    id: Any
    text: str
    fields: str | None
    """As JSON."""

    @property
    def sum(self) -> int:
        return zlib.crc32(json.dumps([self.key, self.id, self.text, self.fields], default=repr).encode())


def _can_be_kept(value: Any) -> bool:
    """Whether SQLite could hold it; what it cannot hold is not there."""
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return isinstance(value, str) and not any("\ud800" <= one <= "\udfff" for one in value)


SEALED = (
    "SELECT name, value FROM about WHERE name != 'seal' ORDER BY name",
    "SELECT name, first, last, rows, size, hex(sums) FROM shards ORDER BY name",
    "SELECT key, version FROM gone ORDER BY key",
    "SELECT name FROM fields ORDER BY name",
    "SELECT row, sum FROM directions ORDER BY row",
)


def seal(database: sqlite3.Connection) -> int:
    """A checksum of the small tables: a row that is missing or another gives wrong answers."""
    found = 0
    for question in SEALED:
        for row in database.execute(question):
            found = zlib.crc32(repr(row).encode("utf-8", "surrogatepass"), found)
    return found


class Book:
    """One connection to the file; every thread has its own."""

    def __init__(self, folder: Path, anyway: bool = False) -> None:
        """anyway: open it even if changes are on record that it does not hold"""
        self.path = folder / FILE
        if not os.path.exists(self.path):
            raise TwofoldError(f"{folder}: holds no index ({FILE} is missing); make one with `twofold index build`")
        with self.clear_errors():
            self._connection = sqlite.connect(self.path, WAIT)
        self.database = self._connection.database
        try:
            self._check(folder, anyway)
        except BaseException:
            self.database.close()
            raise

    def _check(self, folder: Path, anyway: bool) -> None:
        """Refuse another format, a damaged table, and a file that lacks changes."""
        with self.clear_errors():
            written = self.about("format")
        if written != str(FORMAT):
            raise TwofoldError(f"{folder}: an index of format {written}, this version reads {FORMAT}; build it anew")
        with self.reading():
            self.check_seal()
        if not anyway:
            check_version(folder, lambda: self.version)

    @classmethod
    def create(cls, folder: Path, about: dict[str, str]) -> None:
        """An empty book; it appears whole or not at all."""
        aside = folder / f".{FILE}.new"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            aside.unlink(missing_ok=True)
            database = sqlite3.connect(aside, isolation_level=None)
            database.executescript(TABLES)
            values = {"format": str(FORMAT), "version": "0", **about}
            database.executemany("INSERT INTO about VALUES (?, ?)", values.items())
            database.execute("INSERT INTO about VALUES ('seal', ?)", [str(seal(database))])
            database.execute("PRAGMA journal_mode = WAL")
            database.close()
            create_version(folder, 0)
            aside.replace(folder / FILE)
        except (sqlite3.Error, OSError) as error:
            raise TwofoldError(f"{folder}: could not be written ({error})") from None

    def clear_errors(self) -> contextlib.AbstractContextManager[None]:
        """Turn what SQLite says into one line."""
        return sqlite.clear_errors(self.path)

    def outdated(self) -> bool:
        """Whether it must be opened again to see what has changed."""
        return self._connection.outdated(self.path)

    def close(self) -> None:
        with self.clear_errors():
            self.database.close()

    def settle(self) -> None:
        """Bring what has changed from the write-ahead log into the main file, durably, and record its version."""
        if not self._connection.writable:
            return
        with self.clear_errors():
            sqlite.checkpoint(self.database, self.path)
            version = self.version
        try:
            write_version(self.path.parent, version)
        except OSError as error:
            warnings.warn(
                f"{self.path.parent / VERSION}: could not be written ({error}); the change itself is done", stacklevel=2
            )

    def check_seal(self) -> None:
        """Whether all but the candidates, which have checksums of their own, is what was written."""
        if self.about("seal") != str(seal(self.database)):
            raise TwofoldError(f"{self.path}: damaged, not what was written; {REMEDY}")

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """All that is read inside belongs to one moment."""
        with self.clear_errors():
            self.database.execute("BEGIN")
            try:
                yield
            finally:
                self.database.execute("COMMIT")

    @contextlib.contextmanager
    def changing(self) -> Iterator[None]:
        """All changes inside happen, or none; `settle` puts them on the disk."""
        if not self._connection.writable:
            sqlite.refuse_writing(self.path.parent)
        with self.clear_errors():
            self.database.execute("BEGIN IMMEDIATE")
            try:
                yield
                self.database.execute("UPDATE about SET value = value + 1 WHERE name = 'version'")
                self.set_about("seal", str(seal(self.database)))
                self.database.execute("COMMIT")
            except BaseException:
                if self.database.in_transaction:
                    self.database.execute("ROLLBACK")
                raise

    # --- what is there ---

    def _rows(self, question: str, values: Sequence[Any] = ()) -> list[Any]:
        with self.clear_errors():
            return self.database.execute(question, values).fetchall()

    def about(self, name: str) -> str | None:
        rows = self._rows("SELECT value FROM about WHERE name = ?", [name])
        return str(rows[0][0]) if rows else None

    @property
    def version(self) -> int:
        return int(self.about("version") or 0)

    def count(self) -> int:
        return int(self._rows("SELECT count(*) FROM candidates")[0][0])

    def largest_number(self) -> int:
        """The largest id that is a number; -1 where none is."""
        [[largest]] = self._rows("SELECT max(id) FROM candidates WHERE typeof(id) = 'integer'")
        return -1 if largest is None else int(largest)

    def shards(self) -> list[ShardRecord]:
        return [
            ShardRecord(*row)
            for row in self._rows("SELECT name, first, last, rows, size, sums FROM shards ORDER BY first")
        ]

    def gone_since(self, version: int) -> Rows:
        """Keys that stand in shards and are no candidates any more."""
        rows = self._rows("SELECT key FROM gone WHERE version > ?", [version])
        return np.array([row[0] for row in rows], np.int64)

    def directions(self) -> Floats | None:
        """Those of the candidates' heads; none where nothing was ever stored."""
        rows = self._rows("SELECT vector, sum FROM directions ORDER BY row")
        if any(zlib.crc32(vector) != sum for vector, sum in rows):
            raise TwofoldError(f"{self.path}: damaged, the directions are not what was written; {REMEDY}")
        return np.stack([np.frombuffer(vector, np.float32) for vector, _ in rows]) if rows else None

    def entries(self, keys: Sequence[int]) -> dict[int, Entry]:
        """By key; each is compared with its checksum."""
        found = {entry.key: entry for entry in self._entries("key", keys)}
        if len(found) < len(set(keys)):
            raise TwofoldError(f"{self.path}: damaged, a candidate of a shard is missing; {REMEDY}")
        return found

    def check_model(self, fingerprint: str, name: object) -> None:
        """Vectors of two models do not mix."""
        if self.about("fingerprint") != fingerprint:
            raise TwofoldError(
                f"{self.path.parent}: built with another model ({self.about('model')}) than {name}, or its weights, "
                "tokenizer or settings have changed; give the same model, or build the index anew"
            )

    def check_ready(self) -> None:
        """Whether it was built to its end."""
        if self.about("state") != READY:
            raise TwofoldError(f"{self.path.parent}: not built to its end; run `twofold index build` again to go on")

    def entries_of(self, ids: Sequence[Any]) -> dict[Any, Entry]:
        """By id; ids that are not there are left out."""
        return {entry.id: entry for entry in self._entries("id", ids)}

    def keys_of(self, condition: Condition) -> Rows:
        """Candidates that pass a filter."""
        question = f"SELECT key FROM candidates WHERE {condition.sql}"  # noqa: S608 - whatever was given is a parameter
        rows = self._rows(question, condition.values)
        return np.array([row[0] for row in rows], np.int64)

    def check_candidates(self) -> None:
        """Whether every candidate is what was written, and none is missing."""
        rows = self.database.execute("SELECT key, id, text, fields, sum FROM candidates NOT INDEXED")
        count = sum(Entry(*row[:4]).sum == row[4] for row in rows)
        if count != sum(one.rows for one in self.shards()) - len(self.gone_since(-1)):
            raise TwofoldError(f"{self.path}: damaged, not all candidates are what was written; {REMEDY}")

    def fields(self) -> set[str]:
        return {row[0] for row in self._rows("SELECT name FROM fields")}

    def check(self) -> None:
        """Read everything and compare it with its checksums."""
        with self.reading():
            if self.database.execute("PRAGMA integrity_check").fetchone()[0] != "ok":
                raise TwofoldError(f"{self.path}: damaged; {REMEDY}")
            self.check_seal()
            self.check_candidates()

    # --- changes ---

    def set_about(self, name: str, value: str) -> None:
        self.database.execute("INSERT OR REPLACE INTO about VALUES (?, ?)", [name, value])

    def set_directions(self, directions: Floats) -> None:
        self.database.execute("DELETE FROM directions")
        rows = [(number, one.tobytes(), zlib.crc32(one.tobytes())) for number, one in enumerate(directions)]
        self.database.executemany("INSERT INTO directions VALUES (?, ?, ?)", rows)

    def insert(self, entries: Sequence[Entry]) -> None:
        rows = [(one.key, one.id, one.text, one.fields, one.sum) for one in entries]
        self.database.executemany("INSERT INTO candidates VALUES (?, ?, ?, ?, ?)", rows)
        self._note_fields(one.fields for one in entries)
        if entries:
            self.set_about("next_key", str(entries[-1].key + 1))

    def rewrite(self, entries: Sequence[Entry]) -> None:
        """Other fields for candidates whose texts stay."""
        rows = [(one.fields, one.sum, one.key) for one in entries]
        self.database.executemany("UPDATE candidates SET fields = ?, sum = ? WHERE key = ?", rows)
        self._note_fields(one.fields for one in entries)

    def drop(self, keys: Sequence[int]) -> None:
        """They are candidates no more, and stand in their shards until these are joined."""
        version = self.version + 1
        self.database.executemany("DELETE FROM candidates WHERE key = ?", [[key] for key in keys])
        self.database.executemany("INSERT INTO gone VALUES (?, ?)", [[key, version] for key in keys])

    def replace_shards(self, old: Sequence[ShardRecord], new: Sequence[ShardRecord]) -> None:
        """Other files in the place of some; what is gone stands in none of them."""
        self.database.executemany("DELETE FROM gone WHERE key BETWEEN ? AND ?", [(one.first, one.last) for one in old])
        self.database.executemany("DELETE FROM shards WHERE name = ?", [[one.name] for one in old])
        rows = [(one.name, one.first, one.last, one.rows, one.size, one.sums) for one in new]
        self.database.executemany("INSERT INTO shards VALUES (?, ?, ?, ?, ?, ?)", rows)

    def _note_fields(self, written: Iterable[str | None]) -> None:
        names = {name for one in written if one for name in json.loads(one)}
        self.database.executemany("INSERT OR IGNORE INTO fields VALUES (?)", [[name] for name in sorted(names)])

    def _entries(self, column: str, values: Sequence[Any]) -> Iterator[Entry]:
        values = [one for one in values if _can_be_kept(one)]
        for start in range(0, len(values), ASKED):
            some = values[start : start + ASKED]
            marks = ", ".join("?" * len(some))
            question = f"SELECT key, id, text, fields, sum FROM candidates WHERE {column} IN ({marks})"  # noqa: S608
            for row in self._rows(question, some):
                entry = Entry(*row[:4])
                if entry.sum != row[4]:
                    raise TwofoldError(
                        f"{self.path}: damaged, candidate {entry.id!r} is not what was written; {REMEDY}"
                    )
                yield entry
