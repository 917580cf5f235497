"""Reads rows from jsonl, tsv, csv, conll, conllu and plain text files (each also .gz), and from `datasets` folders."""

from __future__ import annotations

import csv
import gzip
import io
import os
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from itertools import zip_longest
from pathlib import Path
from reprlib import repr as shown
from typing import IO, Any

from twofold.data.class_names import dataset_rows
from twofold.errors import TwofoldError
from twofold.storage import parse_json, refuse_special, sha256
from twofold.storage.encodings import SAMPLE, conversion
from twofold.types import Example

Where = str | Mapping[str, str]
"""File or folder, or a mapping from column names to plain text files with parallel lines."""
Sources = Where | tuple[str, ...]
"""Source, or several files read one after the other."""
LONGEST_LINE = 16_000_000
SETTLED = 2.0
"""Seconds after a change before a file's time stamp can be trusted."""


@dataclass(frozen=True)
class Row:
    """Example and its place."""

    place: str
    values: Example
    line: int | None = field(default=None, compare=False)
    """Line where the row begins, from 1; it names candidates without an id."""

    def value(self, column: str) -> Any:
        """Returns the value of a column; a missing column is an error."""
        if column not in self.values:
            raise TwofoldError(f"{self.place}: no '{column}' here; this row has {', '.join(map(str, self.values))}")
        return self.values[column]

    def text(self, column: str) -> str | list[str]:
        """Returns the text, or the turns of a dialogue, in a column; an empty one is an error."""
        value = self.value(column)
        if value is None:
            raise TwofoldError(f"{self.place}: '{column}' is null; fill it or remove the row")
        turns: list[str] = value if isinstance(value, list) else [value]
        if not all(isinstance(turn, str) for turn in turns):
            given = " ".join(shown(value).split())  # an array prints on several lines
            raise TwofoldError(f"{self.place}: '{column}' is neither a text nor a list of texts, but {given}")
        try:
            "".join(turns).encode()
        except UnicodeEncodeError:
            raise TwofoldError(f"{self.place}: '{column}' holds half a character (a lone surrogate)") from None
        if not any(turn.strip() for turn in turns):
            raise TwofoldError(f"{self.place}: '{column}' is empty; fill it or remove the row")
        return turns if isinstance(value, list) else turns[0]


@dataclass(frozen=True)
class DataFile:
    """Files that determine the training data."""

    path: str
    sum: Callable[[], str]
    """Checksum of their content."""
    stamp: str = ""
    """Sizes and times of the files, if hashing them is slow; an equal stamp means equal content."""


def read_rows(where: Sources) -> Iterator[Row]:
    """Reads all rows of a file in order; a file without rows is an error."""
    if isinstance(where, tuple):
        for source in where:
            yield from read_rows(source)
        return
    rows = _read_together(where) if isinstance(where, Mapping) else _read(Path(where))
    first = next(rows, None)
    if first is None:
        name = " and ".join(where.values()) if isinstance(where, Mapping) else where
        raise TwofoldError(f"{name}: holds no rows")
    yield first
    yield from rows


def fingerprint(where: Sources) -> str:
    """Hash of everything that `read_rows` would read."""
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
    """SHA-256 of a file, cached while the file stays unchanged."""
    about = path.stat()
    stamp = (about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns)
    if time.time() - about.st_ctime < SETTLED:  # another change may have the same time stamp
        return sha256(path)
    return _sum_of(path, stamp)


@lru_cache(maxsize=1024)
def _sum_of(path: Path, stamp: tuple[int, ...]) -> str:
    return sha256(path)


def _read_together(paths: Mapping[str, str]) -> Iterator[Row]:
    """Reads plain text files of equal length as columns of one table."""
    for lines in zip_longest(*(lines_of(Path(path)) for path in paths.values())):
        if None in lines:
            short = next(path for path, line in zip(paths.values(), lines, strict=True) if line is None)
            longer = [path for path, line in zip(paths.values(), lines, strict=True) if line is not None]
            raise TwofoldError(f"{short}: ends before {' and '.join(longer)}; they must have the same lines")
        yield Row(lines[0][0], dict(zip(paths, (text for _, text in lines), strict=True)))


def _read(path: Path) -> Iterator[Row]:
    from twofold.data.conll import read_conll, read_conllu  # imports this file itself

    if os.path.isdir(path):  # unlike Path, accepts names that no file can have
        return _read_datasets_folder(path)
    readers: dict[str, Callable[[Path], Iterator[Row]]] = {
        ".jsonl": _read_jsonl,
        ".tsv": partial(read_table, quoting=csv.QUOTE_NONE, delimiter="\t"),
        ".csv": partial(read_table, quoting=csv.QUOTE_MINIMAL, delimiter=","),
        ".conll": read_conll,
        ".conllu": read_conllu,
    }
    ending = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    return readers.get(ending.lower(), _read_lines)(path)


def _read_lines(path: Path) -> Iterator[Row]:
    for number, (place, line) in enumerate(lines_of(path), start=1):
        if line.strip():
            yield Row(place, {"text": line}, number)


def _read_jsonl(path: Path) -> Iterator[Row]:
    for row in _read_lines(path):
        try:
            values = parse_json(row.values["text"], nan=True)
        except ValueError as error:
            raise TwofoldError(f"{row.place}: not JSON ({error})") from None
        if not isinstance(values, dict):
            raise TwofoldError(f"{row.place}: not a JSON object")
        yield Row(row.place, values, row.line)


def read_table(path: Path, quoting: Any, delimiter: str) -> Iterator[Row]:
    """Reads the rows of a table whose first line names the columns."""
    csv.field_size_limit(LONGEST_LINE)
    # A quoted field may span several lines, so the reader gets them with their line ends.
    line = 1
    reader = csv.reader((line + "\n" for _, line in lines_of(path)), quoting=quoting, delimiter=delimiter, strict=True)
    try:
        header, line = next(reader, None), reader.line_num + 1
        if header is None:
            return
        if len(set(header)) < len(header):
            raise TwofoldError(f"{path}:1: a column name stands twice in {', '.join(header)}")
        for fields in reader:
            begin, line = line, reader.line_num + 1  # a row may span several lines
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
        splits = sorted(str(inner) for inner in path.iterdir() if inner.is_dir())
        raise TwofoldError(f"{path}: holds several splits; name one: {', '.join(splits)}")
    if not (path / "state.json").exists():
        raise TwofoldError(f"{path}: a folder, but not one that Hugging Face `datasets` wrote with save_to_disk")
    try:
        from datasets import load_from_disk  # type: ignore[import-untyped]
    except ImportError:
        raise TwofoldError(f"{path}: reading it needs `pip install 'twofold[datasets]'`") from None
    for number, values in enumerate(dataset_rows(load_from_disk(str(path))), start=1):
        yield Row(f"{path}:{number}", values)


def lines_of(path: Path) -> Iterator[tuple[str, str]]:
    """Reads the lines of a UTF-8 file without line ends, each with its place."""
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
    """Describes how to convert a file that is not UTF-8; empty if unknown."""
    with _open(path) as file:
        return conversion(path, file.read(SAMPLE))


def _open(path: Path) -> IO[bytes]:
    refuse_special(path)
    if path.suffix == ".gz":
        return io.BufferedReader(gzip.open(path, "rb"), 1 << 20)
    return path.open("rb", buffering=1 << 20)
