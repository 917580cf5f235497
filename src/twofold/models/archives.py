"""Members of wheels and npm tarballs, taken out by name after size and SHA-256 of the archive are verified."""

from __future__ import annotations

import hashlib
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from twofold import storage
from twofold.data.named_models import Archive, Member
from twofold.errors import TwofoldError

PIECE = 1 << 20
Find = Callable[[Member], IO[bytes]]


def take(path: Path, archive: Archive, folder: Path) -> None:
    """Copies the members of an archive into a folder, each under the name that the table gives it."""
    _check(path, archive)
    with _opened(path, archive) as find:
        for name, member in archive.members.items():
            place = folder / name
            place.parent.mkdir(parents=True, exist_ok=True)
            with find(member) as source:
                _copy(source, place, member, archive)


def _check(path: Path, archive: Archive) -> None:
    """Refuses an archive that is not the pinned one."""
    size, sha256 = path.stat().st_size, storage.sha256(path)
    if sha256 != archive.sha256:
        begins = f"its SHA-256 begins with {sha256[:16]}, not {archive.sha256[:16]}"
        told = f"{begins}; it has {size:,} bytes, not {archive.size:,}"
        raise TwofoldError(f"{archive}: not the expected archive ({told}); nothing of it is used; try again")


@contextmanager
def _opened(path: Path, archive: Archive) -> Iterator[Find]:
    """Opens an archive; gives a function that finds a member."""
    try:
        if path.suffix in (".whl", ".zip"):
            with zipfile.ZipFile(path) as opened:
                yield lambda member: _in_zip(opened, member)
        else:
            with tarfile.open(path, "r:*") as tar:
                yield lambda member: _in_tar(tar, member)
    except (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, KeyError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        raise TwofoldError(f"{archive}: cannot be unpacked ({reason}); nothing of it is used") from error


def _in_zip(opened: zipfile.ZipFile, member: Member) -> IO[bytes]:
    return opened.open(opened.getinfo(member.path))


def _in_tar(opened: tarfile.TarFile, member: Member) -> IO[bytes]:
    about = opened.getmember(member.path)
    source = opened.extractfile(about) if about.isreg() else None  # a link could lead anywhere
    if source is None:
        raise ValueError(f"{member.path} is no file")
    return source


def _copy(source: IO[bytes], place: Path, member: Member, archive: Archive) -> None:
    """Copies a member of at most the pinned size, and refuses one that is not the pinned file."""
    digest, size = hashlib.sha256(), 0
    with place.open("wb") as file:
        while piece := source.read(min(PIECE, member.size + 1 - size)):
            size += len(piece)
            if size > member.size:
                break
            digest.update(piece)
            file.write(piece)
    if size != member.size or digest.hexdigest() != member.sha256:
        begins = f"its SHA-256 begins with {digest.hexdigest()[:16]}, not {member.sha256[:16]}"
        told = f"it has more than {member.size:,} bytes" if size > member.size else begins
        raise TwofoldError(f"{archive}: {member.path} is not the expected file ({told}); nothing of it is used")
