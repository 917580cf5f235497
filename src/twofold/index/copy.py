"""Copies an index as it is at one moment, while others search and change it."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from pathlib import Path
from typing import IO

from twofold import storage
from twofold.errors import TwofoldError
from twofold.index.catalog import Catalog
from twofold.index.catalog_tables import CATALOG_FILE
from twofold.index.shard import REMEDY, SHARD_FOLDER, ShardRecord
from twofold.index.version_record import create_version
from twofold.progress import bar
from twofold.storage.checksums import SummedFile

TRIES = 100
"""How often the list of shards is read again because one was joined with others meanwhile."""
PIECE = 1 << 20


def copy_index(source: Path, target: Path, anyway: bool = False, show: bool = False) -> int:
    """Copy the index in `source` to a new folder; returns how many candidates it holds.

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
        records, files = _moment(catalog, source / SHARD_FOLDER, aside / CATALOG_FILE, stack)
        with bar("copying", sum(record.size for record in records), show=show) as report:
            done = 0
            for record, file in zip(records, files, strict=True):
                _copy_shard(file, source / SHARD_FOLDER / record.name, aside / SHARD_FOLDER / record.name, record)
                done += record.size
                report(done)
        return _finish(aside)


def _moment(
    catalog: Catalog, shards: Path, copy: Path, stack: contextlib.ExitStack
) -> tuple[list[ShardRecord], list[IO[bytes]]]:
    """Copy the database, and open all files that it lists: a file that is open can be read to its end."""
    for attempt in range(TRIES):
        with catalog.read_transaction():
            records = catalog.shards()
            opened = contextlib.ExitStack()
            try:
                files: list[IO[bytes]] = [opened.enter_context((shards / record.name).open("rb")) for record in records]
            except FileNotFoundError as error:
                opened.close()
                if attempt == TRIES - 1:
                    raise TwofoldError(f"{error.filename}: this part of the index is missing; {REMEDY}") from None
                continue
            stack.push(opened)
            catalog.count()  # a database without candidates is named here, and not its copy
            with contextlib.closing(sqlite3.connect(copy, isolation_level=None)) as target:
                catalog.database.backup(target)
            return records, files
    raise AssertionError


def _copy_shard(file: IO[bytes], source: Path, target: Path, record: ShardRecord) -> None:
    with target.open("wb") as opened:
        copy = SummedFile(opened)
        while piece := file.read(PIECE):
            copy.write(piece)
    if (copy.size, copy.checksums()) != (record.size, record.sums):
        raise TwofoldError(f"{source}: damaged; {REMEDY}")


def _finish(folder: Path) -> int:
    """Bring the copy into one file, and record its version."""
    with contextlib.closing(sqlite3.connect(folder / CATALOG_FILE, isolation_level=None)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    create_version(folder)
    copy = Catalog(folder)
    try:
        copy.checkpoint()
        return copy.count()
    finally:
        copy.close()
