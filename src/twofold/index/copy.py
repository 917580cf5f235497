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
"""How often the list of shards is read again because shards were merged meanwhile."""
PIECE = 1 << 20
"""Bytes that are copied at a time."""


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
        files = _copy_catalog(catalog, source / SHARD_FOLDER, aside / CATALOG_FILE, stack)
        with bar("copying", sum(record.size for record, _ in files), show=show) as report:
            done = 0
            for record, file in files:
                _copy_shard(file, source / SHARD_FOLDER / record.name, aside / SHARD_FOLDER / record.name, record)
                done += record.size
                report(done)
        return _finish(aside)


def _copy_catalog(
    catalog: Catalog, shards: Path, target: Path, stack: contextlib.ExitStack
) -> list[tuple[ShardRecord, IO[bytes]]]:
    """Copy the catalog, and open all shards that it lists: a file that is open can be read to its end."""
    for attempt in range(TRIES):
        with catalog.read_transaction():
            opened = contextlib.ExitStack()
            try:
                files: list[tuple[ShardRecord, IO[bytes]]] = [
                    (record, opened.enter_context((shards / record.name).open("rb"))) for record in catalog.shards()
                ]
            except FileNotFoundError as error:
                opened.close()
                if attempt == TRIES - 1:
                    raise TwofoldError(f"{error.filename}: this part of the index is missing; {REMEDY}") from None
                continue
            stack.push(opened)
            catalog.count()  # an error about the candidates names this catalog, and not its copy
            with contextlib.closing(sqlite3.connect(target, isolation_level=None)) as database:
                catalog.database.backup(database)
            return files
    raise AssertionError


def _copy_shard(file: IO[bytes], source: Path, target: Path, record: ShardRecord) -> None:
    with target.open("wb") as opened:
        copy = SummedFile(opened)
        while piece := file.read(PIECE):
            copy.write(piece)
    if (copy.size, copy.checksums()) != (record.size, record.sums):
        raise TwofoldError(f"{source}: damaged; {REMEDY}")


def _finish(folder: Path) -> int:
    """Bring the copied catalog into one file, and record its version; returns how many candidates it holds."""
    with contextlib.closing(sqlite3.connect(folder / CATALOG_FILE, isolation_level=None)) as database:
        database.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    create_version(folder)
    with contextlib.closing(Catalog(folder)) as copy:
        copy.checkpoint()
        return copy.count()
