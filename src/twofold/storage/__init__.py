"""Atomic files and folders: written aside, synced and renamed, so that no reader sees half of one."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from textwrap import shorten
from typing import IO, TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from twofold.errors import TwofoldError

if TYPE_CHECKING:
    from torch import Tensor

NEW, OLD = ".new", ".old"
CHECKSUM = "checksum"
LONGEST_NUMBER = 400
"""Maximum number of digits of a number in a JSON file; parsing longer ones is slow."""
_NUMBER = re.compile(r"\d+")


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turns a failed write into a one-line error; the previous content of `path` is kept."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        full = getattr(error, "errno", None) == errno.ENOSPC
        reason = "no space left on the disk: free some and run again" if full else getattr(error, "strerror", None)
        raise TwofoldError(
            f"{path}: could not be written ({reason or error}); what was there before is kept"
        ) from error


@contextlib.contextmanager
def _reading(path: Path, wrong: str, remedy: str) -> Iterator[None]:
    """Turns a failed read into a one-line error with the problem and the remedy."""
    try:
        refuse_special(path)
        yield
    except FileNotFoundError:
        raise TwofoldError(f"{path}: no such file; {remedy}") from None
    except (OSError, ValueError, SafetensorError) as error:
        raise TwofoldError(f"{path}: {wrong} ({error}); {remedy}") from error


def refuse_special(path: Path) -> None:
    """Raises an OSError for a pipe or a device, which may have no end or block its reader.

    A pipe from the shell, as in <(zcat rows.gz), has a writer and is read like a file.
    """
    try:
        mode = path.stat().st_mode
    except ValueError as error:  # a name that no file can have
        raise OSError(errno.EINVAL, str(error)) from None
    handed_over = stat.S_ISFIFO(mode) and os.path.basename(os.path.realpath(path)).startswith("pipe:[")
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or handed_over):
        raise OSError(errno.EINVAL, "a pipe or a device, not a file")


@contextlib.contextmanager
def new_file(path: Path) -> Iterator[IO[bytes]]:
    """Opens a new file to write; on exit it is synced and replaces `path` atomically."""
    aside = path.with_name(f".{path.name}{NEW}")
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with aside.open("wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            aside.replace(path)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise
        _sync(path.parent)


def write_bytes(path: Path, content: bytes) -> None:
    """Replaces the file at `path` by `content`, atomically and durably."""
    with new_file(path) as file:
        file.write(content)


def write_json(path: Path, content: Any) -> None:
    """Replaces the file at `path` by `content` as indented JSON."""
    write_bytes(path, (json.dumps(content, ensure_ascii=False, indent=2) + "\n").encode())


def read_json(path: Path, remedy: str) -> dict[str, Any]:
    """Reads a JSON object from a file; `remedy` ends the error message if that fails."""
    with _reading(path, "not readable as JSON", remedy):
        content = parse_json(path.read_bytes())
    if not isinstance(content, dict):
        raise TwofoldError(f"{path}: not a JSON object; {remedy}")
    return content


def write_checked_json(path: Path, content: Mapping[str, Any]) -> None:
    """Writes JSON like `write_json`, with a checksum that `check_content` verifies."""
    write_json(path, {**content, CHECKSUM: _checksum(content)})


def check_content(content: Mapping[str, Any], path: Path, remedy: str) -> None:
    """Raises an error if the checksum does not match the content.

    Files without a checksum were written by hand and pass.
    """
    rest = {key: value for key, value in content.items() if key != CHECKSUM}
    if content.get(CHECKSUM, _checksum(rest)) != _checksum(rest):
        raise TwofoldError(f"{path}: damaged or changed by hand, its checksum differs; {remedy}")


def _checksum(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode("utf-8", "surrogatepass")).hexdigest()


def parse_json(text: str | bytes, nan: bool = False) -> Any:
    """Parses JSON strictly: raises a ValueError for duplicate keys, huge numbers and whatever Python cannot hold.

    nan: accept NaN and Infinity, which Python and others write although JSON has no such numbers
    """
    if isinstance(text, bytes):
        text = text.decode(json.detect_encoding(text))
    try:
        return (_LENIENT if nan else _STRICT).decode(text.removeprefix("\ufeff"))
    except RecursionError:
        raise ValueError("nested too deep") from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Returns the pairs of a JSON object; Python would silently keep the last of two equal keys."""
    content = dict(pairs)
    if len(content) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for number, key in enumerate(keys) if key in keys[:number])
        raise ValueError(f"the key '{shorten(twice, 60, placeholder=' ...')}' stands twice")
    return content


def _short(digits: str) -> str:
    if len(digits) > LONGEST_NUMBER:
        raise ValueError(f"a number of {len(digits):,} digits")
    return digits


def _whole(digits: str) -> int:
    return int(_short(digits))


def _finite(text: str) -> float:
    number = float(_short(text))
    if not math.isfinite(number):
        raise ValueError(f"{text} is no number in JSON" if text[-1].isalpha() else f"{text} is too large a number")
    return number


_STRICT = json.JSONDecoder(object_pairs_hook=_object, parse_int=_whole, parse_float=_finite, parse_constant=_finite)
_LENIENT = json.JSONDecoder(object_pairs_hook=_object, parse_int=_whole)


@contextlib.contextmanager
def new_folder(path: Path) -> Iterator[Path]:
    """Creates an empty folder to fill; on exit it is synced and replaces `path` atomically."""
    aside, before = _beside(path, NEW), _beside(path, OLD)
    with writing(path):
        recover(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        aside.mkdir()
        try:
            yield aside
            for file in sorted(aside.rglob("*")):
                _sync(file)
            _sync(aside)
        except BaseException:
            shutil.rmtree(aside, ignore_errors=True)
            raise
        if path.exists():
            path.rename(before)
        aside.rename(path)
        _sync(path.parent)
        shutil.rmtree(before, ignore_errors=True)


def recover(path: Path) -> None:
    """Finishes or undoes an interrupted `new_folder`, so that `path` is the folder before or after it."""
    before = _beside(path, OLD)
    if before.exists() and not path.exists():
        before.rename(path)
    shutil.rmtree(before, ignore_errors=True)
    shutil.rmtree(_beside(path, NEW), ignore_errors=True)


def settled(path: Path) -> Path:
    """Returns the path to read the folder from, even while a writer replaces it; changes nothing."""
    before = _beside(path, OLD)
    return before if before.exists() and not path.exists() else path


def remove_folder(path: Path) -> None:
    """Removes a folder so that an interruption leaves nothing that looks complete."""
    going = _beside(path, OLD)
    path.rename(going)
    shutil.rmtree(going, ignore_errors=True)


def sha256(path: Path) -> str:
    """Returns the SHA-256 of a file in hexadecimal."""
    refuse_special(path)
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_tensors(path: Path, tensors: Mapping[str, Tensor], about: Mapping[str, str]) -> None:
    """Writes a safetensors file into a folder that is not yet in place."""
    from safetensors.torch import save_file

    with writing(path):
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path, metadata=dict(about))


def read_tensors(path: Path, remedy: str, names: Iterable[str] | None = None) -> dict[str, Tensor]:
    """Reads tensors of a safetensors file, by default all; `remedy` ends the error message if the file is missing or
    damaged."""
    with _reading(path, "damaged", remedy), safe_open(path, "pt") as file:
        return {name: file.get_tensor(name) for name in (file.keys() if names is None else names)}


def tensor_shapes(path: Path, remedy: str) -> dict[str, tuple[int, ...]]:
    """Reads the shape of every tensor from the header of a safetensors file, and checks the file's length."""
    with _reading(path, "damaged", remedy), safe_open(path, "pt") as file:
        return {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118


def _beside(path: Path, ending: str) -> Path:
    whole = Path(os.path.abspath(path))  # "." has no name
    return whole.with_name(f".{whole.name}{ending}")


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def more_of_the_same(left_over: Iterable[str], placed: Iterable[str]) -> list[str]:
    """Returns unplaced tensors whose names differ from a placed one only by a number: further layers.

    Names may be longer at the front, where files have a prefix of their own.
    """
    known = tuple({f".{_NUMBER.sub('#', name)}" for name in placed if _NUMBER.search(name)})
    return [name for name in left_over if f".{_NUMBER.sub('#', name)}".endswith(known)]
