"""The version of the last acknowledged change, recorded outside the database, so that a lost change is noticed."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from pathlib import Path

from twofold import storage
from twofold.errors import TwofoldError

VERSION_FILE = "version"
_REMEDY = "restore the folder from a copy, or keep what is left: `twofold index copy INDEX NEW --anyway`"


def create_version(folder: Path) -> None:
    """Create the record of an index without changes, whole or not at all."""
    storage.write_bytes(folder / VERSION_FILE, _record(0))


def write_version(folder: Path, version: int) -> None:
    """Record a change with one write in place: a kill cannot cut it in two, and a full disk has room for it."""
    handle = os.open(folder / VERSION_FILE, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        os.pwrite(handle, _record(version), 0)
    finally:
        os.close(handle)


def check_version(folder: Path, current: Callable[[], int]) -> None:
    """Refuse a database that is older than the record.

    It may be newer: a writer was killed, or is about to write the record. So the record is read first.
    """
    path = folder / VERSION_FILE
    try:
        content = path.read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        raise TwofoldError(
            f"{path}: cannot be read ({reason}), so lost changes would go unnoticed; {_REMEDY}"
        ) from None
    try:
        recorded = int(content.split()[0])
    except (IndexError, ValueError):
        recorded = -1
    if recorded < 0 or content != _record(recorded):
        raise TwofoldError(f"{path}: damaged, so lost changes would go unnoticed; {_REMEDY}")
    version = current()
    if version < recorded:
        raise TwofoldError(
            f"{folder}: lacks {recorded - version} of its last changes (version {recorded} is on record, the files "
            f"hold {version}): a file was lost, damaged or replaced by an older one, perhaps index.sqlite-wal; "
            f"{_REMEDY}"
        )


def _record(version: int) -> bytes:
    """Content of the record, of the same length for every version, so that it can be replaced in place."""
    digits = f"{version:020d}".encode()
    return b"%b %08x\n" % (digits, zlib.crc32(digits))
