"""Named files in folders and zip archives, read within limits without unpacking; no name may lead outside."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, Self, TypeVar

from twofold.data.files import Row, read_rows
from twofold.errors import TwofoldError
from twofold.storage import sha256

LARGEST_FILE = 64 << 20
"""Maximum size of one file in bytes, packed or not."""


class FileError(TwofoldError):
    """Error for an unusable image or sound, with its place."""


@dataclass(frozen=True)
class Files(ABC):
    """Collection of named files."""

    root: Path
    """Folder that names are relative to; it may be inside an archive."""

    @abstractmethod
    def names(self) -> list[str]:
        """Sorted names of all files."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """Content of a file."""

    @abstractmethod
    def fingerprint(self, names: Iterable[str]) -> str:
        """Cheap fingerprint that changes when one of the files changes."""

    def sum(self, names: Iterable[str]) -> str:
        """Hash of the content of the files, independent of their times."""
        return self.fingerprint(names)

    def place(self, name: str) -> str:
        """Location of a file, for messages."""
        return str(self.root / name)

    def stems(self, endings: tuple[str, ...]) -> dict[str, str]:
        """Maps file names without suffix to full names, for files with one of these suffixes."""
        if endings not in self._stems:
            stems: dict[str, str] = {}
            for name in self.names():
                if name.lower().endswith(endings):
                    stem = name.rpartition(".")[0]
                    if stem in stems:
                        said = f"{self.place(name)}: beside {stems[stem]}"
                        raise TwofoldError(f"{said}; a table must name them with endings")
                    stems[stem] = name
            self._stems[endings] = stems
        return self._stems[endings]

    @cached_property
    def _stems(self) -> dict[tuple[str, ...], dict[str, str]]:
        return {}

    def named(self, name: str, endings: tuple[str, ...]) -> str:
        """Returns the full name of a file; the suffix may be omitted."""
        return name if name.lower().endswith(endings) else self.stems(endings).get(name, name)


class Folder(Files):
    """Files in a folder; links are followed."""

    def names(self) -> list[str]:
        paths, seen = [], set()
        for folder, inner, files in os.walk(self.root, followlinks=True):
            if (real := os.path.realpath(folder)) in seen:  # a link back to a parent folder
                inner.clear()
                continue
            seen.add(real)
            inner.sort()
            paths += [path for name in files if (path := Path(folder, name)).is_file()]
        return sorted(path.relative_to(self.root).as_posix() for path in paths)

    def read(self, name: str) -> bytes:
        path = self.root / _inside(name, self.root)
        try:
            about = path.stat()
            if not stat.S_ISREG(about.st_mode):  # a folder has no content, and a device may have no end
                raise FileError(f"{path}: not a file")
            if about.st_size > LARGEST_FILE:
                raise FileError(f"{path}: a file of over {LARGEST_FILE >> 20} MiB")
            return path.read_bytes()
        except (OSError, ValueError) as error:  # ValueError: a name that no file can have
            raise FileError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None

    def fingerprint(self, names: Iterable[str]) -> str:
        stamps: list[tuple[str, int, int]] = []
        for name in names:
            with contextlib.suppress(OSError, ValueError):
                about = (self.root / name).stat()
                stamps.append((name, about.st_size, about.st_mtime_ns))
        return str(zlib.crc32(repr(stamps).encode()))

    def sum(self, names: Iterable[str]) -> str:
        whole = hashlib.sha256()
        for name in names:
            with contextlib.suppress(OSError, ValueError):
                whole.update(f"{name} {sha256(self.root / name)}\n".encode())
        return whole.hexdigest()


@dataclass(frozen=True)
class Archive(Files):
    """Files in a folder of a zip archive, read without unpacking."""

    path: Path
    """Path of the archive."""

    @property
    def inside(self) -> str:
        """Folder inside the archive; empty for the whole archive."""
        inside = self.root.relative_to(self.path).as_posix()
        return "" if inside == "." else inside

    @cached_property
    def _zip(self) -> zipfile.ZipFile:
        try:
            return _zip_at(self.path, self.path.stat().st_mtime_ns)
        except Exception as error:  # zipfile raises various exceptions for damaged archives
            raise TwofoldError(f"{self.path}: not a zip archive that can be read ({error})") from None

    def names(self) -> list[str]:
        start = f"{self.inside}/" if self.inside else ""
        names = [info.filename for info in self._zip.infolist() if not info.is_dir()]
        return sorted(name.removeprefix(start) for name in names if name.startswith(start))

    def read(self, name: str) -> bytes:
        place = self.place(name)
        whole = _inside(f"{self.inside}/{name}" if self.inside else name, self.path)
        try:
            info = self._zip.getinfo(str(whole))
        except KeyError:
            raise FileError(f"{place}: no such file in the archive") from None
        if info.file_size > LARGEST_FILE:
            raise FileError(f"{place}: a file of over {LARGEST_FILE >> 20} MiB")
        try:
            with self._zip.open(info) as file:
                return file.read(LARGEST_FILE)
        except Exception as error:  # a password, a wrong checksum, an unknown compression, or missing bytes
            raise FileError(f"{place}: cannot be unpacked ({error})") from None

    def fingerprint(self, names: Iterable[str]) -> str:
        try:
            return f"{self.inside} {sha256(self.path)}"
        except OSError as error:
            raise TwofoldError(f"{self.path}: cannot be read ({error.strerror})") from None


@dataclass(frozen=True)
class NamedFile:
    """Readable file."""

    files: Files
    name: str

    @classmethod
    def at(cls, path: str | Path) -> Self:
        """Returns the file at a path, which may lead into a zip archive."""
        whole = Path(path)
        return cls(open_files(whole.parent), whole.name)

    @property
    def place(self) -> str:
        return self.files.place(self.name)

    def content(self) -> bytes:
        return self.files.read(self.name)

    def __str__(self) -> str:
        return self.place


File = TypeVar("File", bound=NamedFile)


def read_named_table(
    where: str, files: Files, column: str, kind: type[File], endings: tuple[str, ...]
) -> Iterator[Row]:
    """Reads the rows of a table and replaces the names in `column` by the files."""
    return name_files(read_rows(where), files, [column], kind, endings)


def name_files(
    rows: Iterable[Row],
    files: Files,
    columns: Sequence[str],
    kind: type[File],
    endings: tuple[str, ...],
    lists: bool = False,
) -> Iterator[Row]:
    """Replaces names in `columns` by the files, or with `lists` every name in a list."""

    def named(value: Any) -> Any:
        if isinstance(value, list):
            return [named(name) for name in value]
        return kind(files, files.named(value, endings)) if isinstance(value, str) else value

    for row in rows:
        # A name without a file is left out here and reported by whoever needs it.
        values = {
            name: value
            for name, value in row.values.items()
            if name not in columns or (value and isinstance(value, (str, list) if lists else str))
        }
        yield Row(
            row.place, {name: named(value) if name in columns else value for name, value in values.items()}, row.line
        )


@dataclass(frozen=True)
class FileSide:
    """Side of a ranker that reads files or their contents; see `Side` in `data/ranking.py`."""

    noun: str
    """Noun for the type in messages, such as "image"."""
    value: Callable[[Any, str], Any] = field(repr=False)
    """Function that turns a path or content in memory into a value; its second argument is the place for messages."""

    def context(self, row: Row, column: str, preface: str | None) -> Any:
        return self._filled(row, column, row.value(column), "")

    def right(self, row: Row, column: str) -> list[Any]:
        given = row.value(column)
        return self.listed(row, column) if isinstance(given, list) else [self._filled(row, column, given, "")]

    def listed(self, row: Row, column: str) -> list[Any]:
        given = row.values.get(column)
        if given is not None and not isinstance(given, list):
            raise FileError(f"{row.place}: '{column}' is not a list of {self.noun}s")
        return [self._filled(row, column, value, f"[{number}]") for number, value in enumerate(given or ())]

    def key(self, value: Any) -> int:
        return int.from_bytes(
            hashlib.blake2b(str(value).encode(errors="surrogatepass"), digest_size=8).digest(), "little"
        )

    def _filled(self, row: Row, column: str, given: Any, number: str) -> Any:
        if given is None or (isinstance(given, str) and not given):
            raise FileError(f"{row.place}: '{column}'{number} names no {self.noun}")
        return self.value(given, f"{row.place}: {column}{number}")


@lru_cache(maxsize=8)
def _zip_at(path: Path, changed: int) -> zipfile.ZipFile:
    """Opens an archive once for all its files, and again when it has changed."""
    return zipfile.ZipFile(path)


def open_files(where: str | Path) -> Files:
    """Opens a folder, a zip archive, or a folder inside one: images.zip/train."""
    files = find_files(where)
    if files is None:
        raise TwofoldError(f"{where}: no such folder or zip archive")
    return files


def find_files(where: str | Path) -> Files | None:
    """Opens a folder or archive if the path is one, else returns None."""
    path = Path(where)
    with contextlib.suppress(OSError):  # a name that no file can have
        if path.is_dir():
            return Folder(path)
        for archive in (path, *path.parents):
            if archive.suffix.lower() == ".zip" and archive.is_file():
                return Archive(path, archive)
    return None


def _inside(name: str, where: Path) -> PurePosixPath:
    """Checks that the name cannot lead outside its folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name:
        raise FileError(f"{where}: the name {name!r} leads outside")
    return path
