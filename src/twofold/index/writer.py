"""Changes an index, one process at a time: new shards beside the old, then one transaction that makes them count."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twofold import storage
from twofold.data import files
from twofold.data.candidates import Candidate, Texts, is_file, read_candidates
from twofold.errors import TwofoldError
from twofold.index.catalog import BUILDING, LOCK_WAIT, READY, Catalog
from twofold.index.catalog_tables import CATALOG_FILE, Entry, create_catalog
from twofold.index.quantized import Floats, principal_directions
from twofold.index.shard import SHARD_FOLDER, STORED, Fresh, Kept, Shard, ShardRecord, write_shard
from twofold.index.version_record import VERSION_FILE
from twofold.model.ranker import Ranker
from twofold.progress import Report, bar
from twofold.storage.locks import HeldError, held

LOCK_FILE = ".lock"
AT_A_TIME = 4096
"""Texts that are read and written as one shard before they count: what a kill can cost."""
JOINED = 8
"""So many neighbouring shards of like size become one."""
SMALLEST, LARGEST = 512, 1 << 20
"""Rows of shards that count as small, and of one that is full."""
SAMPLED = 8192
"""Vectors from which the directions of heads are learned."""


def build(folder: Path, model: Ranker, name: str, texts: Texts, stored: str, show: bool) -> None:
    """Make an index, or go on with one that was cut short: what counts already is not read again."""
    if model.joined:
        raise TwofoldError("a cross-encoder keeps nothing of a candidate; build with a bi- or poly-encoder")
    if stored not in STORED:
        raise TwofoldError(f"stored: there is no {stored!r}; give {' or '.join(STORED)}")
    source, fingerprint = source_of(texts), model.fingerprint()
    total = survey(texts, 0)  # first: what cannot be kept leaves nothing behind
    _check_folder(folder)
    with held(folder / LOCK_FILE, "building an index"):
        if not os.path.exists(folder / CATALOG_FILE):
            about = {"model": name, "fingerprint": fingerprint, "stored": stored, "source": source}
            create_catalog(folder, {**about, "state": BUILDING, "next_key": "1"})
        writer = Writer(folder, model)
        with writer.working():
            catalog = writer.catalog
            catalog.check_model(fingerprint, name)
            if catalog.metadata("state") == READY:
                raise TwofoldError(
                    f"{folder}: there is an index already; change it with `twofold index add`, or remove it"
                )
            if (catalog.metadata("source"), catalog.metadata("stored")) != (source, stored):
                raise TwofoldError(f"{folder}: was begun with other texts or settings; remove it and build anew")
            writer.write(texts, 0, total, show)
            writer.join_all()
            with catalog.write_transaction():
                catalog.set_metadata("state", READY)


def _check_folder(folder: Path) -> None:
    """Refuse to build among files that belong to something else."""
    if os.path.exists(folder / CATALOG_FILE) or not os.path.exists(folder):
        return
    if not folder.is_dir() or any(path.name[0] != "." and path.name != VERSION_FILE for path in folder.iterdir()):
        raise TwofoldError(f"{folder}: holds something that is no index; give another folder")


def source_of(texts: Texts) -> str:
    """A hash of all texts, to know them again."""
    if isinstance(texts, Path):
        texts = str(texts)
    # How candidates without an id are numbered is told too: what was begun otherwise does not go on.
    if isinstance(texts, str | Mapping):
        return f"by line {files.fingerprint(texts)}"
    found = hashlib.sha256(b"from 0\n")
    for one in texts:
        found.update(json.dumps(one, default=str, sort_keys=True).encode() + b"\n")
    return found.hexdigest()


class Writer:
    """Whoever changes an index; whoever comes second waits."""

    def __init__(self, folder: Path, model: Ranker | None = None) -> None:
        """model: needed wherever texts are read"""
        self.folder, self.shards = folder, folder / SHARD_FOLDER
        self.catalog = Catalog(folder)
        self.model = model
        self._joined = False

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """While this lasts nobody else writes."""
        try:
            with held(self.folder / LOCK_FILE, "writing", LOCK_WAIT), self.working():
                yield
        except HeldError as error:
            raise TwofoldError(
                f"{self.folder}: another process has been writing for {LOCK_WAIT:.0f} s{error.holder}; try later"
            ) from None
        finally:
            self.catalog.close()

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Clear away what a killed writer left; at the end bring all that counts into the main file."""
        try:
            self._sweep()
            yield
        finally:
            try:
                self.catalog.checkpoint()
                if self._joined:
                    self._sweep()
            finally:
                self.catalog.close()

    def _sweep(self) -> None:
        """Remove files that are no shards of the index, or no longer."""
        listed = {record.name for record in self.catalog.shards()}
        with storage.writing(self.shards):
            for path in self.shards.glob("*") if self.shards.exists() else ():
                if path.name not in listed:
                    path.unlink()

    def add(self, texts: Texts, show: bool = False) -> int:
        with self.alone():
            self.catalog.check_ready()
            source = source_of(texts)
            begun = json.loads(self.catalog.metadata("adding") or "{}")
            if source in begun:  # the same was cut short: what counts already is passed over
                start = begun[source]
                total = survey(texts, start)
            else:
                start = max(self.catalog.largest_number() + (0 if is_file(texts) else 1), 0)  # files count from 1
                total = survey(texts, start)
                for some in chunks(read_candidates(texts), start):
                    known = self.catalog.entries_by_id(list(some))
                    for id, one in some.items():
                        if id in known:
                            told = "is there already; use `twofold index update`"
                            raise TwofoldError(f"{one.place}: the id {id!r} {told}")
                with self.catalog.write_transaction():
                    self.catalog.set_metadata("adding", json.dumps({source: start}))
            added = self.write(texts, start, total, show)
            with self.catalog.write_transaction():
                self.catalog.set_metadata("adding", "{}")
            return added

    def update(self, texts: Texts, show: bool = False) -> int:
        with self.alone():
            self.catalog.check_ready()
            return self.write(texts, 0, survey(texts, 0), show)

    def remove(self, ids: Sequence[Any]) -> int:
        with self.alone():
            self.catalog.check_ready()
            known = self.catalog.entries_by_id(ids)
            for id in ids:
                if id not in known:
                    raise TwofoldError(f"{self.folder}: there is no candidate {id!r}; nothing was removed")
            with self.catalog.write_transaction():
                self.catalog.delete([entry.key for entry in known.values()])
            return len(known)

    def compact(self) -> None:
        with self.alone():
            self.catalog.check_ready()
            self.join_all()

    def join_all(self) -> None:
        """As few shards as possible, whose heads are in directions learned from all of them."""
        records = self.catalog.shards()
        kept = self._kept(records)
        rows = sum(map(len, kept))
        if rows:
            every = max(1, rows // SAMPLED)
            sample = np.concatenate([one.shard.vectors(one.rows[::every]) for one in kept])
            directions = principal_directions(sample)
            self._join(records, [Kept(one.shard, one.rows, directions) for one in kept], directions)
        else:
            self._join(records, [])

    def write(self, texts: Texts, start: int, total: int, show: bool) -> int:
        """Put every text where its id says, but for those that are there unchanged. Returns how many were not."""
        seen = changed = 0
        with bar("reading texts", total, show=show) as report:
            for some in chunks(read_candidates(texts), start):
                known = self.catalog.entries_by_id(list(some))
                new = {id: one for id, one in some.items() if id not in known or known[id].text != one.text}
                same = [(known[id], one) for id, one in some.items() if id not in new]
                rewritten = [Entry(old.key, old.id, old.text, fields_of(one)) for old, one in same]
                rewritten = [one for one, (old, _) in zip(rewritten, same, strict=True) if one != old]
                if new or rewritten:
                    vectors = self._vectors([one.text for one in new.values()], lambda done, at=seen: report(at + done))
                    self._commit(new, vectors, [known[id].key for id in new if id in known], rewritten)
                seen, changed = seen + len(some), changed + len(new) + len(rewritten)
                report(seen)
        return changed

    def _vectors(self, texts: Sequence[str], report: Report) -> NDArray[Any]:
        """(texts, width) as they are stored; equal texts are read once."""
        assert self.model is not None
        if not texts:
            return np.empty((0, 0), np.float32)
        once = list(dict.fromkeys(texts))
        place = {text: number for number, text in enumerate(once)}
        read = self.model.head.stored(self.model.embed_candidates(once, report))
        vectors = read.cpu().numpy()[[place[text] for text in texts]]
        with np.errstate(over="ignore"):
            vectors = vectors.astype(self.catalog.metadata("stored"))
        for number in np.flatnonzero(~np.isfinite(vectors).all(1)).tolist():
            raise TwofoldError(
                f"the vector of {texts[number][:60]!r} is not finite; the model is damaged"
                + (", or its numbers too large for float16" if vectors.dtype == np.float16 else "")
            )
        return vectors

    def _commit(
        self, new: Mapping[Any, Candidate], vectors: NDArray[Any], dropped: Sequence[int], rewritten: Sequence[Entry]
    ) -> None:
        """One shard and one transaction: all of it counts, or nothing."""
        first = int(self.catalog.metadata("next_key") or 1)
        entries = [Entry(key, id, one.text, fields_of(one)) for key, (id, one) in enumerate(new.items(), start=first)]
        records = []
        if entries:
            directions = self.catalog.directions()
            if directions is None:  # the first guess; joining all shards makes a better one
                directions = principal_directions(vectors.astype(np.float32))
                with self.catalog.write_transaction():
                    self.catalog.set_directions(directions)
            keys = np.arange(first, first + len(entries))
            records = [self._shard([Fresh(keys, vectors, directions)], 0)]
        with self.catalog.write_transaction():
            self.catalog.delete(dropped)
            self.catalog.insert(entries)
            self.catalog.update_fields(rewritten)
            self.catalog.replace_shards([], records)
        self._join_small()

    def _shard(self, sources: Sequence[Fresh | Kept], number: int) -> ShardRecord:
        # The version has never counted yet, so the name is that of no shard that anybody reads.
        name = f"{self.catalog.version + 1:010d}-{number:04d}.safetensors"
        return write_shard(self.shards, name, sources, str(self.catalog.metadata("stored")))

    def _join_small(self) -> None:
        """Neighbours of like size become one, so that there are never many; each row moves a few times in all."""
        while True:
            last = self.catalog.shards()[-JOINED:]
            sizes = [max(one.rows, SMALLEST) for one in last]
            if len(last) < JOINED or max(sizes) > JOINED * min(sizes) or sum(sizes) > LARGEST:
                return
            self._join(last, self._kept(last))

    def _kept(self, records: Sequence[ShardRecord]) -> list[Kept]:
        """The rows of some shards that are still candidates."""
        gone = self.catalog.deleted_since(-1)
        shards = [Shard(self.shards, record) for record in records]
        kept = [Kept(shard, np.delete(np.arange(len(shard)), shard.rows_of(gone))) for shard in shards]
        return [one for one in kept if len(one)]

    def _join(self, records: Sequence[ShardRecord], kept: Sequence[Kept], directions: Floats | None = None) -> None:
        """Put shards with what is kept in the place of some; `directions` are new ones of their heads."""
        full: list[list[Kept]] = []
        for one in kept:
            if full and sum(map(len, full[-1])) + len(one) <= LARGEST:
                full[-1].append(one)
            else:
                full.append([one])
        new = [self._shard(some, number) for number, some in enumerate(full)]
        self._joined = True  # the files of the old ones go when the new list is on the disk
        with self.catalog.write_transaction():
            self.catalog.replace_shards(records, new)
            if directions is not None:
                self.catalog.set_directions(directions)


def survey(texts: Texts, start: int) -> int:
    """How many candidates there are; an id that comes twice is an error. Ids are kept on the disk, not in memory."""
    with contextlib.closing(sqlite3.connect("")) as seen:
        seen.execute("CREATE TABLE seen (id UNIQUE, place)")
        count = 0
        for one in read_candidates(texts):
            count += 1
            id = identity(one, start)
            fields_of(one)  # which says what cannot be kept
            if isinstance(id, bool) or not isinstance(id, str | int):
                raise TwofoldError(f"{one.place}: the id {id!r} is neither a text nor a whole number")
            try:
                seen.execute("INSERT INTO seen VALUES (?, ?)", [id, one.place])
            except sqlite3.IntegrityError:
                [[before]] = seen.execute("SELECT place FROM seen WHERE id = ?", [id])
                raise TwofoldError(f"{one.place}: the id {id!r} is that of {before} too") from None
            except (OverflowError, UnicodeEncodeError):
                raise TwofoldError(f"{one.place}: the id {id!r:.40} cannot be kept; use a shorter one") from None
        return count


def identity(candidate: Candidate, start: int) -> Any:
    """Its own id; whatever has none is numbered on from `start`."""
    return candidate.number + start if candidate.own_id is None else candidate.own_id


def chunks(candidates: Iterable[Candidate], start: int) -> Iterator[dict[Any, Candidate]]:
    """Some at a time, by id."""
    source = iter(candidates)
    while some := list(itertools.islice(source, AT_A_TIME)):
        yield {identity(one, start): one for one in some}


def fields_of(candidate: Candidate) -> str | None:
    """A candidate's further fields as JSON."""
    if not candidate.fields:
        return None
    try:
        written = json.dumps(candidate.fields, ensure_ascii=False, default=str, allow_nan=False)
        written.encode()
    except ValueError as error:
        reason = "half a character (a lone surrogate)" if isinstance(error, UnicodeEncodeError) else "NaN or infinity"
        raise TwofoldError(f"{candidate.place}: a field holds {reason}") from None
    return written
