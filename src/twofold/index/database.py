"""SQLite file of an index: its tables, connections that report an error in one line, and the record of its version.

The version of the last acknowledged change is recorded in a file beside the database, so that a lost change is noticed.
"""

from __future__ import annotations

import contextlib
import json
import os
import sqlite3
import warnings
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from twofold import storage
from twofold.errors import TwofoldError

FORMAT = 1
CATALOG_FILE, VERSION_FILE = "index.sqlite", "version"
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
CHECKPOINT_WAIT = 0.1
"""Seconds that a checkpoint waits for searches that still read an older state."""
REMEDY = "copy the index again, or build it anew"
RESTORE = "restore the folder from a copy, or keep what is left: `twofold index copy INDEX NEW --anyway`"
UNWRITABLE = ("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_FULL", "SQLITE_IOERR")
REMEDIES = {
    "SQLITE_FULL": "free some space and run again",
    "SQLITE_READONLY": "the folder can only be read: search it, or change it where it can be written",
    "SQLITE_CANTOPEN": "look whether the folder is there and may be read and written",
    "SQLITE_BUSY": "another process keeps it locked; try again later",
    "SQLITE_IOERR": "the disk did not do what was asked; look whether it is full or failing, and run again",
    "SQLITE_NOMEM": "there is not enough memory; free some and run again",
    "SQLITE_CORRUPT": REMEDY,
    "SQLITE_NOTADB": REMEDY,
}


@dataclass(frozen=True)
class Entry:
    """Row of the table of candidates."""

    key: int
    id: Any
    text: str
    fields: str | None
    """JSON of the fields."""

    @property
    def checksum(self) -> int:
        return zlib.crc32(json.dumps([self.key, self.id, self.text, self.fields], default=repr).encode())


@dataclass(frozen=True)
class ShardRecord:
    """Row of the table of shards: enough to notice any change of a shard's file."""

    name: str
    first: int
    last: int
    """Largest key of the shard; `first` is the smallest."""
    rows: int
    size: int
    sums: bytes
    """CRC-32 of each block of the file."""


def small_tables_checksum(database: sqlite3.Connection) -> int:
    """Checksum of all tables but the candidates: a row that is missing or changed gives wrong answers."""
    checksum = 0
    for query in SMALL_TABLES:
        for row in database.execute(query):
            checksum = zlib.crc32(repr(row).encode("utf-8", "surrogatepass"), checksum)
    return checksum


def create_catalog(folder: Path, metadata: dict[str, str]) -> None:
    """Creates an empty catalog; the file appears whole or not at all."""
    aside = folder / f".{CATALOG_FILE}.new"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        aside.unlink(missing_ok=True)
        with contextlib.closing(sqlite3.connect(aside, isolation_level=None)) as database:
            database.executescript(TABLES)
            values = {"format": str(FORMAT), "version": "0", **metadata}
            database.executemany("INSERT INTO about VALUES (?, ?)", values.items())
            database.execute("INSERT INTO about VALUES ('seal', ?)", [str(small_tables_checksum(database))])
            database.execute("PRAGMA journal_mode = WAL")
        create_version(folder)
        aside.replace(folder / CATALOG_FILE)
    except (sqlite3.Error, OSError) as error:
        raise TwofoldError(f"{folder}: could not be written ({error})") from None


# --- connections ---


@dataclass(frozen=True)
class Connection:
    """Connection to an index's file."""

    database: sqlite3.Connection
    writable: bool
    immutable: tuple[int, int] | None
    """Size of the file and its time of change, if SQLite takes the file for one that never changes."""


@contextlib.contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Turns SQLite's errors into one line, with the remedy of that error."""
    try:
        yield
    except sqlite3.Error as error:
        name = _error_name(error)
        default = "open the index again" if isinstance(error, sqlite3.ProgrammingError) else REMEDY
        remedy = next((text for start, text in REMEDIES.items() if name.startswith(start)), default)
        raise TwofoldError(f"{path}: {' '.join(str(error).split())}; {remedy}") from error


def connect(path: Path, timeout: float) -> Connection:
    """Opens a connection that can write, or one that can only read where the disk is read-only or full.

    SQLite writes beside a file that has a write-ahead log even to read it; if the log is empty, it need not.
    """
    modes, log = ["mode=rw", "mode=ro"], log_of(path)
    if not os.path.exists(log) or not os.stat(log).st_size:
        modes.append("mode=ro&immutable=1")
    failures: list[sqlite3.Error] = []
    for mode in modes:
        immutable = size_and_time(path) if "immutable" in mode else None
        address = f"file:{quote(str(path.absolute()))}?{mode}"
        database = sqlite3.connect(address, timeout, isolation_level=None, check_same_thread=False, uri=True)
        try:
            # `checkpoint` syncs what is committed, before it is acknowledged.
            database.execute("PRAGMA synchronous = NORMAL")
            database.execute("SELECT count(*) FROM sqlite_master").fetchone()
            return Connection(database, mode == "mode=rw", immutable)
        except sqlite3.Error as error:
            database.close()
            failures.append(error)
            if not _error_name(error).startswith(UNWRITABLE):
                raise
    if len(modes) == 2:
        raise TwofoldError(
            f"{log}: holds changes that cannot be read here, since nothing can be written beside it "
            f"({failures[0]}); the index is whole: open it once where its folder can be written"
        )
    raise failures[0]


def refuse_writing(folder: Path) -> None:
    """Raises an error that tells why an index that is open only for reading cannot be changed."""
    disk = os.statvfs(folder)
    if disk.f_flag & os.ST_RDONLY:
        reason = "the disk is read-only; change it where it can be written"
    elif not disk.f_bavail:
        reason = "the disk is full; free some space and run again"
    else:
        reason = "its folder may not be written to; look whose it is"
    raise TwofoldError(f"{folder}: can be searched but not changed: {reason}")


def checkpoint(database: sqlite3.Connection, path: Path) -> None:
    """Syncs all that is committed: into the main file or, while others still search, at least into the log."""
    [[timeout]] = database.execute("PRAGMA busy_timeout").fetchall()
    database.execute(f"PRAGMA busy_timeout = {round(CHECKPOINT_WAIT * 1000)}")
    try:
        busy, *_ = database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.OperationalError:  # a full disk: what is committed stays in the log
        busy = True
    finally:
        database.execute(f"PRAGMA busy_timeout = {timeout}")
    if busy and os.path.exists(log_of(path)):
        with log_of(path).open("rb") as log:
            os.fsync(log.fileno())


def log_of(path: Path) -> Path:
    """Write-ahead log of a database file."""
    return path.with_name(f"{path.name}-wal")


def size_and_time(path: Path) -> tuple[int, int]:
    """Size of a file and its time of change."""
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns


def _error_name(error: sqlite3.Error) -> str:
    return str(getattr(error, "sqlite_errorname", ""))


# --- the record of the version ---


def create_version(folder: Path) -> None:
    """Creates the record of an index without changes, whole or not at all."""
    storage.write_bytes(folder / VERSION_FILE, _record(0))


def write_version(folder: Path, version: int) -> None:
    """Records a change with one write in place: a kill cannot cut it in two, and a full disk has room for it."""
    path = folder / VERSION_FILE
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o644), "wb", buffering=0) as file:
            file.write(_record(version))
    except OSError as error:
        warnings.warn(f"{path}: could not be written ({error}); the change itself is done", stacklevel=3)


def check_version(folder: Path, current: Callable[[], int]) -> None:
    """Refuses a database that is older than the record.

    It may be newer: a writer was killed, or is about to write the record. So the record is read first.
    """
    path, unnoticed = folder / VERSION_FILE, f"so lost changes would go unnoticed; {RESTORE}"
    try:
        content = path.read_bytes()
        recorded = int(content.split()[0])
    except OSError as error:
        raise TwofoldError(f"{path}: cannot be read ({error.strerror or error}), {unnoticed}") from None
    except (IndexError, ValueError):
        recorded = -1
    if recorded < 0 or content != _record(recorded):
        raise TwofoldError(f"{path}: damaged, {unnoticed}")
    version = current()
    if version < recorded:
        raise TwofoldError(
            f"{folder}: lacks {recorded - version} of its last changes (version {recorded} is on record, the files "
            f"hold {version}): a file was lost, damaged or replaced by an older one, perhaps index.sqlite-wal; "
            f"{RESTORE}"
        )


def _record(version: int) -> bytes:
    """Content of the record, of the same length for every version, so that it can be replaced in place."""
    digits = f"{version:020d}".encode()
    return b"%b %08x\n" % (digits, zlib.crc32(digits))
