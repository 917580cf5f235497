"""Changes an index, one process at a time: new shards beside the old, then one transaction that makes them count."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twofold.data.candidates import Candidate, Texts, is_file
from twofold.errors import TwofoldError
from twofold.index.catalog import LOCK_WAIT, Catalog
from twofold.index.catalog_tables import Entry
from twofold.index.incoming_candidates import check_candidates, chunks, fields_of, source_of
from twofold.index.quantized import principal_directions
from twofold.index.shard_files import ShardFiles
from twofold.index.shard_writer import NewRows
from twofold.model.ranker import Ranker
from twofold.progress import Report, bar
from twofold.storage.locks import HeldError, held

LOCK_FILE = ".lock"


class Writer:
    """Changes an index, while other writers wait."""

    def __init__(self, folder: Path, model: Ranker | None = None) -> None:
        """model: needed wherever texts are read"""
        self.folder, self.model = folder, model
        self.catalog = Catalog(folder)
        self.shards = ShardFiles(folder, self.catalog)

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold the lock of writers during a session."""
        try:
            with held(self.folder / LOCK_FILE, "writing", LOCK_WAIT), self.session():
                yield
        except HeldError as error:
            raise TwofoldError(
                f"{self.folder}: another process has been writing for {LOCK_WAIT:.0f} s{error.holder}; try later"
            ) from None
        finally:
            self.catalog.close()

    @contextlib.contextmanager
    def session(self) -> Iterator[None]:
        """Remove what a killed writer left; at the end bring all changes into the main file."""
        try:
            self.shards.remove_unlisted()
            yield
        finally:
            try:
                self.catalog.checkpoint()
                if self.shards.merged:
                    self.shards.remove_unlisted()
            finally:
                self.catalog.close()

    def add(self, texts: Texts, show: bool = False) -> int:
        """Add candidates, or go on with the same texts if that was cut short; returns how many were added."""
        with self.exclusive():
            self.catalog.check_ready()
            source = source_of(texts)
            begun = json.loads(self.catalog.metadata("adding") or "{}")
            if source in begun:
                start = begun[source]
                total = check_candidates(texts, start)
            else:
                start = max(self.catalog.largest_number() + (0 if is_file(texts) else 1), 0)  # files count from 1
                total = check_candidates(texts, start)
                self._refuse_known_ids(texts, start)
                self._set_metadata("adding", json.dumps({source: start}))
            added = self.write(texts, start, total, show)
            self._set_metadata("adding", "{}")
            return added

    def update(self, texts: Texts, show: bool = False) -> int:
        """Replace candidates of the same id, and add new ids; returns how many changed."""
        with self.exclusive():
            self.catalog.check_ready()
            return self.write(texts, 0, check_candidates(texts, 0), show)

    def remove(self, ids: Sequence[Any]) -> int:
        """Delete candidates, all of them or none; returns how many there were."""
        with self.exclusive():
            self.catalog.check_ready()
            known = self.catalog.entries_by_id(ids)
            for id in ids:
                if id not in known:
                    raise TwofoldError(f"{self.folder}: there is no candidate {id!r}; nothing was removed")
            with self.catalog.write_transaction():
                self.catalog.delete([entry.key for entry in known.values()])
            return len(known)

    def compact(self) -> None:
        """Merge all shards into as few as possible."""
        with self.exclusive():
            self.catalog.check_ready()
            self.shards.merge_all()

    def write(self, texts: Texts, start: int, total: int, show: bool) -> int:
        """Insert or replace every candidate that is not there unchanged; returns how many these are."""
        seen = changed = 0
        with bar("reading texts", total, show=show) as report:
            for chunk in chunks(texts, start):
                known = self.catalog.entries_by_id(list(chunk))
                new, updated = dict[Any, Candidate](), list[Entry]()
                for id, candidate in chunk.items():
                    if id not in known or known[id].text != candidate.text:
                        new[id] = candidate
                    elif known[id].fields != (fields := fields_of(candidate)):
                        updated.append(replace(known[id], fields=fields))
                if new or updated:
                    unread = [candidate.text for candidate in new.values()]
                    vectors = self._vectors(unread, lambda done, before=seen: report(before + done))
                    replaced = [known[id].key for id in new if id in known]
                    self._commit(new, vectors, replaced, updated)
                seen, changed = seen + len(chunk), changed + len(new) + len(updated)
                report(seen)
        return changed

    def _refuse_known_ids(self, texts: Texts, start: int) -> None:
        for chunk in chunks(texts, start):
            known = self.catalog.entries_by_id(list(chunk))
            for id, candidate in chunk.items():
                if id in known:
                    reason = "is there already; use `twofold index update`"
                    raise TwofoldError(f"{candidate.place}: the id {id!r} {reason}")

    def _set_metadata(self, name: str, value: str) -> None:
        with self.catalog.write_transaction():
            self.catalog.set_metadata(name, value)

    def _vectors(self, texts: Sequence[str], report: Report) -> NDArray[Any]:
        """(texts, width) as they are stored; equal texts are read once."""
        assert self.model is not None
        if not texts:
            return np.empty((0, 0), np.float32)
        unique = list(dict.fromkeys(texts))
        places = {text: place for place, text in enumerate(unique)}
        embeddings = self.model.head.stored(self.model.embed_candidates(unique, report))
        vectors = embeddings.cpu().numpy()[[places[text] for text in texts]]
        with np.errstate(over="ignore"):
            vectors = vectors.astype(self.catalog.metadata("stored"))
        for place in np.flatnonzero(~np.isfinite(vectors).all(1)).tolist():
            raise TwofoldError(
                f"the vector of {texts[place][:60]!r} is not finite; the model is damaged"
                + (", or its numbers too large for float16" if vectors.dtype == np.float16 else "")
            )
        return vectors

    def _commit(
        self, new: Mapping[Any, Candidate], vectors: NDArray[Any], deleted: Sequence[int], updated: Sequence[Entry]
    ) -> None:
        """Write one shard and one transaction: all of it counts, or nothing."""
        first = int(self.catalog.metadata("next_key") or 1)
        numbered = enumerate(new.items(), start=first)
        entries = [Entry(key, id, candidate.text, fields_of(candidate)) for key, (id, candidate) in numbered]
        records = []
        if entries:
            directions = self.catalog.directions()
            if directions is None:  # a first guess; merging all shards learns better ones
                directions = principal_directions(vectors.astype(np.float32))
                with self.catalog.write_transaction():
                    self.catalog.set_directions(directions)
            keys = np.arange(first, first + len(entries))
            records = [self.shards.write([NewRows(keys, vectors, directions)])]
        with self.catalog.write_transaction():
            self.catalog.delete(deleted)
            self.catalog.insert(entries)
            self.catalog.update_fields(updated)
            self.catalog.replace_shards([], records)
        self.shards.merge_small()
