"""Reads rows from jsonl, tsv, csv, conll, conllu and plain text files, each also .gz, and from a `datasets` folder."""

from __future__ import annotations

import csv
import gzip
import io
import os
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from reprlib import repr as shown
from typing import IO, Any

from twofold.errors import TwofoldError
from twofold.storage import parse_json, sha256
from twofold.storage.encodings import SAMPLE, conversion
from twofold.storage.special_files import refuse_special
from twofold.types import Example

Where = str | Mapping[str, str]
"""A file or folder, or column names to plain text files that are read side by side, line by line."""
Sources = Where | tuple[str, ...]
"""The same, or several files that are read one after the other."""
LONGEST_LINE = 16_000_000
SETTLED = 2.0
"""Seconds after which a file's time tells whether it was changed again."""


@dataclass(frozen=True)
class Row:
    """One example and where it stands."""

    place: str
    values: Example
    line: int | None = field(default=None, compare=False)
    """Where it begins in its file, from 1; a candidate without an id is named by it."""

    def text(self, column: str) -> str | list[str]:
        """The text, or the turns of a dialogue, in a column; an empty one is an error."""
        value: Any = self.values.get(column)
        if column not in self.values:
            raise TwofoldError(f"{self.place}: no '{column}' here; this row has {', '.join(map(str, self.values))}")
        if value is None:
            raise TwofoldError(f"{self.place}: '{column}' is null; fill it or remove the row")
        turns: list[str] = value if isinstance(value, list) else [value]
        if not all(isinstance(turn, str) for turn in turns):
            given = " ".join(shown(value).split())  # an array is shown in several lines
            raise TwofoldError(f"{self.place}: '{column}' is neither a text nor a list of texts, but {given}")
        try:
            "".join(turns).encode()
        except UnicodeEncodeError:
            raise TwofoldError(f"{self.place}: '{column}' holds half a character (a lone surrogate)") from None
        if not any(turn.strip() for turn in turns):
            raise TwofoldError(f"{self.place}: '{column}' is empty; fill it or remove the row")
        return turns if isinstance(value, list) else turns[0]


def read_rows(where: Sources) -> Iterator[Row]:
    """Every row of a file, in order; a file without rows is an error."""
    if isinstance(where, tuple):
        for one in where:
            yield from read_rows(one)
        return
    empty = True
    for row in _read_together(where) if isinstance(where, Mapping) else _read(Path(where)):
        empty = False
        yield row
    if empty:
        raise TwofoldError(f"{_name(where)}: holds no rows")


def fingerprint(where: Sources) -> str:
    """A hash of all that `read_rows` would read."""
    if isinstance(where, tuple):
        return " ".join(map(fingerprint, where))
    if isinstance(where, Mapping):
        return " ".join(f"{column} {fingerprint(path)}" for column, path in where.items())
    path = Path(where)
    if os.path.isdir(path):
        return " ".join(f"{file.name} {_sum(file)}" for file in sorted(path.iterdir()) if file.is_file())
    try:
        return f"{''.join(path.suffixes[-2:])} {_sum(path)}"
    except OSError as error:
        raise TwofoldError(f"{path}: cannot be read ({error.strerror})") from None


def _sum(path: Path) -> str:
    """The SHA-256 of a file, computed once as long as the file stays as it is."""
    about = path.stat()
    stamp = (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
    if time.time() - about.st_ctime < SETTLED:  # another change may bear the same time
        return sha256(path)
    return _sum_of(path, stamp)


@lru_cache(maxsize=1024)
def _sum_of(path: Path, stamp: tuple[int, ...]) -> str:
    return sha256(path)


def _name(where: Where) -> str:
    return " and ".join(where.values()) if isinstance(where, Mapping) else where


def _read_together(paths: Mapping[str, str]) -> Iterator[Row]:
    """Plain text files of equal length as the columns of one table."""
    files = {column: lines_of(Path(path)) for column, path in paths.items()}
    while True:
        found = {column: next(lines, None) for column, lines in files.items()}
        lines = {column: item for column, item in found.items() if item is not None}
        if not lines:
            return
        if len(lines) < len(paths):
            short = next(paths[column] for column, item in found.items() if item is None)
            raise TwofoldError(
                f"{short}: ends before {_name({c: paths[c] for c in lines})}; they must have the same lines"
            )
        yield Row(next(iter(lines.values()))[0], {column: text for column, (_, text) in lines.items()})


def _read(path: Path) -> Iterator[Row]:
    if os.path.isdir(path):  # unlike that of a Path it knows names that no file can have
        yield from _read_datasets_folder(path)
        return
    ending = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    match ending.lower():
        case ".jsonl":
            yield from _read_jsonl(path)
        case ".tsv":
            yield from read_table(path, csv.QUOTE_NONE, "\t")
        case ".csv":
            yield from read_table(path, csv.QUOTE_MINIMAL, ",")
        case ".conll":
            from twofold.data.conll import read_conll  # it imports this file

            yield from read_conll(path)
        case ".conllu":
            from twofold.data.conll import read_conllu

            yield from read_conllu(path)
        case _:
            for number, (place, line) in enumerate(lines_of(path), start=1):
                if line.strip():
                    yield Row(place, {"text": line}, number)


def _read_jsonl(path: Path) -> Iterator[Row]:
    for number, (place, line) in enumerate(lines_of(path), start=1):
        if not line.strip():
            continue
        try:
            values = parse_json(line, nan=True)
        except ValueError as error:
            raise TwofoldError(f"{place}: not JSON ({error})") from None
        if not isinstance(values, dict):
            raise TwofoldError(f"{place}: not a JSON object")
        yield Row(place, values, number)


def read_table(path: Path, quoting: Any, delimiter: str) -> Iterator[Row]:
    """The rows of a table whose first line names the columns."""
    csv.field_size_limit(LONGEST_LINE)
    # A quoted field may run over several lines, so the reader gets them with their ends.
    line = 1
    reader = csv.reader((line + "\n" for _, line in lines_of(path)), quoting=quoting, delimiter=delimiter, strict=True)
    try:
        header, line = next(reader, None), reader.line_num + 1
        if header is None:
            return
        if len(set(header)) < len(header):
            raise TwofoldError(f"{path}:1: a column name stands twice in {', '.join(header)}")
        for fields in reader:
            begin, line = line, reader.line_num + 1  # a row may run over several lines
            place = f"{path}:{begin}"
            if not fields:
                continue
            if len(fields) != len(header):
                raise TwofoldError(f"{place}: {len(fields)} fields, but {len(header)} columns ({', '.join(header)})")
            yield Row(place, dict(zip(header, fields, strict=True)), begin)
    except csv.Error as error:
        raise TwofoldError(f"{path}:{line}: not {'csv' if delimiter == ',' else 'tsv'} ({error})") from None


def _read_datasets_folder(path: Path) -> Iterator[Row]:
    if (path / "dataset_dict.json").exists():
        splits = sorted(inner.name for inner in path.iterdir() if inner.is_dir())
        raise TwofoldError(
            f"{path}: holds several splits; name one: {', '.join(str(path / split) for split in splits)}"
        )
    if not (path / "state.json").exists():
        raise TwofoldError(f"{path}: a folder, but not one that Hugging Face `datasets` wrote with save_to_disk")
    try:
        from datasets import load_from_disk  # type: ignore[import-untyped]
    except ImportError:
        raise TwofoldError(f"{path}: reading it needs `pip install 'twofold[datasets]'`") from None
    for number, values in enumerate(load_from_disk(str(path)), start=1):
        yield Row(f"{path}:{number}", values)


def lines_of(path: Path) -> Iterator[tuple[str, str]]:
    """The lines of a UTF-8 file without their ends, each with its place."""
    number = 0
    try:
        with _open(path) as file:
            while line := file.readline(LONGEST_LINE + 1):
                number += 1
                if len(line) > LONGEST_LINE:
                    raise TwofoldError(f"{path}:{number}: a line of over {LONGEST_LINE:,} bytes")
                if number == 1:
                    line = line.removeprefix(b"\xef\xbb\xbf")
                    if b"\0" in line and (remedy := _conversion(path)):
                        raise TwofoldError(f"{path}:1: not UTF-8{remedy}")
                yield f"{path}:{number}", line.rstrip(b"\r\n").decode("utf-8")
    except UnicodeDecodeError as error:
        said = f"{path}:{number}: not valid UTF-8 ({error.reason} at byte {error.start})"
        raise TwofoldError(said + _conversion(path)) from None
    except (OSError, EOFError, zlib.error) as error:
        raise TwofoldError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None


def _conversion(path: Path) -> str:
    """How to convert a file that is not UTF-8, if that can be told."""
    with _open(path) as file:
        return conversion(path, file.read(SAMPLE))


def _open(path: Path) -> IO[bytes]:
    refuse_special(path)
    if path.suffix == ".gz":
        return io.BufferedReader(gzip.open(path, "rb"), 1 << 20)
    return path.open("rb", buffering=1 << 20)
