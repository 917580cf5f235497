"""Counts, sizes and health of an index."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twofold.errors import TwofoldError
from twofold.index.catalog import Catalog
from twofold.index.quantized import Rows
from twofold.index.shards import SHARD_FOLDER, MissingShardError, Shard

ENGINES = {False: "exact search by 8-bit bounds", True: "exact search by a scan"}
"""Names of the searches, by whether several vectors are kept of a candidate."""


def info(folder: Path, catalog: Catalog, computing: Mapping[str, str], check: bool) -> dict[str, Any]:
    """Returns counts, sizes, fingerprint and health; with `check` every byte is read.

    computing: precision and runtime of the index
    """
    with catalog.read_transaction():
        records, version, deleted = catalog.shards(), catalog.version, catalog.deleted_since(-1)
        size, split = sum(record.size for record in records), catalog.metadata("split")
        about: dict[str, Any] = {
            "candidates": catalog.count(),
            "model": catalog.metadata("model"),
            "decoder": catalog.metadata("decoder"),
            "fingerprint": catalog.metadata("fingerprint"),
            **computing,
            "engine": ENGINES[False],
            "format": int(catalog.metadata("format") or 0),
            "state": catalog.metadata("state"),
            "width": None,
            "stored": catalog.metadata("stored"),
            "fields": sorted(catalog.fields()),
            "shards": len(records),
            "vectors": 0,
            "removed": len(deleted),
            "bytes": {"shards": size, "texts": catalog.path.stat().st_size},
            "bytes_per_candidate": round(size / (catalog.count() + len(deleted))) if records else None,
            "health": "good",
        }
    about |= {"split": split, "documents": about["candidates"], "passages": 0} if split else {}
    try:
        for record in records:
            _add_shard(about, Shard(folder / SHARD_FOLDER, record), deleted, check)
        if check:
            catalog.check()
    except TwofoldError as error:
        if isinstance(error, MissingShardError) and catalog.version != version:  # shards were merged meanwhile
            return info(folder, catalog, computing, check)
        about["health"] = str(error)
    return about


def _add_shard(about: dict[str, Any], shard: Shard, deleted: Rows, check: bool) -> None:
    """Adds the numbers of a shard to those of the index."""
    count, about["width"] = shard.shape
    about["vectors"] += count
    if "passages" in about:
        about["passages"] += len(shard) - len(shard.rows_of(deleted))
    about["engine"] = ENGINES[shard.places is not None]
    if check:
        shard.check()
