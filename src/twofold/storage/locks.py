"""Locks of folders that only one process at a time may change; an error names the process that holds one."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from twofold.errors import TwofoldError

NAMING = 1.0
"""Seconds that a process may take to write its name into a lock file that it has just got."""


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
        _write(path, {"process": os.getpid(), "host": socket.gethostname(), "since": _now().isoformat(" ", "minutes")})
        yield
    finally:
        _write(path, None)
        lock.release()


def _write(path: Path, holder: dict[str, Any] | None) -> None:
    """Name the process that holds the lock in the lock file itself, or nobody."""
    with contextlib.suppress(OSError):  # the lock holds without it
        handle = os.open(path, os.O_WRONLY)
        try:
            os.truncate(handle, os.write(handle, json.dumps(holder).encode()) if holder else 0)
        finally:
            os.close(handle)


def _holder(path: Path) -> str:
    """The process that holds a lock in brackets, or nothing where that is not known."""
    end = time.monotonic() + NAMING
    while True:
        try:
            about = json.loads(path.read_text(encoding="utf-8"))
            since = datetime.fromisoformat(about["since"])
            process, host = int(about["process"]), str(about["host"])
            if host == socket.gethostname():
                os.kill(process, 0)  # a process that was killed left its name
        except (OSError, ValueError, KeyError, TypeError):
            if time.monotonic() > end:
                return ""
            time.sleep(0.01)
        else:
            day = "" if since.date() == _now().date() else f"{since:%F} "
            return f" ({process} on {host}, since {day}{since:%H:%M})"


def _now() -> datetime:
    return datetime.now()
