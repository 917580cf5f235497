"""Changes an index, one process at a time: new shards beside the old, then one transaction that makes them count.

Candidates are checked first: what cannot be stored changes nothing. What was cut short goes on where it stood.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from twofold.data.candidates import Texts, is_file
from twofold.data.passages import Split
from twofold.errors import TwofoldError
from twofold.index.catalog import BUILDING, LOCK_WAIT, READY, Catalog
from twofold.index.database import CATALOG_FILE, VERSION_FILE, Entry, create_catalog
from twofold.index.encoding import StartWorkers, Wait, Workers, begin
from twofold.index.incoming import Incoming, Part, changes, fields_of, parts_of
from twofold.index.new_rows import NewRows
from twofold.index.quantized import Floats, Rows, principal_directions
from twofold.index.shards import ShardFiles
from twofold.progress import Report, bar
from twofold.storage.locks import held

if TYPE_CHECKING:
    from twofold.model.ranker import Ranker

LOCK_FILE = ".lock"
STORED = ("float32", "float16", "int8")


@dataclass(frozen=True)
class Change:
    """Candidates that are written at once."""

    part: Part
    replaced: Sequence[int] = ()
    """Keys of the candidates that these replace."""
    updated: Sequence[Entry] = ()
    """Candidates of which only the fields change."""
    before: int = 0
    """Number of texts that were read before."""
    encoded: Wait | None = None
    """Gives the vectors."""


def build_index(
    folder: Path,
    model: Ranker,
    name: str,
    texts: Texts,
    stored: str | None,
    split: Split | None,
    show: bool,
    start_workers: StartWorkers | None = None,
) -> None:
    """Builds an index, or continues a build that was cut short: texts that count already are not encoded again."""
    if model.joined:
        raise TwofoldError("a cross-encoder has no vectors of candidates; build with a bi- or poly-encoder")
    stored = _as_stored(stored, model)
    if split is not None:
        model.candidates.splitter(split)  # which refuses what cannot be split
    incoming, fingerprint = Incoming(texts, model.candidates), model.fingerprint()
    source, total = incoming.source(), incoming.check(0)  # first: what cannot be stored leaves nothing behind
    _check_folder(folder)
    with held(folder / LOCK_FILE, "building an index"):
        if not os.path.exists(folder / CATALOG_FILE):
            about = {"fingerprint": fingerprint, "source": source, "state": BUILDING, "next_key": "1"}
            create_catalog(folder, _settings(model, name, stored, split) | about)
        writer = Writer(folder, model)
        catalog = writer.catalog
        with writer.session():
            catalog.check_model(model, name)
            if catalog.metadata("state") == READY:
                said = "there is an index already; change it with `twofold index add`, or remove it"
                raise TwofoldError(f"{folder}: {said}")
            given = (source, stored, None if split is None else str(split), model.computing["precision"])
            if tuple(map(catalog.metadata, ("source", "stored", "split", "precision"))) != given:
                raise TwofoldError(f"{folder}: was begun with other texts or settings; remove it and build anew")
            left = total - catalog.count()
            with start_workers(model, left) if start_workers else contextlib.nullcontext() as workers:
                writer.write(incoming, 0, total, show, workers)
            writer.shards.merge_all()
            writer.set_metadata("state", READY)


def _settings(model: Ranker, name: str, stored: str, split: Split | None) -> dict[str, str]:
    """Settings of a new index, as the catalog keeps them."""
    settings = {"model": name, "decoder": model.kind, "stored": stored, **model.computing}
    settings |= {"reversed": "yes"} if model.is_reversed else {}
    return settings | ({"split": str(split), "documents": "0"} if split is not None else {})


class Writer:
    """Changes an index, while other writers wait."""

    def __init__(self, folder: Path, model: Ranker | None = None) -> None:
        """model: needed wherever texts are read"""
        self.folder, self.model = folder, model
        self.catalog = Catalog(folder)
        self.shards = ShardFiles(folder, self.catalog)

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Holds the lock of writers during a session with an index whose build is done."""
        lock = held(self.folder / LOCK_FILE, "writing", LOCK_WAIT)
        with contextlib.closing(self.catalog), lock, self.session():
            self.catalog.check_ready()
            yield

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        """Removes files that a killed writer left; at the end brings all changes into the main file."""
        with contextlib.closing(self.catalog):
            try:
                self.shards.remove_unlisted()
                yield
            finally:
                self.catalog.checkpoint()
                if self.shards.merged:
                    self.shards.remove_unlisted()

    def add(self, texts: Texts, show: bool = False) -> int:
        """Adds candidates, or continues with the same texts if that was cut short; returns the number added."""
        with self.exclusive():
            incoming = self._incoming(texts)
            source = incoming.source()
            begun = json.loads(self.catalog.metadata("adding") or "{}")
            next_number = max(self.catalog.largest_number() + (0 if is_file(texts) else 1), 0)  # files count from 1
            start = begun.get(source, next_number)
            total = incoming.check(start)
            if source not in begun:
                self._refuse_known_ids(incoming, start)
                self.set_metadata("adding", json.dumps({source: start}))
            added = self.write(incoming, start, total, show)
            self.set_metadata("adding", "{}")
            return added

    def update(self, texts: Texts, show: bool = False) -> int:
        """Replaces candidates of the same id, and adds new ids; returns the number changed."""
        with self.exclusive():
            incoming = self._incoming(texts)
            return self.write(incoming, 0, incoming.check(0), show)

    def remove(self, ids: Sequence[Any]) -> int:
        """Deletes candidates, all of them or none; returns their number."""
        with self.exclusive():
            known = self.catalog.entries_by_id(ids)
            for id in ids:
                if id not in known:
                    raise TwofoldError(f"{self.folder}: there is no candidate {id!r}; nothing was removed")
            with self.catalog.write_transaction():
                self.catalog.delete([entry.key for entry in known.values()])
            return len(known)

    def compact(self) -> None:
        """Merges all shards into as few as possible."""
        with self.exclusive():
            self.shards.merge_all()

    def _incoming(self, texts: Texts) -> Incoming:
        assert self.model is not None
        return Incoming(texts, self.model.candidates)

    def write(self, incoming: Incoming, start: int, total: int, show: bool, workers: Workers | None = None) -> int:
        """Inserts or replaces every candidate that is not there unchanged; returns the number of these."""
        changed, changes = 0, self._changes(incoming, start, workers)
        with bar("reading texts", total, show=show) as report:
            for change in changes if workers is None else _one_ahead(changes):
                report(change.before)
                if change.part.candidates or change.updated:
                    self._commit(change, report)
                    changed += len(change.part.candidates) + len(change.updated)
            report(total)
        return changed

    def _changes(self, incoming: Incoming, start: int, workers: Workers | None) -> Iterator[Change]:
        """Yields what is to be written, which workers begin to encode."""
        seen, split = 0, self.catalog.metadata("split")
        assert self.model is not None
        splitter = self.model.candidates.splitter(Split.of(split)) if split else None
        for chunk in incoming.chunks(start):
            known = self.catalog.entries_by_id(list(chunk))
            new = {id: given for id, given in chunk.items() if id not in known or changes(known[id], given)}
            same_text = [(known[id], fields_of(given)) for id, given in chunk.items() if id not in new]
            updated = [replace(entry, fields=fields) for entry, fields in same_text if entry.fields != fields]
            done = seen
            for part in parts_of(new, splitter):
                replaced = [known[id].key for id in part.candidates if id in known]
                encoded = begin(self.model, list(dict(part.texts()).values()), workers)
                yield Change(part, replaced, updated, done, encoded)
                done, updated = done + len(part.candidates), []
            seen += len(chunk)

    def _refuse_known_ids(self, incoming: Incoming, start: int) -> None:
        for chunk in incoming.chunks(start):
            known = self.catalog.entries_by_id(list(chunk))
            for id, given in chunk.items():
                if id in known:
                    raise TwofoldError(f"{given.place}: the id {id!r} is there already; use `twofold index update`")

    def set_metadata(self, name: str, value: str) -> None:
        """Sets a value in a separate transaction."""
        with self.catalog.write_transaction():
            self.catalog.set_metadata(name, value)

    def _new_rows(self, keys: Rows, change: Change, report: Report) -> NewRows:
        """Returns the vectors of candidates as they are stored; equal texts are encoded once."""
        assert self.model is not None
        assert change.encoded is not None
        stored, several, part = str(self.catalog.metadata("stored")), self.model.head.several, change.part
        texts = [text for text, _ in part.texts()]
        number = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        encoded = change.encoded(report).take(np.array([number[text] for text in texts]))
        vectors, counts = encoded.vectors, encoded.counts
        with np.errstate(over="ignore"):
            vectors = vectors.astype("float32" if stored == "int8" else stored, copy=False)
        for place in np.flatnonzero(~np.isfinite(vectors).all(1)).tolist():
            raise TwofoldError(
                f"the vector of {np.repeat(texts, counts)[place][:60]!r} is not finite; the model is damaged"
                + (", or its numbers too large for float16" if vectors.dtype == np.float16 else "")
            )
        keys = np.repeat(keys, part.rows())
        if several:
            return NewRows.several(keys, vectors, counts, stored).with_spans(part.spans)
        return NewRows.single(keys, vectors, self._directions(vectors), stored).with_spans(part.spans)

    def _directions(self, vectors: NDArray[Any]) -> Floats:
        """Directions of the projections; the first are a guess, merging all shards learns better ones."""
        directions = self.catalog.directions()
        if directions is None:
            directions = principal_directions(vectors.astype(np.float32))
            with self.catalog.write_transaction():
                self.catalog.set_directions(directions)
        return directions

    def _commit(self, change: Change, report: Report) -> None:
        """Writes one shard and one transaction: all of it counts, or nothing."""
        first, part = int(self.catalog.metadata("next_key") or 1), change.part
        numbered = enumerate(part.candidates.items(), start=first)
        entries = [Entry(key, id, candidate.text, fields_of(candidate)) for key, (id, candidate) in numbered]
        records = []
        if entries:
            keys, per_candidate = np.arange(first, first + len(entries)), sum(part.rows()) / len(entries)
            rows = self._new_rows(keys, change, lambda read: report(change.before + int(read / per_candidate)))
            records = [self.shards.write([rows])]
        with self.catalog.write_transaction():
            self.catalog.delete(change.replaced)
            self.catalog.insert(entries)
            self.catalog.update_fields(change.updated)
            self.catalog.replace_shards([], records)
        self.shards.merge_small()


def _one_ahead(changes: Iterator[Change]) -> Iterator[Change]:
    """Yields each change when the next has begun to be encoded."""
    waiting: Change | None = None
    for change in changes:
        if waiting is not None:
            yield waiting
        waiting = change
    if waiting is not None:
        yield waiting


def _as_stored(stored: str | None, model: Ranker) -> str:
    """Type of the stored numbers; by default one that suits the number of vectors of a candidate."""
    if stored is None:
        return "float16" if model.head.several else "float32"
    if stored not in STORED:
        raise TwofoldError(f"stored: there is no {stored!r}; give {', '.join(STORED[:-1])} or {STORED[-1]}")
    return stored


def _check_folder(folder: Path) -> None:
    """Refuses to build among files that belong to something else."""
    if os.path.exists(folder / CATALOG_FILE) or not os.path.exists(folder):
        return
    if not folder.is_dir() or any(path.name[0] != "." and path.name != VERSION_FILE for path in folder.iterdir()):
        raise TwofoldError(f"{folder}: holds something that is no index; give another folder")
