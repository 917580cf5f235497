"""Real disks that are read-only or full, for one forked process: mounts in a namespace of its own."""

from __future__ import annotations

import ctypes
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

NEW_MOUNTS, NEW_USER = 0x00020000, 0x10000000
READ_ONLY, REMOUNT, BIND = 1, 32, 4096
_libc = ctypes.CDLL(None, use_errno=True)


def apart(work: Callable[[], Any], timeout: int = 60) -> Any:
    """Result of `work`, as JSON, in a forked process whose mounts nobody else sees."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _libc.alarm(timeout)  # a hang ends by itself
            _unshare()
            os.write(write, json.dumps({"result": work()}).encode())
        except BaseException as error:
            os.write(write, json.dumps({"failed": repr(error)}).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as file:
        content = file.read()
    os.waitpid(child, 0)
    said = json.loads(content or b'{"failed": "killed, or over time"}')
    if "no namespace" in said.get("failed", ""):
        pytest.skip("this system gives no namespace for mounts")
    assert "failed" not in said, said["failed"]
    return said["result"]


def read_only(folder: Path) -> None:
    """From now on nothing in `folder` can be changed."""
    _mount(folder, folder, None, BIND)
    _mount(folder, folder, None, BIND | REMOUNT | READ_ONLY)


def small_disk(folder: Path, size: int) -> None:
    """An empty disk of so many bytes in the place of `folder`."""
    folder.mkdir(exist_ok=True)
    _mount("tmpfs", folder, "tmpfs", 0, f"size={size}")


def fill(folder: Path) -> None:
    """Leave no room on the disk of `folder`."""
    with (folder / "filler").open("wb", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while file.write(b"x" * size):
                    pass
            except OSError:
                continue


def _unshare() -> None:
    user, group = os.getuid(), os.getgid()
    if _libc.unshare(NEW_MOUNTS if user == 0 else NEW_MOUNTS | NEW_USER):
        raise OSError("no namespace")
    if user:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {user} 1")
        Path("/proc/self/gid_map").write_text(f"0 {group} 1")
    if _libc.mount(b"none", b"/", None, 0x4000 | 0x40000, None):  # what is mounted here stays here
        raise OSError("no namespace")


def _mount(source: str | Path, target: Path, kind: str | None, flags: int, options: str | None = None) -> None:
    encoded = [None if part is None else str(part).encode() for part in (source, target, kind, options)]
    if _libc.mount(encoded[0], encoded[1], encoded[2], flags, encoded[3]):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), str(target))
