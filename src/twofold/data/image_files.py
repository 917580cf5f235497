"""Named files in folders and zip archives, read within limits and never unpacked; no name leads outside."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path, PurePosixPath

from twofold.errors import TwofoldError
from twofold.storage import sha256

ENDINGS = (".png", ".jpg", ".jpeg", ".webp")
"""How the names of images end."""
LARGEST_FILE = 64 << 20
"""Bytes of one image's file at most, packed or not."""


class ImageError(TwofoldError):
    """An image that cannot be used, with its place."""


@dataclass(frozen=True)
class Files(ABC):
    """Named files, wherever they lie."""

    root: Path
    """The folder that names begin from, which may lie inside an archive."""

    @abstractmethod
    def names(self) -> list[str]:
        """The names of all, in order."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """The content of a file."""

    @abstractmethod
    def fingerprint(self, names: Iterable[str]) -> str:
        """Another one when one of these files has changed."""

    def sum(self, names: Iterable[str]) -> str:
        """A hash of the content of these files, whatever their times."""
        return self.fingerprint(names)

    def place(self, name: str) -> str:
        """Where a file lies, for messages."""
        return str(self.root / name)

    @cached_property
    def stems(self) -> dict[str, str]:
        """The names of images by themselves without their endings."""
        stems: dict[str, str] = {}
        for name in self.names():
            if name.lower().endswith(ENDINGS):
                stem = name.rpartition(".")[0]
                if stem in stems:
                    raise TwofoldError(f"{self.place(name)}: beside {stems[stem]}; a table must name them with endings")
                stems[stem] = name
        return stems


class Folder(Files):
    """The files under a folder; a link in it is read like the file or folder that it leads to."""

    def names(self) -> list[str]:
        paths, seen = [], set()
        for folder, inner, files in os.walk(self.root, followlinks=True):
            if (real := os.path.realpath(folder)) in seen:  # a link that leads in circles
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
            if not stat.S_ISREG(about.st_mode):  # of a folder there is nothing to read, of a device no end
                raise ImageError(f"{path}: not a file")
            if about.st_size > LARGEST_FILE:
                raise ImageError(f"{path}: a file of over {LARGEST_FILE >> 20} MiB")
            return path.read_bytes()
        except (OSError, ValueError) as error:  # the latter of a name that no file can have
            raise ImageError(f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})") from None

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
    """The files under a folder of a zip archive; they are read, never unpacked."""

    path: Path
    """The archive."""

    @property
    def inside(self) -> str:
        """The folder in the archive; nothing if it is the whole archive."""
        inside = self.root.relative_to(self.path).as_posix()
        return "" if inside == "." else inside

    @cached_property
    def _zip(self) -> zipfile.ZipFile:
        try:
            return _zip_at(self.path, self.path.stat().st_mtime_ns)
        except Exception as error:  # zipfile raises whatever the damage leads it to
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
            raise ImageError(f"{place}: no such file in the archive") from None
        if info.file_size > LARGEST_FILE:
            raise ImageError(f"{place}: a file of over {LARGEST_FILE >> 20} MiB")
        try:
            with self._zip.open(info) as file:
                return file.read(LARGEST_FILE)
        except Exception as error:  # a password, a wrong checksum, an unknown packing, bytes that are missing
            raise ImageError(f"{place}: cannot be unpacked ({error})") from None

    def fingerprint(self, names: Iterable[str]) -> str:
        try:
            return f"{self.inside} {sha256(self.path)}"
        except OSError as error:
            raise TwofoldError(f"{self.path}: cannot be read ({error.strerror})") from None


@lru_cache(maxsize=8)
def _zip_at(path: Path, changed: int) -> zipfile.ZipFile:
    """An archive, opened once for all images in it; anew when it has changed."""
    return zipfile.ZipFile(path)


def open_files(where: str | Path) -> Files:
    """The files of a folder, of a zip archive, or of a folder inside one: images.zip/train."""
    files = find_files(where)
    if files is None:
        raise TwofoldError(f"{where}: no such folder or zip archive")
    return files


def find_files(where: str | Path) -> Files | None:
    """A folder, or one in an archive, if that is what lies there."""
    path = Path(where)
    with contextlib.suppress(OSError):  # a name that no file can have
        if path.is_dir():
            return Folder(path)
        for archive in (path, *path.parents):
            if archive.suffix.lower() == ".zip" and archive.is_file():
                return Archive(path, archive)
    return None


def _inside(name: str, where: Path) -> PurePosixPath:
    """The name, if it cannot lead outside its folder."""
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name:
        raise ImageError(f"{where}: the name {name!r} leads outside")
    return path
