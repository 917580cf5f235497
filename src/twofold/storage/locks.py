"""Folder locks: one process at a time may change a folder; an error names the process that holds the lock."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from filelock import FileLock, Timeout

from twofold.errors import TwofoldError

NAMING = 1.0
"""Seconds that a process may take to write its name into a lock file that it has just acquired."""


class HeldError(TwofoldError):
    """Error for a folder that another process changes."""


@contextlib.contextmanager
def held(path: Path, doing: str, wait: float = 0.0) -> Iterator[None]:
    """Holds the lock file at `path` while the block runs, so that no other process is `doing` the same there.

    Creates the folder if it is missing. Waits up to `wait` seconds for another process. The operating system releases
    the lock of a process that is killed.
    """
    folder = path.parent
    lock = FileLock(path, timeout=wait)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except Timeout:
        holder = _holder(path)
        state = f"{holder} is {doing} here; wait for it or choose another folder"
        if wait:
            state = f" has been {doing} for {wait:.0f} s{holder}; try later"
        raise HeldError(f"{folder}: another process{state}") from None
    except FileExistsError:
        raise TwofoldError(f"{folder}: a file, not a folder; choose another folder") from None
    except (OSError, ValueError) as error:  # the latter of a name that no file can have
        reason = getattr(error, "strerror", None) or error
        raise TwofoldError(f"{folder}: cannot be written to ({reason}); choose another folder") from None
    process = {"process": os.getpid(), "host": socket.gethostname(), "since": f"{datetime.now():%F %H:%M}"}
    try:
        _write(path, json.dumps(process).encode())
        yield
    finally:
        _write(path, b"")
        lock.release()


def _write(path: Path, holder: bytes) -> None:
    """Writes the name of the process that holds the lock into the lock file, or clears it."""
    with contextlib.suppress(OSError), path.open("r+b", buffering=0) as file:  # the lock holds without it
        file.truncate(file.write(holder))


def _holder(path: Path) -> str:
    """Describes the process that holds a lock, in brackets; empty if unknown."""
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
            day = "" if since.date() == datetime.now().date() else f"{since:%F} "
            return f" ({process} on {host}, since {day}{since:%H:%M})"
