"""The shard files of an index: written, merged into larger ones, and removed when the catalog lists them no more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from twofold import storage
from twofold.index.catalog import Catalog
from twofold.index.quantized import Floats, principal_directions
from twofold.index.shard import SHARD_FOLDER, Shard, ShardRecord
from twofold.index.shard_writer import KeptRows, NewRows, write_shard

MERGE_FACTOR = 8
"""So many neighboring shards of similar size are merged into one."""
SMALL_SHARD, FULL_SHARD = 512, 1 << 20
"""Rows up to which shards are of similar size, and rows of a full shard."""
SAMPLE_SIZE = 8192
"""Vectors from which the directions of the projections are learned."""


class ShardFiles:
    """Writes, merges and removes shards, as the one process that may change the index."""

    def __init__(self, folder: Path, catalog: Catalog) -> None:
        self.folder, self.catalog = folder / SHARD_FOLDER, catalog
        self.merged = False
        """Whether the files of merged shards are still there: they go when the new list is on the disk."""

    def write(self, sources: Sequence[NewRows | KeptRows], number: int = 0) -> ShardRecord:
        """Write one shard, which counts when the catalog lists it; several at once differ in their numbers."""
        # The catalog has never had this version, so nobody reads a shard of this name.
        name = f"{self.catalog.version + 1:010d}-{number:04d}.safetensors"
        return write_shard(self.folder, name, sources, str(self.catalog.metadata("stored")))

    def merge_small(self) -> None:
        """Merge neighbors of similar size, so that there are never many shards; each row moves a few times in all."""
        while True:
            last = self.catalog.shards()[-MERGE_FACTOR:]
            sizes = [max(record.rows, SMALL_SHARD) for record in last]
            if len(last) < MERGE_FACTOR or max(sizes) > MERGE_FACTOR * min(sizes) or sum(sizes) > FULL_SHARD:
                return
            self._merge(last, self._kept(last))

    def merge_all(self) -> None:
        """Merge all shards into as few as possible, with projections in directions that are learned from all rows."""
        records = self.catalog.shards()
        kept, directions = self._kept(records), None
        if kept:
            step = max(1, sum(map(len, kept)) // SAMPLE_SIZE)
            sample = np.concatenate([source.shard.vectors(source.rows[::step]) for source in kept])
            directions = principal_directions(sample)
            kept = [replace(source, directions=directions) for source in kept]
        self._merge(records, kept, directions)

    def remove_unlisted(self) -> None:
        """Remove files that the catalog does not list."""
        listed = {record.name for record in self.catalog.shards()}
        with storage.writing(self.folder):
            for path in self.folder.glob("*") if self.folder.exists() else ():
                if path.name not in listed:
                    path.unlink()

    def _kept(self, records: Sequence[ShardRecord]) -> list[KeptRows]:
        """The rows of some shards that are not deleted."""
        deleted = self.catalog.deleted_since(-1)
        shards = [Shard(self.folder, record) for record in records]
        kept = [KeptRows(shard, np.delete(np.arange(len(shard)), shard.rows_of(deleted))) for shard in shards]
        return [source for source in kept if len(source)]

    def _merge(self, old: Sequence[ShardRecord], kept: Sequence[KeptRows], directions: Floats | None = None) -> None:
        """Replace shards by new ones with the kept rows; `directions` are new ones of all projections."""
        groups: list[list[KeptRows]] = []
        for source in kept:
            if groups and sum(map(len, groups[-1])) + len(source) <= FULL_SHARD:
                groups[-1].append(source)
            else:
                groups.append([source])
        new = [self.write(group, number) for number, group in enumerate(groups)]
        self.merged = True
        with self.catalog.write_transaction():
            self.catalog.replace_shards(old, new)
            if directions is not None:
                self.catalog.set_directions(directions)
