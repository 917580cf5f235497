"""Column that names files: finds the files, checks which rows are usable, and keeps the file names in a cache."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from twofold.data.cache import Cache, DerivedField, Encoded, Field
from twofold.data.columns import TooLongError
from twofold.data.files import DataFile, Row, Sources, fingerprint, read_rows
from twofold.data.named_files import FileError, Files, FileSide, NamedFile, find_files, name_files, open_files
from twofold.data.ranking import Side
from twofold.errors import TwofoldError, listed

NAME = "name"
"""Cache column of the file names."""


@dataclass(frozen=True)
class FileSettings:
    """Settings of inputs read from files that a table names or a folder holds; an input type implements `rows`."""

    noun: ClassVar[str]
    endings: ClassVar[tuple[str, ...]]
    file: ClassVar[type[NamedFile]]
    """Class of the files."""

    column: str = "file"
    """Column of the table that names the file."""
    folder: str | None = None
    """Folder or zip archive of the files that a table names; null means the table's own folder."""
    broken: Literal["refuse", "skip"] = "refuse"
    """Action for a row with an unusable file or target: `refuse` raises an error that names it, `skip` leaves the row
    out."""

    def rows(self, where: Sources) -> Iterator[Row]:
        """Reads all rows of a table or a folder, with their files."""
        raise NotImplementedError

    def given(self, value: Any, place: str) -> Any:
        """Accepts a file path or content in memory; `place` names it in errors."""
        raise NotImplementedError

    def name_files(self, rows: Iterable[Row], where: Sources, columns: Sequence[str]) -> Iterator[Row]:
        path = self.source(where)
        if find_files(path):
            return iter(rows)
        return name_files(rows, self.files_of(path), columns, self.file, self.endings, lists=True)

    def side(self) -> Side:
        return FileSide(self.noun, self.given)

    def in_folder(self, folder: str | None) -> Self:
        return replace(self, folder=folder)

    def skips(self) -> bool:
        return self.broken == "skip"

    def check_columns(self, where: Sources) -> bool:
        return not self.skips() and find_files(self.source(where)) is None

    def files(self, where: Sources, setting: str) -> dict[str, DataFile]:
        path = self.source(where)
        files, names = self.files_of(path), names_of(self.rows(path), self.endings)
        named = DataFile(files.place(""), partial(files.sum, names), files.fingerprint(names))
        if find_files(path):
            return {setting: named}
        return {setting: DataFile(path, partial(fingerprint, path)), f"{self.noun}s of {setting}": named}

    def content(self, where: Sources) -> str:
        path = self.source(where)
        table = "" if find_files(path) else fingerprint(path)
        return f"{table} {self.files_of(path).fingerprint(names_of(self.rows(path), self.endings))}"

    def files_of(self, where: str) -> Files:
        """Returns the folder or archive of the files that a table names or a folder holds."""
        return find_files(where) or open_files(self.folder or Path(where).parent)

    def source(self, where: Sources) -> str:
        """Returns the table or the folder; there must be exactly one."""
        if not isinstance(where, str):
            raise TwofoldError(f"{self.noun}s are named by one table, or lie in one folder")
        return where


def names_of(rows: Iterable[Row], endings: tuple[str, ...]) -> list[str]:
    """Collects the names of all files in the rows, including those in other columns such as masks."""
    names: dict[str, None] = {}
    for row in rows:
        files = [value for value in row.values.values() if isinstance(value, NamedFile)]
        texts = [value for value in row.values.values() if isinstance(value, str)]
        names |= dict.fromkeys(file.name for file in files)
        if files and texts:
            stems: dict[str, str] = {}
            with suppress(TwofoldError):  # names without endings may be ambiguous
                stems = files[0].files.stems(endings)
            named = [stems.get(text, text) for text in texts if text.lower().endswith(endings) or text in stems]
            names |= dict.fromkeys(named)
    return list(names)


def each_usable(rows: Sequence[Row], numbers: Callable[[Row], list[int]], skips: bool) -> Encoded:
    """Computes the numbers of each row. An unusable row gets none if `skips` is set, and raises an error otherwise."""
    usable: list[list[int]] = []
    reasons = []
    for row in rows:
        try:
            usable.append(numbers(row))
        except TooLongError:  # has its own setting
            raise
        except TwofoldError as error:
            if not skips:
                raise
            reasons.append(str(error))
            usable.append([])
    if reasons:
        warnings.warn(f"left out: {listed(reasons)}", stacklevel=2)
    return Encoded(usable, len(reasons))


class FileColumn:
    """Turns a column of files, or of their contents, into a field of a cache; an input type defines the numbers
    kept."""

    config: FileSettings

    def numbers(self, row: Row) -> list[int]:
        """Reads the file of a row completely to check it, and returns the numbers to cache."""
        raise NotImplementedError

    def encode(self, rows: Sequence[Row]) -> Encoded:
        return each_usable(rows, self.numbers, self.config.skips())

    def names(self) -> DerivedField:
        """Cache field with the file names."""
        column = self.config.column
        return name_field([column], lambda row: row.values.get(column))

    def value(self, row: Row) -> Any:
        column, noun = self.config.column, self.config.noun
        if row.values.get(column) is None:
            raise FileError(f"{row.place}: '{column}' names no {noun}; this row has {', '.join(row.values)}")
        return self.config.given(row.values[column], row.place)

    def usable(self, rows: Iterable[Row], further: Iterable[Field]) -> Iterator[Row]:
        encoders = [self.encode, *(field.encode for field in further)]
        return (row for row in rows if all(encode([row]).ids[0] for encode in encoders))

    def is_single(self, inputs: Any) -> bool:
        return not isinstance(inputs, list | tuple | Iterator)

    def rows_to_answer(self, where: str, folder: str | None) -> list[Row]:
        config = self.config.in_folder(folder)
        rows = [] if find_files(where) else list(read_rows(where))
        if rows and not folder and rows[0].values.keys() == {"text"}:  # plain lines, each with a path
            rows = [Row(row.place, {config.column: row.text("text")}) for row in rows]
        else:
            rows = list(config.rows(where))
        return [row for row in rows if each_usable([row], self._named, config.skips()).ids[0]]

    def _named(self, row: Row) -> list[int]:
        """Checks that a row names a file."""
        return [self.value(row) is not None]


def name_field(settings: list[Any], file: Callable[[Row], Any]) -> DerivedField:
    """Stores file names as bytes, so that training can find the files again; content in memory has no name."""

    def encode(rows: Sequence[Row]) -> Encoded:
        names = [given.name if isinstance(given, NamedFile) else "" for given in map(file, rows)]
        return Encoded([list(name.encode(errors="surrogatepass")) for name in names])

    return DerivedField("uint8", lambda: settings, encode)


def cached_name(cache: Cache, column: str, row: int) -> str:
    """Returns the cached file name of a row."""
    return cache.columns[column].row(row).tobytes().decode(errors="surrogatepass")
