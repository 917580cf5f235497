"""Builds an index from texts; a build that was cut short goes on where it stood."""

from __future__ import annotations

import os
from pathlib import Path

from twofold.data.candidates import Texts
from twofold.errors import TwofoldError
from twofold.index.catalog import BUILDING, READY
from twofold.index.catalog_tables import CATALOG_FILE, create_catalog
from twofold.index.incoming_candidates import check_candidates, source_of
from twofold.index.version_record import VERSION_FILE
from twofold.index.writer import LOCK_FILE, Writer
from twofold.model.ranker import Ranker
from twofold.storage.locks import held

STORED = ("float32", "float16")


def build_index(folder: Path, model: Ranker, name: str, texts: Texts, stored: str, show: bool) -> None:
    """Build an index, or go on with a build that was cut short: texts that count already are not read again."""
    if model.joined:
        raise TwofoldError("a cross-encoder keeps nothing of a candidate; build with a bi- or poly-encoder")
    if stored not in STORED:
        raise TwofoldError(f"stored: there is no {stored!r}; give {' or '.join(STORED)}")
    source, fingerprint = source_of(texts), model.fingerprint()
    total = check_candidates(texts, 0)  # first: what cannot be stored leaves nothing behind
    _check_folder(folder)
    with held(folder / LOCK_FILE, "building an index"):
        if not os.path.exists(folder / CATALOG_FILE):
            settings = {"model": name, "fingerprint": fingerprint, "stored": stored, "source": source}
            create_catalog(folder, {**settings, "state": BUILDING, "next_key": "1"})
        writer = Writer(folder, model)
        catalog = writer.catalog
        with writer.session():
            catalog.check_model(fingerprint, name)
            if catalog.metadata("state") == READY:
                raise TwofoldError(
                    f"{folder}: there is an index already; change it with `twofold index add`, or remove it"
                )
            if (catalog.metadata("source"), catalog.metadata("stored")) != (source, stored):
                raise TwofoldError(f"{folder}: was begun with other texts or settings; remove it and build anew")
            writer.write(texts, 0, total, show)
            writer.shards.merge_all()
            with catalog.write_transaction():
                catalog.set_metadata("state", READY)


def _check_folder(folder: Path) -> None:
    """Refuse to build among files that belong to something else."""
    if os.path.exists(folder / CATALOG_FILE) or not os.path.exists(folder):
        return
    if not folder.is_dir() or any(path.name[0] != "." and path.name != VERSION_FILE for path in folder.iterdir()):
        raise TwofoldError(f"{folder}: holds something that is no index; give another folder")
