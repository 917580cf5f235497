"""The tables of an index's catalog, an SQLite file: their columns, their checksums, and how the file is created."""

from __future__ import annotations

import json
import sqlite3
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twofold.errors import TwofoldError
from twofold.index.version_record import create_version

FORMAT = 1
CATALOG_FILE = "index.sqlite"
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
SMALL_TABLES = (
    "SELECT name, value FROM about WHERE name != 'seal' ORDER BY name",
    "SELECT name, first, last, rows, size, hex(sums) FROM shards ORDER BY name",
    "SELECT key, version FROM gone ORDER BY key",
    "SELECT name FROM fields ORDER BY name",
    "SELECT row, sum FROM directions ORDER BY row",
)


@dataclass(frozen=True)
class Entry:
    """A row of the table of candidates."""

    key: int
    id: Any
    text: str
    fields: str | None
    """As JSON."""

    @property
    def checksum(self) -> int:
        return zlib.crc32(json.dumps([self.key, self.id, self.text, self.fields], default=repr).encode())


def small_tables_checksum(database: sqlite3.Connection) -> int:
    """A checksum of all tables but the candidates: a row that is missing or changed gives wrong answers."""
    checksum = 0
    for query in SMALL_TABLES:
        for row in database.execute(query):
            checksum = zlib.crc32(repr(row).encode("utf-8", "surrogatepass"), checksum)
    return checksum


def create_catalog(folder: Path, metadata: dict[str, str]) -> None:
    """Create an empty catalog; the file appears whole or not at all."""
    aside = folder / f".{CATALOG_FILE}.new"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        aside.unlink(missing_ok=True)
        database = sqlite3.connect(aside, isolation_level=None)
        database.executescript(TABLES)
        values = {"format": str(FORMAT), "version": "0", **metadata}
        database.executemany("INSERT INTO about VALUES (?, ?)", values.items())
        database.execute("INSERT INTO about VALUES ('seal', ?)", [str(small_tables_checksum(database))])
        database.execute("PRAGMA journal_mode = WAL")
        database.close()
        create_version(folder)
        aside.replace(folder / CATALOG_FILE)
    except (sqlite3.Error, OSError) as error:
        raise TwofoldError(f"{folder}: could not be written ({error})") from None
