"""Candidates that come into an index: read by the model's input, checked before anything changes, and numbered."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twofold.data import files
from twofold.data.candidates import Candidate, Texts
from twofold.data.passages import Span, Splitter
from twofold.errors import TwofoldError
from twofold.index.database import Entry
from twofold.inputs import Input

CHUNK_SIZE = 4096
"""Number of candidates that are read and written as one shard before they count, and that a kill can cost."""


@dataclass(frozen=True)
class Incoming:
    """File, or candidates at hand."""

    texts: Texts
    input: Input[Any]
    """Input of the model that reads candidates."""

    def source(self) -> str:
        """Hash of all candidates, to know them again."""
        texts = str(self.texts) if isinstance(self.texts, Path) else self.texts
        # It tells how candidates without an id are numbered, so that a build that was begun otherwise does not go on.
        if isinstance(texts, str) and self.input.config.endings:
            return f"by line {self.input.config.content(texts)}"
        if isinstance(texts, str | Mapping):
            return f"by line {files.fingerprint(texts)}"
        digest = hashlib.sha256(b"from 0\n")
        for text in texts:
            digest.update(json.dumps(text, default=str, sort_keys=True).encode() + b"\n")
        return digest.hexdigest()

    def check(self, start: int) -> int:
        """Refuses ids and fields that cannot be stored, and ids that come twice; returns the number of candidates."""
        count = 0
        with contextlib.closing(sqlite3.connect("")) as seen:  # ids are kept on the disk, not in memory
            seen.execute("CREATE TABLE seen (id UNIQUE, place)")
            for candidate in self.input.candidates(self.texts):
                count += 1
                id, place = _id_of(candidate, start), candidate.place
                fields_of(candidate)  # refuses what JSON cannot hold
                if isinstance(id, bool) or not isinstance(id, str | int):
                    raise TwofoldError(f"{place}: the id {id!r} is neither a text nor a whole number")
                try:
                    seen.execute("INSERT INTO seen VALUES (?, ?)", [id, place])
                except sqlite3.IntegrityError:
                    [[before]] = seen.execute("SELECT place FROM seen WHERE id = ?", [id])
                    raise TwofoldError(f"{place}: the id {id!r} is that of {before} too") from None
                except (OverflowError, UnicodeEncodeError):
                    raise TwofoldError(f"{place}: the id {id!r:.40} cannot be kept; use a shorter one") from None
        return count

    def chunks(self, start: int) -> Iterator[dict[Any, Candidate]]:
        """Yields candidates by id, `CHUNK_SIZE` at a time; those without an id are numbered from `start` on."""
        candidates = self.input.candidates(self.texts)
        while chunk := list(itertools.islice(candidates, CHUNK_SIZE)):
            yield {_id_of(candidate, start): candidate for candidate in chunk}


@dataclass(frozen=True)
class Part:
    """Candidates that are written at once, whole or each as the passages of a document."""

    candidates: Mapping[Any, Candidate]
    """Candidates by id."""
    spans: Sequence[Sequence[Span]] | None = None
    """Passages of each candidate."""

    def texts(self) -> list[tuple[str, Any]]:
        """Returns the text of each row, and the content that the model reads."""
        candidates = self.candidates.values()
        if self.spans is None:
            return [(candidate.text, candidate.read) for candidate in candidates]
        documents = zip(candidates, self.spans, strict=True)
        passages = [span.passage(document.text) for document, spans in documents for span in spans]
        return list(zip(passages, passages, strict=True))

    def rows(self) -> list[int]:
        """Number of rows of each candidate."""
        return [1] * len(self.candidates) if self.spans is None else list(map(len, self.spans))


def parts_of(candidates: Mapping[Any, Candidate], splitter: Splitter | None) -> Iterator[Part]:
    """Yields the candidates, with a splitter in parts of about `CHUNK_SIZE` passages; at least one part."""
    if splitter is None or not candidates:
        yield Part(candidates)
        return
    chosen: dict[Any, Candidate] = {}
    passages: list[list[Span]] = []
    count = 0
    for (id, candidate), spans in zip(candidates.items(), splitter.spans(list(candidates.values())), strict=True):
        if chosen and count + len(spans) > CHUNK_SIZE:
            yield Part(chosen, passages)
            chosen, passages, count = {}, [], 0
        chosen[id] = candidate
        passages.append(spans)
        count += len(spans)
    yield Part(chosen, passages)


def changes(entry: Entry, candidate: Candidate) -> bool:
    """Returns True if a candidate may differ from the stored one; what is not text may change under its name."""
    return candidate.content is not None or entry.text != candidate.text


def _id_of(candidate: Candidate, start: int) -> Any:
    """Id of a candidate; without an id, its number from `start` on."""
    return candidate.number + start if candidate.own_id is None else candidate.own_id


def fields_of(candidate: Candidate) -> str | None:
    """Further fields of a candidate, as JSON."""
    if not candidate.fields:
        return None
    try:
        fields = json.dumps(candidate.fields, ensure_ascii=False, default=str, allow_nan=False)
        fields.encode()
    except ValueError as error:
        reason = "half a character (a lone surrogate)" if isinstance(error, UnicodeEncodeError) else "NaN or infinity"
        raise TwofoldError(f"{candidate.place}: a field holds {reason}") from None
    return fields
