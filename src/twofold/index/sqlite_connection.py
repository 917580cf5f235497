"""Connections to an index's SQLite file: read-only where nothing can be written, every error as one line."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from twofold.errors import TwofoldError
from twofold.index.shard import REMEDY

CHECKPOINT_WAIT = 0.1
"""Seconds that a checkpoint waits for searches that still read an older state."""
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
class Connection:
    """A connection to an index's file."""

    database: sqlite3.Connection
    writable: bool
    immutable: tuple[int, int] | None
    """The file's size and time of change, if SQLite takes the file for one that never changes."""

    def outdated(self, path: Path) -> bool:
        """Whether the file has changed although SQLite takes it for immutable."""
        return self.immutable is not None and self.immutable != _size_and_time(path)


@contextlib.contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into one line, with the remedy of that error."""
    try:
        yield
    except sqlite3.Error as error:
        name = _error_name(error)
        remedy = next((text for start, text in REMEDIES.items() if name.startswith(start)), None)
        default = "open the index again" if isinstance(error, sqlite3.ProgrammingError) else REMEDY
        raise TwofoldError(f"{path}: {' '.join(str(error).split())}; {remedy or default}") from error


def connect(path: Path, timeout: float) -> Connection:
    """Open a connection that can write, or one that can only read where the disk is read-only or full.

    SQLite writes beside a file that has a write-ahead log even to read it; if the log is empty, it need not.
    """
    modes = ["mode=rw", "mode=ro"]
    if not _size(log_of(path)):
        modes.append("mode=ro&immutable=1")
    failure: sqlite3.Error | None = None
    for mode in modes:
        immutable = _size_and_time(path) if "immutable" in mode else None
        database = sqlite3.connect(
            f"file:{quote(str(path.absolute()))}?{mode}",
            uri=True,
            timeout=timeout,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            # `checkpoint` syncs what is committed, before it is acknowledged.
            database.execute("PRAGMA synchronous = NORMAL")
            database.execute("SELECT count(*) FROM sqlite_master").fetchone()
        except sqlite3.Error as error:
            database.close()
            failure = failure or error
            if not _error_name(error).startswith(UNWRITABLE):
                raise
        else:
            return Connection(database, mode == "mode=rw", immutable)
    assert failure is not None
    if len(modes) == 2:
        raise TwofoldError(
            f"{log_of(path)}: holds changes that cannot be read here, since nothing can be written beside it "
            f"({failure}); the index is whole: open it once where its folder can be written"
        )
    raise failure


def refuse_writing(folder: Path) -> None:
    """Say why an index that is open only for reading cannot be changed."""
    disk = os.statvfs(folder)
    if disk.f_flag & os.ST_RDONLY:
        reason = "the disk is read-only; change it where it can be written"
    elif not disk.f_bavail:
        reason = "the disk is full; free some space and run again"
    else:
        reason = "its folder may not be written to; look whose it is"
    raise TwofoldError(f"{folder}: can be searched but not changed: {reason}")


def checkpoint(database: sqlite3.Connection, path: Path) -> None:
    """Sync all that is committed: into the main file or, while others still search, at least into the log."""
    [[timeout]] = database.execute("PRAGMA busy_timeout").fetchall()
    database.execute(f"PRAGMA busy_timeout = {round(CHECKPOINT_WAIT * 1000)}")
    try:
        busy, *_ = database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.OperationalError:  # a full disk: what is committed stays in the log
        busy = True
    finally:
        database.execute(f"PRAGMA busy_timeout = {timeout}")
    if busy and _size(log_of(path)):
        with log_of(path).open("rb") as log:
            os.fsync(log.fileno())


def log_of(path: Path) -> Path:
    """The write-ahead log of a database file."""
    return path.with_name(f"{path.name}-wal")


def _size_and_time(path: Path) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns


def _size(path: Path) -> int:
    return os.stat(path).st_size if os.path.exists(path) else 0


def _error_name(error: sqlite3.Error) -> str:
    return str(getattr(error, "sqlite_errorname", ""))
