"""A column that names files: where they lie, which of its rows can be used, and what a cache keeps of their names."""

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
"""The cache's column of the files' names."""


@dataclass(frozen=True)
class FileSettings:
    """Settings of what is read from files that a table names or a folder holds; a type fills in `rows`."""

    noun: ClassVar[str]
    endings: ClassVar[tuple[str, ...]]
    file: ClassVar[type[NamedFile]]
    """The class of the files."""

    column: str = "file"
    """The column of a table that names the file."""
    folder: str | None = None
    """The folder or zip archive of the files that a table names; the table's own folder unless given."""
    broken: Literal["refuse", "skip"] = "refuse"
    """What happens to a row whose file, or whose right answer, cannot be used: refuse ends with its name, skip goes
    on."""

    def rows(self, where: Sources) -> Iterator[Row]:
        """Every row of a table or a folder, with its file."""
        raise NotImplementedError

    def given(self, value: Any, place: str) -> Any:
        """A file, or what a user has at hand, which is called by its place."""
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
        """Where the files lie that a table names, or that a folder holds."""
        return find_files(where) or open_files(self.folder or Path(where).parent)

    def source(self, where: Sources) -> str:
        """The table or the folder, which must be one."""
        if not isinstance(where, str):
            raise TwofoldError(f"{self.noun}s are named by one table, or lie in one folder")
        return where


def names_of(rows: Iterable[Row], endings: tuple[str, ...]) -> list[str]:
    """The names of all files of some rows, also of those that other columns of a table name, such as masks."""
    names: dict[str, None] = {}
    for row in rows:
        files = [value for value in row.values.values() if isinstance(value, NamedFile)]
        texts = [value for value in row.values.values() if isinstance(value, str)]
        names |= dict.fromkeys(file.name for file in files)
        if files and texts:
            stems: dict[str, str] = {}
            with suppress(TwofoldError):  # names without endings may not tell files apart
                stems = files[0].files.stems(endings)
            named = [stems.get(text, text) for text in texts if text.lower().endswith(endings) or text in stems]
            names |= dict.fromkeys(named)
    return list(names)


def each_usable(rows: Sequence[Row], numbers: Callable[[Row], list[int]], skips: bool) -> Encoded:
    """The numbers of each row; one that cannot be used has none where that `skips` it, and is an error otherwise."""
    usable: list[list[int]] = []
    reasons = []
    for row in rows:
        try:
            usable.append(numbers(row))
        except TooLongError:  # has a setting of its own
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
    """How a column whose rows name files, or hold what is in them, becomes a field of a cache; a type of input says
    what it keeps of a file."""

    config: FileSettings

    def numbers(self, row: Row) -> list[int]:
        """What is kept of a row's file, which is read whole to see whether it can be used."""
        raise NotImplementedError

    def encode(self, rows: Sequence[Row]) -> Encoded:
        return each_usable(rows, self.numbers, self.config.skips())

    def names(self) -> DerivedField:
        """The field of the files' names."""
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

    def several(self, inputs: Any) -> Sequence[Any]:
        return inputs if isinstance(inputs, list | tuple) else [inputs]

    def rows_to_answer(self, where: str, folder: str | None) -> list[Row]:
        config = self.config.in_folder(folder)
        rows = [] if find_files(where) else list(read_rows(where))
        if rows and not folder and rows[0].values.keys() == {"text"}:  # plain lines, each with a path
            rows = [Row(row.place, {config.column: row.text("text")}) for row in rows]
        else:
            rows = list(config.rows(where))
        return [row for row in rows if each_usable([row], self._named, config.skips()).ids[0]]

    def _named(self, row: Row) -> list[int]:
        """That a row names a file."""
        return [self.value(row) is not None]


def name_field(settings: list[Any], file: Callable[[Row], Any]) -> DerivedField:
    """The names of files as bytes, so that a training finds them again; what is at hand has none."""

    def encode(rows: Sequence[Row]) -> Encoded:
        names = [given.name if isinstance(given, NamedFile) else "" for given in map(file, rows)]
        return Encoded([list(name.encode(errors="surrogatepass")) for name in names])

    return DerivedField("uint8", lambda: settings, encode)


def cached_name(cache: Cache, column: str, row: int) -> str:
    """The name that a cache keeps of a row's file."""
    return cache.columns[column].row(row).tobytes().decode(errors="surrogatepass")
