"""Locks of folders that only one process at a time may change; an error names the process that holds one."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from filelock import FileLock, Timeout

from twofold.errors import TwofoldError

HOLDER = ".holder"
"""The ending of the file beside a lock file that names the process which holds the lock, or held it last."""


class HeldError(TwofoldError):
    """Another process holds the lock."""

    def __init__(self, folder: Path, holder: str, doing: str) -> None:
        super().__init__(f"{folder}: another process{holder} is {doing} here; wait for it or choose another folder")
        self.holder = holder
        """The process in brackets, or nothing where it is not known."""


@contextlib.contextmanager
def held(path: Path, doing: str, wait: float = 0.0) -> Iterator[None]:
    """Hold the lock file at `path` while the block runs, so that no other process is `doing` the same there.

    The folder of the lock file is made where it is missing. Waits `wait` seconds for another process. The operating
    system takes the lock back from a process that is killed.
    """
    folder = path.parent
    lock = FileLock(path, timeout=wait)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        raise HeldError(folder, _holder(path), doing) from None
    except FileExistsError:
        raise TwofoldError(f"{folder}: a file, not a folder; choose another folder") from None
    except (OSError, ValueError) as error:  # the latter of a name that no file can have
        reason = getattr(error, "strerror", None) or error
        raise TwofoldError(f"{folder}: cannot be written to ({reason}); choose another folder") from None
    try:
        _name_holder(path)
        yield
    finally:
        lock.release()


def _holder_file(path: Path) -> Path:
    return path.with_name(path.name + HOLDER)


def _name_holder(path: Path) -> None:
    about = {"process": os.getpid(), "host": socket.gethostname(), "since": datetime.now().isoformat(" ", "minutes")}
    with contextlib.suppress(OSError):  # the lock holds without it
        handle = os.open(_holder_file(path), os.O_WRONLY | os.O_CREAT, 0o644)
        try:  # in place, which takes less time than a new file for every lock
            os.truncate(handle, os.write(handle, json.dumps(about).encode()))
        finally:
            os.close(handle)


def _holder(path: Path) -> str:
    """The process that holds a lock in brackets, or nothing where that is not known."""
    try:
        about = json.loads(_holder_file(path).read_text(encoding="utf-8"))
        since = datetime.fromisoformat(about["since"])
        process, host = int(about["process"]), str(about["host"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    today = since.date() == datetime.now().date()
    return (
        f" ({process} on {host}, since {since:%H:%M})" if today else f" ({process} on {host}, since {since:%F %H:%M})"
    )
